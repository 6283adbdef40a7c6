"""Faults on Pulsar's bundles and on client processes: steps, targets, storms, proofs of effect."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import faults
from faults.engine.ledger import Ledger, heal_from_ledger
from faults.kinds import KINDS
from faults.kinds.connection_close import ConnectionCloseParams, ConnectionsClosed
from faults.kinds.packet_loss import PacketLossParams, PacketsLost
from faults.kit.bundles import ServiceUnit
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.params import Inventory
from harness.errors import EnvironmentNotReady, ScenarioError
from harness.owners import marks_of
from harness.protocols.cluster import Endpoint, Node, PartitionState, TopicSettings
from harness.rundir import RunDir, read_jsonl
from harness.systems.pulsar.names import bundle_of, bundles_between
from tests.unit.fault_cluster import StateRuntime

NODES = {
    "broker-1": ("broker",),
    "broker-2": ("broker",),
    "bookie-1": ("bookie",),
    "zookeeper": ("zookeeper",),
}
TOPICS = [TopicSettings("orders", 1, 1), TopicSettings("clicks", 3, 1)]
INVENTORY = Inventory(tuple(TOPICS), tuple(sorted(NODES)), NODES)


class BundleAdmin:
    """HasTransfers, in memory: every unload gives a stream another ledger."""

    def __init__(self) -> None:
        self.boundaries = ["0x00000000", "0x80000000", "0xffffffff"]
        self.owner: dict[str, str | None] = dict.fromkeys(self._bundles(), "broker-1")
        self.loads: dict[str, int] = {}
        self.calls: list[str] = []
        self.fails = False
        self.deaf = False  # says done and does nothing

    def _bundles(self) -> list[str]:
        return bundles_between(self.boundaries)

    def registered(self) -> set[str]:
        return set(NODES)

    def controller(self) -> str | None:
        return "broker-1"

    def bundles_of(self, streams: Sequence[str]) -> dict[str, str]:
        return {stream: bundle_of(stream, self._bundles()) for stream in streams}

    def bundle_owners(self) -> dict[str, str | None]:
        return dict(self.owner)

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        streams = [f"{t.name}-{p}" for t in TOPICS if t.name in topics for p in range(t.partitions)]
        return {
            s: PartitionState(self.owner[b], (), ()) for s, b in self.bundles_of(streams).items()
        }

    def leaders(self, topic: str) -> dict[int, str | None]:
        return {
            int(s.rpartition("-")[2]): state.leader
            for s, state in self.partition_states([topic]).items()
        }

    def incarnation(self, stream: str) -> int:
        return self.loads.get(stream, 0)

    def _unload(self, name: str, streams: Sequence[str]) -> None:
        self.calls.append(name)
        if self.fails:
            raise EnvironmentNotReady("500 no")
        for stream in () if self.deaf else streams:
            self.loads[stream] = self.loads.get(stream, 0) + 1

    def unload_stream(self, stream: str) -> None:
        self._unload(stream, [stream])

    def _in(self, bundle: str) -> list[str]:
        every = [f"{t.name}-{p}" for t in TOPICS for p in range(t.partitions)]
        return [stream for stream, at in self.bundles_of(every).items() if at == bundle]

    def unload_bundle(self, bundle: str) -> None:
        self._unload(bundle, self._in(bundle))

    def unload_namespace(self) -> None:
        self._unload("namespace", [f"{t.name}-{p}" for t in TOPICS for p in range(t.partitions)])

    def transfer_bundle(self, bundle: str, to: str) -> None:
        self._unload(f"{bundle} to {to}", self._in(bundle))
        if not self.deaf:
            self.owner[bundle] = to

    def split_bundle(self, bundle: str) -> None:
        self._unload(f"split {bundle}", self._in(bundle))
        if not self.deaf:
            self.boundaries = sorted({*self.boundaries, "0x40000000", "0xc0000000"})
            self.owner = dict.fromkeys(self._bundles(), "broker-1")


class BundleCluster:
    system, version, bootstrap, admin_url = "state", "1", "", ""

    def request(self, port: str, ballast: int = 0) -> tuple[bytes, int] | None:
        return None

    def __init__(self) -> None:
        self.runtime = StateRuntime()
        end = Endpoint("127.0.0.1", 1)
        self.runtime.nodes = [
            Node(n, i, end, end, end, Path(), r) for i, (n, r) in enumerate(NODES.items())
        ]
        self.runtime.running = set(NODES)
        self.admin = BundleAdmin()


@pytest.fixture
def cluster() -> BundleCluster:
    return BundleCluster()


@pytest.fixture
def view(cluster: BundleCluster) -> ClusterView:
    return ClusterView(cluster, INVENTORY)  # type: ignore[arg-type]


def timeline(*steps: dict[str, Any]) -> faults.Timeline:
    return faults.compile(
        [{"at": 0, **s} for s in steps],
        faults.inventory_of(topics=TOPICS, nodes=NODES),
        seed=1,
        load_s=60,
    )


def injection(view: ClusterView, step: dict[str, Any], draw: int = 1) -> Any:
    firing = timeline(step).firings[0]
    kind = KINDS[firing.kind]
    return kind.prepare(firing.params, view, draw)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"fault": "unload", "target": "topic:order"}, r"no topic 'order'; did you mean orders"),
        ({"fault": "unload", "target": "bundle:0x1"}, "must be one of random, namespace"),
        ({"fault": "unload-storm", "gap": ["1s", "10ms"]}, "the shortest comes first"),
        ({"fault": "unload-storm", "target": "random"}, "must be one of topics"),
        ({"fault": "transfer", "target": "namespace"}, "must be random, bundle-of:TOPIC"),
        (
            {"fault": "transfer", "to": "bookie-1"},
            "no broker 'bookie-1'. Allowed: other, broker-1, broker-2",
        ),
        ({"fault": "split-bundle", "target": "topic:orders"}, "must be random, bundle-of:TOPIC"),
        (
            {"fault": "client-freeze", "target": "clients"},
            "must be client, client:producer, client:NAME",
        ),
        ({"fault": "client-freeze", "freeze": "1s"}, "longer than `freeze`"),
        ({"fault": "kill", "target": "role:bookies"}, "did you mean role:bookie"),
    ],
)
def test_a_bad_step_names_the_key_and_what_is_allowed(step: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        timeline(step)


def test_a_timeline_says_what_a_storm_does() -> None:
    steps = [
        {"fault": "unload-storm", "times": 9, "pairs": True},
        {"fault": "transfer", "to": "broker-2"},
    ]
    assert faults.describe(timeline(*steps)) == [
        "+0.0 s  unload-storm topics 9 pairs (gap 20 ms to 200 ms, pair_gap 20 ms to 150 ms)",
        "+0.0 s  transfer random to broker-2",
    ]


def test_random_and_all_mean_brokers_and_a_role_its_nodes(view: ClusterView) -> None:
    hit = {injection(view, {"fault": "kill"}, draw).targets for draw in range(20)}
    assert hit == {("broker-1",), ("broker-2",)}
    assert injection(view, {"fault": "pause", "target": "role:zookeeper"}).targets == ("zookeeper",)
    everybody = {"fault": "pause", "target": "all", "together": True}
    assert set(injection(view, everybody).targets) == {"broker-1", "broker-2"}
    assert injection(view, {"fault": "kill", "target": "owner-of:orders"}).targets == ("broker-1",)


@pytest.mark.parametrize(
    "target", ["topic:orders", "topic:clicks-1", "bundle-of:clicks", "namespace", "random"]
)
def test_an_unload_took_effect_when_streams_were_loaded_anew(
    view: ClusterView, target: str
) -> None:
    one = injection(view, {"fault": "unload", "target": target})
    assert not one.proof().effective
    one.apply()
    proof = one.proof()
    assert proof.effective
    assert proof.details["reloaded"]
    assert one.missing() == ""


def test_an_unload_that_changes_nothing_is_vacuous(
    cluster: BundleCluster, view: ClusterView
) -> None:
    cluster.admin.deaf = True
    one = injection(view, {"fault": "unload", "target": "namespace"})
    one.apply()
    assert not one.proof().effective


def test_a_storm_goes_round_all_topics_and_in_pairs(
    cluster: BundleCluster, view: ClusterView
) -> None:
    step = {
        "fault": "unload-storm",
        "times": 4,
        "pairs": True,
        "gap": [0, 0.001],
        "pair_gap": [0, 0.001],
    }
    one = injection(view, step)
    one.apply()
    assert cluster.admin.calls.count("orders-0") == 4, "two rounds of two topics, each twice"
    proof = one.proof()
    assert proof.effective
    assert (proof.details["done"], proof.details["failed"]) == (8, 0)


@pytest.mark.parametrize("draw", range(4))
def test_a_storm_shorter_than_a_round_is_judged_by_what_it_unloads(
    view: ClusterView, draw: int
) -> None:
    one = injection(view, {"fault": "unload-storm", "times": 1, "gap": [0, 0.001]}, draw)
    one.apply()
    proof = one.proof()
    assert proof.effective
    assert {stream.rpartition("-")[0] for stream in proof.details["looked_at"]} in (
        {"orders"},
        {"clicks"},
    )
    assert proof.details["reloaded"] == sorted(proof.details["looked_at"])


def test_a_storm_of_bundles_goes_round_those_that_hold_a_topic(
    cluster: BundleCluster, view: ClusterView
) -> None:
    step = {"fault": "unload-storm", "target": "bundles", "times": 6, "gap": [0, 0.001]}
    one = injection(view, step)
    one.apply()
    streams = [f"{topic.name}-{p}" for topic in TOPICS for p in range(topic.partitions)]
    used = set(cluster.admin.bundles_of(streams).values())
    counts = {bundle: cluster.admin.calls.count(bundle) for bundle in used}
    assert sum(counts.values()) == 6
    assert max(counts.values()) - min(counts.values()) <= 1
    assert one.proof().effective


def test_a_storm_goes_on_when_an_unload_fails_and_says_so(
    cluster: BundleCluster, view: ClusterView
) -> None:
    one = injection(view, {"fault": "unload-storm", "times": 3, "gap": [0, 0.001]})
    cluster.admin.fails = True
    with pytest.raises(EnvironmentNotReady, match="none of 3 unloads was carried out: 500 no"):
        one.apply()
    assert "3 failed" in one.proof().evidence


def test_a_storm_ends_when_everything_is_to_be_healed(view: ClusterView) -> None:
    one = injection(view, {"fault": "unload-storm", "times": 1000, "gap": ["1s", "1s"]})
    view.stopping.set()
    start = time.monotonic()
    one.apply()
    assert time.monotonic() - start < 60
    assert one.done == 1


@pytest.mark.parametrize("kind", ["unload", "unload-storm", "transfer", "split-bundle"])
def test_topics_that_were_closed_kept_their_acknowledgements(
    cluster: BundleCluster, view: ClusterView, kind: str
) -> None:
    step = {"fault": kind, "times": 1, "gap": [0, 0]} if kind == "unload-storm" else {"fault": kind}
    one = injection(view, step)
    assert one.confirmed_acks() == "unknown"
    one.apply()
    assert one.confirmed_acks() == "kept"
    cluster.admin.fails = True
    failed = injection(view, step)
    with pytest.raises(EnvironmentNotReady):
        failed.apply()
    assert failed.confirmed_acks() == "unknown"


def test_a_bookie_that_is_killed_is_no_broker_that_loses_acknowledgements(
    view: ClusterView,
) -> None:
    assert injection(view, {"fault": "kill", "target": "broker-1"}).confirmed_acks() == "at-risk"
    assert injection(view, {"fault": "kill", "target": "role:bookie"}).confirmed_acks() == "unknown"


def test_what_happens_to_clients_costs_a_broker_no_acknowledgements(view: ClusterView) -> None:
    view.clients = lambda: {"producer-1": 1}
    assert injection(view, {"fault": "client-freeze"}).confirmed_acks() == "kept"
    assert (
        ConnectionsClosed(view, ["producer-1"], [], ConnectionCloseParams()).confirmed_acks()
        == "kept"
    )
    assert (
        PacketsLost(view, ["broker-1"], PacketLossParams(link="clients")).confirmed_acks() == "kept"
    )
    assert (
        PacketsLost(view, ["broker-1"], PacketLossParams(link="all")).confirmed_acks() == "unknown"
    )


def test_a_transfer_took_effect_when_another_broker_owns_it(
    cluster: BundleCluster, view: ClusterView
) -> None:
    one = injection(view, {"fault": "transfer", "target": "bundle-of:orders"})
    one.apply()
    proof = one.proof()
    assert proof.effective
    assert proof.evidence == "owner broker-1 -> broker-2"
    assert proof.details["arrived"]
    cluster.admin.deaf = True  # brokers answer "done" also when they did not do it
    other = injection(view, {"fault": "transfer", "target": "bundle-of:orders"})
    other.apply()
    assert not other.proof().effective


def test_a_transfer_to_the_owner_is_skipped(view: ClusterView) -> None:
    with pytest.raises(FiringSkipped, match="broker-1 owns bundle"):
        injection(view, {"fault": "transfer", "target": "bundle-of:orders", "to": "broker-1"})


def test_a_split_took_effect_when_there_are_more_bundles(
    cluster: BundleCluster, view: ClusterView
) -> None:
    one = injection(view, {"fault": "split-bundle", "target": "bundle-of:orders"})
    one.apply()
    assert one.proof().details["bundles"] == [2, 4]
    cluster.admin.deaf = True
    again = injection(view, {"fault": "split-bundle", "target": "bundle-of:orders"})
    again.apply()
    assert not again.proof().effective


def test_a_service_unit_prints_as_it_is_written() -> None:
    assert str(ServiceUnit("namespace")) == "namespace"
    assert str(ServiceUnit("topic", "orders")) == "topic:orders"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = subprocess.Popen(argv, env={**os.environ, **marks_of("run")})
    yield child
    child.kill()
    child.wait()


def test_a_client_is_frozen_in_pulses_and_runs_afterwards(
    cluster: BundleCluster, process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    run = RunDir(tmp_path / "run").create()
    steps = timeline({"fault": "client-freeze", "for": "1s", "target": "client:producer"})
    injector = faults.Injector(steps, cluster, run)  # type: ignore[arg-type]
    injector.start(time.monotonic_ns(), lambda: {"producer-1": process.pid, "consumer-1": 1})
    injector.join(60)
    assert injector.heal_all(10) == []
    rows = {row["event"]: row for row in read_jsonl(run.faults)}
    assert rows["inject"]["targets"] == ["producer-1"]
    assert rows["effect"]["effective"], rows["effect"]
    assert rows["effect"]["details"]["pulses"] >= 1
    assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED
    assert Ledger(run).entries() == []


def test_a_freeze_left_by_a_killed_harness_is_healed_from_the_ledger(
    cluster: BundleCluster, view: ClusterView, process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    run = RunDir(tmp_path / "run").create()
    view.clients = lambda: {"producer-1": process.pid}
    one = injection(view, {"fault": "client-freeze"})
    Ledger(run).write(replace(one.ledger_entry(), id=1, kind="client-freeze"))
    psutil.Process(process.pid).suspend()
    assert heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED


def test_a_freeze_without_clients_is_skipped(view: ClusterView) -> None:
    with pytest.raises(FiringSkipped, match=r"no client runs; there are: none"):
        injection(view, {"fault": "client-freeze"})
