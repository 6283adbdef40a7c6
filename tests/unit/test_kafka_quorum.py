"""A quorum of controllers that can change (KIP-853): how a cluster gets one, and what is asked of
it."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

import faults
from harness.clusters.cluster import describe_cluster
from harness.errors import EnvironmentNotReady, ScenarioError, UsageError
from harness.protocols.members import DYNAMIC_QUORUM, FOURTH_BROKER, SPARE_CONTROLLER, Quorum
from harness.systems.kafka import failover
from harness.systems.kafka.single import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

CHANGES = frozenset({DYNAMIC_QUORUM, SPARE_CONTROLLER, FOURTH_BROKER})


def settings(needs: frozenset[str]) -> dict[int, dict[str, str]]:
    """Number of a node -> its settings."""
    layout = describe_cluster("kafka", needs=needs).runtime.layout
    texts = {node.number: layout.conf_text(node, "server.properties") for node in layout.nodes}
    return {
        number: dict(
            line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#")
        )
        for number, text in texts.items()
    }


def test_without_such_faults_nothing_is_different() -> None:
    ordinary = settings(frozenset())
    assert sorted(ordinary) == [1, 2, 3]
    for own in ordinary.values():
        assert own["controller.quorum.voters"].count("@") == 3
        assert "controller.quorum.bootstrap.servers" not in own


def test_every_node_is_told_where_the_first_voters_are() -> None:
    dynamic = settings(CHANGES)
    assert {number: own["process.roles"] for number, own in dynamic.items()} == {
        **dict.fromkeys((1, 2, 3), "broker,controller"),
        4: "broker",
        5: "controller",
    }
    for own in dynamic.values():
        hosts = [at.split(":")[0] for at in own["controller.quorum.bootstrap.servers"].split(",")]
        assert [host.rpartition(".")[2] for host in hosts] == ["1", "2", "3"]
        assert "controller.quorum.voters" not in own
    listeners = {
        n: [one.split(":")[0] for one in own["listeners"].split(",")] for n, own in dynamic.items()
    }
    assert listeners[3] == ["CLIENT", "PEER", "ADMIN", "CONTROLLER"]
    assert listeners[4] == ["CLIENT", "PEER", "ADMIN"]
    assert listeners[5] == ["CONTROLLER"]
    assert dynamic[5]["advertised.listeners"].startswith("CONTROLLER://127.")


def voting_flags(needs: frozenset[str], runtime: str) -> dict[int, list[str]]:
    """Number of a node -> what the storage tool is told of the quorum."""
    layout = describe_cluster("kafka", needs=needs, runtime=runtime).runtime.layout
    return {node.number: layout.conf_text(node, "voters.flags").split() for node in layout.nodes}


@pytest.mark.parametrize(
    ("runtime", "host"), [("process", r"127\.\d+\.\d+\.{}"), ("docker", "kafka-{}-mesh")]
)
def test_storage_is_formatted_for_three_voters_and_for_those_that_join(
    runtime: str, host: str
) -> None:
    flags = voting_flags(CHANGES, runtime)
    assert flags[1] == flags[2] == flags[3]
    said, voters = flags[1]
    assert said == "--initial-controllers"
    for number, voter in enumerate(voters.split(","), 1):
        found = re.fullmatch(rf"{number}@{host.format(number)}:19095:([\w-]{{22}})", voter)
        assert found, voter
        assert len(base64.urlsafe_b64decode(found[1] + "==")) == 16
    assert len({voter.rpartition(":")[2] for voter in voters.split(",")}) == 3
    assert flags[4] == flags[5] == ["--no-initial-controllers"]


@pytest.mark.parametrize("runtime", ["process", "docker"])
def test_a_static_quorum_asks_the_storage_tool_for_nothing(runtime: str) -> None:
    assert voting_flags(frozenset(), runtime) == {1: [], 2: [], 3: []}


def test_brokers_that_know_no_such_quorum_are_refused_in_one_line() -> None:
    with pytest.raises(
        UsageError, match=r"needs dynamic-quorum: kafka 3\.8\.1 has none, 3\.9 does"
    ):
        describe_cluster("kafka", version="3.8.1", needs=CHANGES)
    assert describe_cluster("kafka", version="3.9.1", needs=CHANGES).runtime.spec.version == "3.9.1"


@pytest.mark.parametrize("runtime", ["process", "docker"])
def test_both_runtimes_have_it(runtime: str) -> None:
    described = describe_cluster("kafka", runtime=runtime, needs=CHANGES).runtime
    type(described).require(CHANGES)
    assert described.outside("controller") == ["kafka-5"]
    assert described.layout.advertised(described.layout.node("kafka-5"))["controller"].endswith(
        {"process": ".5:19095", "docker": "kafka-5-mesh:19095"}[runtime]
    )


@pytest.mark.parametrize("kind", ["add-controller", "remove-controller"])
@pytest.mark.parametrize("runtime", ["process", "docker"])
def test_a_cluster_with_static_voters_is_refused_before_it_starts(kind: str, runtime: str) -> None:
    nodes = {f"kafka-{n}": ("broker", "controller") for n in (1, 2, 3)}
    timeline = faults.compile(
        [{"fault": kind, "at": 1}], faults.inventory_of(topics=[], nodes=nodes), seed=1, load_s=60
    )
    static = describe_cluster("kafka", runtime=runtime)
    with pytest.raises(
        ScenarioError, match=f"{kind} is not possible on this cluster: .*dynamic-quorum"
    ):
        faults.refuse_unsupported(timeline, static)
    faults.refuse_unsupported(timeline, describe_cluster("kafka", runtime=runtime, needs=CHANGES))


def test_the_numbers_of_messages_that_are_described_here() -> None:
    assert (AddRaftVoterRequest.API_KEY, AddRaftVoterResponse.API_KEY) == (80, 80)
    assert (RemoveRaftVoterRequest.API_KEY, RemoveRaftVoterResponse.API_KEY) == (81, 81)


class Controllers:
    """Stands for `connect`: brokers that pass questions on to a quorum of kafka-1 to 3, which 5
    follows."""

    def __init__(self, leader: int = 2, says: tuple[int, str | None] = (0, None)) -> None:
        self.leader, self.says = leader, says
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, node: Any, security: Mapping[str, Any]) -> Any:
        assert node.name != "kafka-5", "it is no broker"
        return self

    def quorum(self) -> Any:
        def rows(*ends: tuple[int, int]) -> list[Any]:
            return [
                SimpleNamespace(replica_id=n, replica_directory_id=UUID(int=n), log_end_offset=end)
                for n, end in ends
            ]

        voters, observers = rows((1, 90), (2, 100), (3, 100)), rows((5, 60), (77, 0))
        return SimpleNamespace(
            leader_id=self.leader, leader_epoch=4, current_voters=voters, observers=observers
        )

    def add_voter(self, *asked: Any) -> tuple[int, str | None]:
        self.asked.append(asked)
        return self.says

    remove_voter = add_voter

    def close(self) -> None: ...


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Controllers:
    made = Controllers()
    monkeypatch.setattr(failover, "connect", made)
    return made


def test_a_quorum_is_told_by_names_with_how_far_each_is_behind(controllers: Controllers) -> None:
    admin = describe_cluster("kafka", needs=CHANGES).admin
    voters = {"kafka-1": 10, "kafka-2": 0, "kafka-3": 0}
    assert admin.quorum() == Quorum("kafka-2", 4, voters, {"kafka-5": 40})
    controllers.leader = -1
    with pytest.raises(EnvironmentNotReady, match="no controller leads"):
        admin.quorum()


def test_votes_are_given_and_taken_by_the_disk_that_the_leader_knows(
    controllers: Controllers,
) -> None:
    admin = describe_cluster("kafka", needs=CHANGES).admin
    assert admin.add_voter("kafka-5") == ""
    number, directory, host, port = controllers.asked.pop()
    assert (number, directory, host.rpartition(".")[2], port) == (5, UUID(int=5), "5", 19095)
    assert admin.remove_voter("kafka-2") == ""
    assert controllers.asked.pop() == (2, UUID(int=2))


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ((0, None), ""),
        ((126, "it votes already"), ""),
        ((127, "it has no vote"), ""),
        ((7, "5 is not caught up"), "5 is not caught up"),
        ((7, None), "RequestTimedOutError"),
    ],
)
def test_what_is_so_already_is_done_and_the_rest_in_the_brokers_words(
    controllers: Controllers, says: tuple[int, str | None], told: str
) -> None:
    controllers.says = says
    admin = describe_cluster("kafka", needs=CHANGES).admin
    assert (admin.add_voter("kafka-5"), admin.remove_voter("kafka-1")) == (told, told)


def test_one_that_does_not_follow_yet_gets_no_vote(controllers: Controllers) -> None:
    admin = describe_cluster("kafka", needs=CHANGES).admin
    assert admin.add_voter("kafka-4") == "kafka-4 does not follow the others yet"
    assert admin.remove_voter("kafka-4") == ""
    assert controllers.asked == []
