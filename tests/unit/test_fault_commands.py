"""The commands that `plan` shows: every kind has its own, with rules where nothing is decided
yet."""

from __future__ import annotations

from typing import Any

import pytest

import faults
from commands.plan_text import show_plans, timeline_rows
from experiments.plans import ScenarioRequest, resolve
from experiments.resolved import RoundOptions
from harness.protocols.cluster import TopicSettings

ROLES = {
    "kafka-1": ("broker", "controller"),
    "kafka-2": ("broker", "controller"),
    "bookie-1": ("bookie",),
}
TOPICS = [TopicSettings("orders", 3, 3, grows_to=6), TopicSettings("lone", 1, 1)]
RUN = "public/{namespace of the run}"


def sent(step: dict[str, Any]) -> list[str]:
    timeline = faults.compile(
        [{"at": 1, **step}], faults.inventory_of(topics=TOPICS, nodes=ROLES), seed=7, load_s=600
    )
    return faults.commands_of(timeline.firings[0], timeline)


AGAIN = "after 5 s: start it again"
ROLLED = "SIGTERM, SIGKILL after 30 s; start it again; wait until it is in sync, 60 s at most"
WORDS: list[tuple[dict[str, Any], list[str]]] = [
    ({"fault": "kill", "target": "kafka-2"}, ["SIGKILL kafka-2", AGAIN]),
    (
        {"fault": "kill", "target": "leader-of:orders-2"},
        ["SIGKILL the leader of orders-2, chosen then", AGAIN],
    ),
    (
        {"fault": "pause", "target": "leader-of:orders", "for": 2},
        ["SIGSTOP the node that leads most of orders, chosen then", "after 2 s: SIGCONT"],
    ),
    (
        {"fault": "kill", "target": "follower-of:orders-2"},
        ["SIGKILL a follower of orders-2, chosen then", AGAIN],
    ),
    (
        {"fault": "kill", "target": "replica-of:orders"},
        ["SIGKILL the node that keeps most of orders, chosen then", AGAIN],
    ),
    (
        {"fault": "kill", "target": "coordinator-of:group:billing"},
        ["SIGKILL the coordinator of group billing, chosen then", AGAIN],
    ),
    (
        {"fault": "pause", "target": "all", "together": True},
        ["SIGSTOP kafka-1, kafka-2", "after 5 s: SIGCONT"],
    ),
    (
        {"fault": "power-loss", "target": "kafka-1", "nodes": 2, "directories": "lost"},
        [
            "SIGKILL kafka-1, 2 in all; put each disk back to what was synced, names in folders included",
            "after 5 s: start again",
        ],
    ),
    (
        {"fault": "io-error", "target": "kafka-1", "operation": ["write"], "share": 0.1},
        [
            "EIO for 10% of write, all files of kafka-1",
            "after 10 s: no errors; start the node again if it died or does not get in sync",
        ],
    ),
    (
        {"fault": "io-delay", "target": "kafka-1", "nodes": "all", "files": "log"},
        [
            "delay each write/fsync by 0.1 s, files of kind log of all nodes of the kind of kafka-1",
            "after 10 s: no delay",
        ],
    ),
    (
        {"fault": "fsync-lies", "target": "kafka-1"},
        [
            "say that syncs are done, and do not do them, all files of kafka-1",
            "after 10 s: write out what was held back",
        ],
    ),
    (
        {"fault": "change-config", "topic": "orders", "config": {"min.insync.replicas": "3"}},
        ["IncrementalAlterConfigs topic orders: min.insync.replicas=3", "after 10 s: as before"],
    ),
    (
        {"fault": "truncate", "topic": "orders", "share": 0.75},
        ["DeleteRecords orders before the offset that leaves 25% of each log"],
    ),
    (
        {"fault": "recreate-topic", "topic": "orders"},
        [
            "DeleteTopics orders; wait until no broker in reach knows it",
            "after 2 s: CreateTopics orders, with the settings that it had",
        ],
    ),
    (
        {"fault": "add-broker", "topic": "orders", "partitions": 2},
        [
            "start a broker that is not a controller",
            "AlterPartitionReassignments orders, 2 of its partitions: one replica -> the new broker",
            "after 20 s: its replicas -> the others; SIGTERM; UnregisterBroker",
        ],
    ),
    (
        {"fault": "remove-broker"},
        [
            "AlterPartitionReassignments: every replica of the fourth broker -> the others",
            "SIGTERM; UnregisterBroker",
            "after 10 s: start it with an empty disk; its replicas -> it",
        ],
    ),
    (
        {"fault": "add-controller"},
        [
            "start a controller that is not a broker",
            "AddRaftVoter",
            "after 10 s: RemoveRaftVoter; SIGTERM",
        ],
    ),
    (
        {"fault": "remove-controller"},
        ["RemoveRaftVoter the active controller", "after 10 s: AddRaftVoter, the same"],
    ),
    ({"fault": "grow-partitions", "topic": "orders"}, ["CreatePartitions orders: 6 in all"]),
    (
        {"fault": "reassign", "topic": "lone", "cancel_after": 2},
        [
            "AlterPartitionReassignments lone, every partition: one replica -> a node that has "
            "none, chosen then",
            "after 2 s: cancel what has not arrived",
        ],
    ),
    ({"fault": "controller-kill"}, ["SIGKILL the active controller, chosen then", AGAIN]),
    (
        {"fault": "restart", "target": "role:bookie", "down": 3},
        [
            "SIGTERM a random bookie, chosen then; SIGKILL if it has not stopped within 30 s",
            "3 s later: start it again",
        ],
    ),
    ({"fault": "rolling-restart"}, [f"kafka-1: {ROLLED}", f"kafka-2: {ROLLED}"]),
    (
        {"fault": "clock-jump", "target": "kafka-1", "by": "1m", "way": "back"},
        ["wall clock of kafka-1: 60 s back", "after 10 s: the machine's again"],
    ),
    (
        {"fault": "clock-drift", "target": "kafka-1", "speed": 0.5},
        ["wall clock of kafka-1: 0.5 times as fast", "after 10 s: the machine's again"],
    ),
    (
        {"fault": "rolling-upgrade", "to": "4.1.2", "pause": 2, "finalize": True},
        [
            *(
                f"{n}: {ROLLED.replace('start it again', 'start it from 4.1.2')}; then 2 s"
                for n in ("kafka-1", "kafka-2")
            ),
            "UpdateFeatures: metadata.version to what the brokers support",
        ],
    ),
    (
        {"fault": "leader-move", "topic": "orders", "moves": {0: "kafka-2"}},
        [
            "AlterPartitionReassignments orders-0 -> [kafka-2, its other replicas]",
            "ElectLeaders preferred orders, the same (NATS: STREAM.LEADER.STEPDOWN of each)",
        ],
    ),
    (
        {"fault": "leader-move", "topic": "orders", "partitions": 2},
        [
            "AlterPartitionReassignments orders, 2 partitions -> [another replica first], chosen then",
            "ElectLeaders preferred orders, the same (NATS: STREAM.LEADER.STEPDOWN of each)",
        ],
    ),
    (
        {"fault": "unload", "target": "topic:orders-1"},
        [f"PUT /admin/v2/persistent/{RUN}/orders-partition-1/unload"],
    ),
    ({"fault": "unload", "target": "topic:lone"}, [f"PUT /admin/v2/persistent/{RUN}/lone/unload"]),
    ({"fault": "unload", "target": "namespace"}, [f"PUT /admin/v2/namespaces/{RUN}/unload"]),
    (
        {"fault": "split-bundle", "target": "bundle:0x00000000_0x15555555"},
        [f"PUT /admin/v2/namespaces/{RUN}/0x00000000_0x15555555/split?unload=true"],
    ),
    (
        {"fault": "transfer", "target": "bundle-of:orders", "to": "kafka-1"},
        [
            f"PUT /admin/v2/namespaces/{RUN}/{{the bundle of orders then}}/unload?destinationBroker=kafka-1"
        ],
    ),
    (
        {"fault": "mastership-move", "to": "kafka-2"},
        ['PUT /api/latest/virtualhostnode/kafka-2 {"role": "MASTER"}'],
    ),
]


