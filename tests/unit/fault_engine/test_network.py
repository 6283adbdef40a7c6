"""Network faults on a cluster that is only state: the proof of their effect, and of its end."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import faults
from faults.engine.ledger import Ledger
from faults.kinds.partition import PartitionParams
from faults.kit.answers import ChangedAnswers
from harness.clusters.network.proxied import ProtocolFacts
from harness.errors import HealError, ScenarioError
from harness.protocols.cluster import Endpoint
from harness.protocols.network import (
    AUDIT,
    CLIENTS,
    PRODUCERS,
    AnswerChange,
    Answered,
    Flow,
    HasDetours,
    How,
    Impairment,
    Wire,
)
from harness.rundir import RunDir
from harness.systems import SYSTEMS
from tests.unit.fault_cluster import NAMES, StateCluster
from tests.unit.fault_engine.rig import TOPICS, Rig


class StateDetours:
    """HasDetours as a dictionary; ``deaf`` wires never answer."""

    def __init__(self, sides: Sequence[str] = ("clients", "peers")) -> None:
        end = {"client": Endpoint("127.0.0.1", 1)}
        pairs = [(CLIENTS, node) for node in NAMES if "clients" in sides]
        clients = [side for side in sides if side not in ("clients", "peers")]
        pairs += [(client, node) for client in clients for node in NAMES]
        pairs += [(a, b) for a in NAMES for b in NAMES if a != b and "peers" in sides]
        self._wires = [Wire(source, target, end) for source, target in pairs]
        self.applied: dict[str, tuple[list[Flow], Impairment]] = {}
        self.deaf: set[str] = set()
        self.ignored = False
        self.between_peers: Sequence[str] = ("hold", "swallow", "delay", "throttle", "reset")
        self.repairs_fail = 0
        self.connected: set[str] = set()

    def why_not(self, link: str, how: How) -> str:
        return (
            "peers can only be held" if link != "clients" and how not in self.between_peers else ""
        )

    def wires(self) -> Sequence[Wire]:
        return self._wires

    def connect(self, wire: Wire, port: str, timeout_s: float) -> socket.socket:
        raise AssertionError("measured by `measure`")

    def impair(self, name: str, flows: Iterable[Flow], impairment: Impairment) -> None:
        self.applied[name] = (list(flows), impairment)

    def repair(self, name: str) -> None:
        if self.repairs_fail:
            self.repairs_fail -= 1
            raise HealError("the proxy does not answer")
        self.applied.pop(name, None)

    def is_impaired(self, name: str) -> bool:
        return name in self.applied

    def found_by(self, wires: Iterable[Wire]) -> set[str]:
        return self.connected & {wire.source for wire in wires}

    def measure(
        self, request: object, wires: Sequence[Wire], **more: object
    ) -> dict[str, float | None]:
        return {str(wire): self._took_s(wire) for wire in wires}

    def _took_s(self, wire: Wire) -> float | None:
        took_s: float = 0.001
        if str(wire) in self.deaf:
            return None
        for flows, impairment in self.applied.values():
            hit = any(str(flow.wire) == str(wire) for flow in flows) and not self.ignored
            if hit and impairment.how != "delay":
                return None
            took_s += impairment.delay_s if hit else 0.0
        return took_s


class AnsweringDetours(ProtocolFacts, StateDetours):
    """ChangesAnswers, too: every rule has met one request."""

    def __init__(self, sides: Sequence[str]) -> None:
        ProtocolFacts.__init__(self, "kafka")
        StateDetours.__init__(self, sides)
        self.hit: set[str] = set()

    def impair(self, name: str, flows: Iterable[Flow], impairment: Impairment) -> None:
        super().impair(name, flows, impairment)
        self.hit = {flow.wire.source for flow in self.applied[name][0]}

    def answered(self, name: str) -> Answered:
        return Answered(seen=1, met=1)


@pytest.fixture
def detours(cluster: StateCluster, monkeypatch: pytest.MonkeyPatch) -> StateDetours:
    made = StateDetours()
    cluster.runtime.detours = made  # type: ignore[attr-defined]
    monkeypatch.setattr("faults.kit.network.measure", made.measure)
    assert isinstance(made, HasDetours)
    return made


def test_a_partition_is_proved_by_silence_and_healed(
    cluster: StateCluster, detours: StateDetours, run: RunDir
) -> None:
    rig = Rig(cluster, run, {"fault": "partition", "target": "kafka-2", "at": 0, "for": 0.2})
    rig.injector.join(20)
    (effect,), (healed,) = rig.rows("effect"), rig.rows("healed")
    assert effect["effective"]
    assert "no answer on 1 of 1 wires (clients -> kafka-2)" in effect["evidence"]
    assert healed["ok"]
    assert detours.applied == {}


def test_latency_says_how_much(cluster: StateCluster, detours: StateDetours, run: RunDir) -> None:
    step = {"fault": "latency", "target": "kafka-1", "delay": 0.2, "at": 0, "for": 0.2}
    rig = Rig(cluster, run, step)
    rig.injector.join(20)
    assert "a request takes 201 ms, 1 ms before" in rig.rows("effect")[0]["evidence"]


def test_answers_to_readers_of_the_log_are_not_changed(cluster: StateCluster, run: RunDir) -> None:
    """They are the evidence of a run: damaged on their way, messages look lost and corrupt."""
    made = AnsweringDetours((CLIENTS, PRODUCERS, AUDIT))
    cluster.runtime.detours = made  # type: ignore[attr-defined]
    step = {"fault": "wrong-bytes", "target": "kafka-1", "requests": ["Fetch"], "at": 0, "for": 0.2}
    rig = Rig(cluster, run, step)
    rig.injector.join(20)
    assert rig.rows("effect")[0]["effective"]
    assert made.hit == {CLIENTS, PRODUCERS}


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize(
    ("link", "source"),
    [("producers", PRODUCERS), ("application:billing", "application-billing-2")],
)
def test_a_fault_on_some_clients_took_effect_only_if_one_was_connected(
    cluster: StateCluster,
    run: RunDir,
    monkeypatch: pytest.MonkeyPatch,
    link: str,
    source: str,
    connected: bool,
) -> None:
    made = StateDetours(("clients", PRODUCERS, source))
    made.connected = {source} if connected else set()
    cluster.runtime.detours = made  # type: ignore[attr-defined]
    monkeypatch.setattr("faults.kit.network.measure", made.measure)
    step = {
        "fault": "latency",
        "target": "kafka-1",
        "link": link,
        "delay": 0.2,
        "at": 0,
        "for": 0.2,
    }
    rig = Rig(cluster, run, step)
    rig.injector.join(20)
    (effect,) = rig.rows("effect")
    said = f"before ({source} -> kafka-1)" if connected else f"no connection of {link} was seen"
    assert effect["effective"] == connected
    assert said in effect["evidence"]


def test_the_evidence_names_the_instances_that_are_hit_and_those_that_started_later(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Growing(StateDetours):
        """An instance starts while the fault lasts, as `scale` does it."""

        def impair(self, name: str, flows: Iterable[Flow], impairment: Impairment) -> None:
            super().impair(name, flows, impairment)
            end = self._wires[0].endpoints
            self._wires.append(Wire("application-billing-3", "kafka-1", end))

    made = Growing(("application-billing-1", "application-billing-2"))
    made.connected = {"application-billing-1"}
    cluster.runtime.detours = made  # type: ignore[attr-defined]
    monkeypatch.setattr("faults.kit.network.measure", made.measure)
    step = {"fault": "partition", "target": "kafka-1", "link": "applications", "at": 0, "for": 0.2}
    rig = Rig(cluster, run, step)
    rig.injector.join(20)
    evidence = rig.rows("effect")[0]["evidence"]
    assert "hits application-billing-1, application-billing-2" in evidence
    assert "not application-billing-3, started later" in evidence


def test_what_nobody_notices_is_vacuous(
    cluster: StateCluster, detours: StateDetours, run: RunDir
) -> None:
    detours.ignored = True
    rig = Rig(cluster, run, {"fault": "blackhole", "target": "kafka-1", "at": 0, "for": 0.2})
    rig.injector.join(20)
    assert rig.rows("effect")[0]["effective"] is False
    assert "no effect was observed" in rig.rows("effect")[0]["evidence"]


def test_a_wire_that_was_silent_before_proves_nothing(
    cluster: StateCluster, detours: StateDetours, run: RunDir
) -> None:
    detours.deaf.add("clients -> kafka-1")
    rig = Rig(cluster, run, {"fault": "partition", "target": "kafka-1", "at": 0, "for": 0.2})
    rig.injector.join(20)
    assert "no answer from clients -> kafka-1 before" in rig.rows("skipped")[0]["reason"]
    assert detours.applied == {}


def test_a_node_that_has_not_joined_is_not_asked(
    cluster: StateCluster, detours: StateDetours, run: RunDir
) -> None:
    spare = Wire("kafka-1", "kafka-4", {"client": Endpoint("127.0.0.1", 1)})
    detours._wires.append(spare)
    detours.deaf.add(str(spare))
    rig = Rig(
        cluster,
        run,
        {"fault": "partition", "target": "kafka-1", "link": "peers", "at": 0, "for": 0.2},
    )
    rig.injector.join(20)
    assert "no answer on 4 of 4 wires" in rig.rows("effect")[0]["evidence"]


def test_a_node_cut_from_its_peers_is_away_and_one_cut_from_clients_is_not(
    cluster: StateCluster, detours: StateDetours, run: RunDir
) -> None:
    rig = Rig(
        cluster,
        run,
        {"fault": "partition", "target": "kafka-1", "at": 0, "for": 30},
        {"fault": "partition", "target": "kafka-2", "link": "peers", "at": 0, "for": 30},
        {"fault": "kill", "target": "kafka-3", "at": 50, "for": 0.1},
    )
    rig.wait_for("inject", 2)
    rig.fire_last()
    rig.wait_for("skipped")
    assert rig.injector.heal_all(20) == []
    skipped = rig.rows("skipped")[0]
    assert skipped["kind"] == "kill"
    assert "kafka-2 is still away" in skipped["reason"]


@pytest.mark.parametrize("shape", ["ring", "bridge"])
def test_shapes_of_many_can_be_replayed(
    cluster: StateCluster, detours: StateDetours, run: RunDir, shape: str
) -> None:
    step = {"fault": "partition", "shape": shape, "link": "peers", "at": 0, "for": 0.2}
    rig = Rig(cluster, run, step)
    rig.injector.join(20)
    (inject,) = rig.rows("inject")
    assert rig.rows("effect")[0]["effective"]
    assert len(inject["targets"]) == (3 if shape == "ring" else 2)
    PartitionParams.model_validate(inject["params"])


def test_one_that_a_killed_process_left_is_healed_from_the_ledger(
    cluster: StateCluster, detours: StateDetours, run: RunDir
) -> None:
    row = faults.inject_once("blackhole", {"target": "kafka-1"}, cluster, run, None)  # type: ignore[arg-type]
    assert row.is_applied
    assert tuple(detours.applied) == Ledger(run).entries()[0].impaired
    detours.repairs_fail = 1
    assert "does not answer" in faults.heal_from_ledger(cluster, run)[0]  # type: ignore[arg-type]
    assert faults.heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert detours.applied == {}
    assert Ledger(run).entries() == []


def test_a_heal_that_fails_is_tried_again(
    cluster: StateCluster, detours: StateDetours, run: RunDir
) -> None:
    detours.repairs_fail = 2
    rig = Rig(cluster, run, {"fault": "connection-reset", "target": "kafka-1", "at": 0, "for": 0.1})
    rig.injector.join(20)
    assert rig.rows("healed")[0]["ok"]


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (("clients",), "not started with detours for peers"),
        (("peers",), "not started with detours for clients"),
        (("clients", "peers"), "not started with detours for producers"),
    ],
)
def test_a_cluster_without_the_detours_of_a_link_is_refused(
    sides: tuple[str, ...], said: str
) -> None:
    cluster = StateCluster()
    cluster.runtime.detours = StateDetours(sides)  # type: ignore[attr-defined]
    link = said.split()[-1]
    steps = [{"fault": "partition", "link": link, "at": 1}]
    timeline = faults.compile(
        steps, faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=1, load_s=60
    )
    with pytest.raises(ScenarioError, match=said) as caught:
        faults.refuse_unsupported(timeline, cluster)  # type: ignore[arg-type]
    assert "up --needs" in caught.value.hint


@pytest.mark.parametrize("kind", ["latency", "bandwidth", "blackhole", "connection-reset"])
def test_a_kind_that_is_never_possible_between_these_nodes_is_refused_by_name(kind: str) -> None:
    cluster = StateCluster()
    cluster.request = SYSTEMS["kafka"].request  # type: ignore[method-assign]
    made = StateDetours()
    made.between_peers = ("hold",)
    cluster.runtime.detours = made  # type: ignore[attr-defined]

    def refuse(**step: str) -> None:
        steps = [{"fault": kind, "at": 1, **step}]
        timeline = faults.compile(
            steps, faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=1, load_s=60
        )
        faults.refuse_unsupported(timeline, cluster)  # type: ignore[arg-type]

    refuse(link="clients")
    for link in ("peers", "all"):
        with pytest.raises(
            ScenarioError, match=f"{kind} is not possible .* peers can only be held"
        ):
            refuse(link=link)
    kind = "partition"
    refuse(link="all")


def test_bandwidth_is_refused_where_nothing_can_prove_it() -> None:
    cluster = StateCluster()
    cluster.runtime.detours = StateDetours()  # type: ignore[attr-defined]
    steps = [{"fault": "bandwidth", "at": 1}]
    timeline = faults.compile(
        steps, faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=1, load_s=60
    )
    with pytest.raises(ScenarioError, match="no known request of state is long enough"):
        faults.refuse_unsupported(timeline, cluster)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["partition", "latency", "blackhole", "connection-reset"])
@pytest.mark.parametrize(
    ("link", "said"), [("clients", "kept"), ("peers", "unknown"), ("all", "unknown")]
)
def test_a_broker_that_only_clients_cannot_reach_keeps_its_acknowledgements(
    cluster: StateCluster, detours: StateDetours, run: RunDir, kind: str, link: str, said: str
) -> None:
    rig = Rig(
        cluster, run, {"fault": kind, "target": "kafka-2", "link": link, "at": 0, "for": 0.05}
    )
    rig.injector.join(20)
    assert [rig.rows(event)[0]["confirmed_acks"] for event in ("inject", "healed")] == [said, said]


def test_a_broker_that_was_replaced_while_it_was_cut_off_may_have_lost_some(
    cluster: StateCluster, detours: StateDetours, run: RunDir
) -> None:
    step = {"fault": "partition", "target": "kafka-1", "link": "peers", "at": 0, "for": 0.3}
    rig = Rig(cluster, run, step)
    rig.wait_for("inject")
    cluster.admin.leader = dict.fromkeys(range(6), "kafka-2")
    rig.injector.join(20)
    assert rig.rows("healed")[0]["confirmed_acks"] == "at-risk"


@pytest.mark.parametrize(
    ("change", "kind", "permits"),
    [
        (AnswerChange("error", error="PersistenceError", instead=True), "SEND", "overtake"),
        (AnswerChange("error", error="PersistenceError", before=True), "SEND", "overtake"),
        (AnswerChange("error", error="PersistenceError"), "SEND", ""),
        (AnswerChange("error", error="TopicTerminatedError", instead=True), "SEND", "give-up"),
        (AnswerChange("error", error="ServiceNotReady", instead=True), "LOOKUP", ""),
        (AnswerChange("drop", instead=True), "SEND", "overtake"),
        (AnswerChange("drop", instead=True, close=True), "SEND", ""),  # nothing came after it
    ],
)
def test_a_message_that_a_broker_of_pulsar_did_not_get_may_be_overtaken(
    change: AnswerChange, kind: str, permits: str
) -> None:
    found: Any = ChangedAnswers.__new__(ChangedAnswers)
    found.view = SimpleNamespace(ability=lambda _: ProtocolFacts("pulsar"))
    found.params = SimpleNamespace(requests=[kind])
    assert found._permits(change) == permits