def test_settings_of_a_namespace_are_changed_by_rest() -> None:
    step = {
        "fault": "change-config",
        "config": {"publishRate.publishThrottlingRateInMsg": 100},
        "at": 1,
    }
    known: dict[str, Any] = {"topics": TOPICS, "nodes": ROLES, "system": "pulsar"}
    timeline = faults.compile([step], faults.inventory_of(**known), seed=7, load_s=600)
    assert faults.commands_of(timeline.firings[0], timeline) == [
        "admin REST, policies of the run's namespace: publishRate.publishThrottlingRateInMsg=100",
        "after 10 s: as before",
    ]


@pytest.mark.parametrize(("step", "commands"), WORDS, ids=[str(step) for step, _ in WORDS])
def test_the_words(step: dict[str, Any], commands: list[str]) -> None:
    assert sent(step) == commands


def test_storms_say_how_often() -> None:
    (line,) = sent({"fault": "unload-storm", "times": 40, "pairs": True})
    assert (
        "chosen then}/unload (40 times, 0.02 to 0.2 s apart; each again 0.02 to 0.15 s later)"
        in line
    )
    (line,) = sent({"fault": "unload-storm", "target": "bundles", "times": 40})
    assert "/{a bundle with a topic, chosen then}/unload (40 times" in line
    (line,) = sent({"fault": "client-freeze", "target": "client:producer"})
    assert (
        line == "SIGSTOP client:producer, SIGCONT 0.06 s later; again every 0.16 to 0.25 s for 5 s"
    )


def test_plan_shows_what_the_cluster_is_started_with_and_what_each_draw_sends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    resolved = resolve(ScenarioRequest(scenario="kafka-mix", seed=4), RoundOptions())
    (plan,), (timeline,) = resolved.plans, resolved.timelines
    show_plans([(plan, timeline)], draws_seed=False, commands=True)
    out = capsys.readouterr().out.splitlines()
    assert "  needs     cpu-quota" in out
    assert next(line for line in out if "quiet for 10 s" in line).startswith(" " * 12 + "+22.0 s")
    assert "                SIGSTOP the node that leads most of orders, chosen then" in out
    rows = timeline_rows(timeline)
    assert len(rows) == len(timeline.firings)
    assert all(row["commands"] for row in rows)
    kinds = {"leader-move", "pause", "kill", "cpu-limit", "change-config", "truncate"}
    kinds |= {"grow-partitions", "recreate-topic", "reassign"}
    assert {row["fault"] for row in rows} == kinds
