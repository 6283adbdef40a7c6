"""An injector from its first row to its last: order of events, claims on nodes, refusals, the
ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

import faults
from faults.engine.ledger import Ledger
from faults.kinds import KINDS
from faults.kit.cluster_view import ClusterView
from harness.contracts.rows import FaultEvent
from harness.errors import ScenarioError
from harness.protocols.cluster import PartitionState
from harness.protocols.members import Quorum
from harness.rundir import RunDir
from tests.unit.fault_cluster import NAMES, StateCluster
from tests.unit.fault_engine.rig import TOPICS, Rig, kill


def test_kill_from_inject_to_healed(cluster: StateCluster, run: RunDir) -> None:
    """A kill is healed to the moment, proved by then or not; here its node comes back once it is
    proved."""
    seen: list[str] = []
    proved, start = threading.Event(), cluster.runtime.start

    def listen(row: FaultEvent) -> None:
        seen.append(row.event)
        if row.event == "effect":
            proved.set()

    cluster.runtime.start = lambda node: (proved.wait(20), start(node))  # type: ignore[assignment, return-value]
    rig = Rig(cluster, run, kill(0.05, target="leader-of:orders-1"), on_event=listen)
    rig.injector.join(40)
    rows = {row["event"]: row for row in rig.rows()}  # a second effect row replaces the first
    inject, effect, heal, healed = (rows[event] for event in ("inject", "effect", "heal", "healed"))
    assert inject["kind"] == "kill"
    assert inject["target"] == "leader-of:orders-1"
    assert inject["targets"] == ["kafka-2"]
    assert inject["planned_s"] == 0.05
    assert (inject["t_ns"] - rig.epoch_ns) / 1e9 >= 0.05
    assert effect["effective"] is True
    assert effect["details"]["leaders_moved"] == 2
    assert "process gone; leaders of 2 partitions moved" in effect["evidence"]
    assert (heal["t_ns"] - inject["t_ns"]) / 1e9 >= 0.2
    assert healed["t_ns"] > heal["t_ns"]
    assert healed["ok"] is True
    assert cluster.runtime.calls == ["kill kafka-2", "start kafka-2"]
    assert (seen[0], set(seen)) == ("inject", set(rows))
    assert Ledger(run).entries() == []
    assert rig.injector.heal_all(1) == []


def test_the_ledger_is_written_before_and_struck_out_after(
    cluster: StateCluster, run: RunDir
) -> None:
    entries: list[Any] = []
    original = cluster.runtime.kill

    def kill_and_look(node: str) -> None:
        entries.extend(Ledger(run).entries())
        original(node)

    cluster.runtime.kill = kill_and_look  # type: ignore[method-assign]
    rig = Rig(cluster, run, kill(0.0, target="kafka-3"))
    rig.injector.join(20)
    assert [(e.id, e.kind, e.targets, e.down) for e in entries] == [
        (1, "kill", ("kafka-3",), ("kafka-3",))
    ]
    assert Ledger(run).entries() == []


def test_a_second_node_is_not_taken_away(cluster: StateCluster, run: RunDir) -> None:
    pause = {"fault": "pause", "at": 0.1, "for": 0.1, "target": "kafka-2"}
    rig = Rig(cluster, run, kill(0.0, 30, target="kafka-1"), pause)
    rig.wait_for("skipped")
    rig.injector.heal_all(5)
    (skipped,) = rig.rows("skipped")
    assert skipped["kind"] == "pause"
    assert skipped["reason"] == "kafka-1 is still away (fault 1); `together: true` allows it"
    assert "pause kafka-2" not in cluster.runtime.calls


def test_a_firing_may_wait_for_its_turn(cluster: StateCluster, run: RunDir) -> None:
    pause = {"fault": "pause", "at": 0.05, "for": 0.1, "target": "kafka-2", "wait": "20s"}
    rig = Rig(cluster, run, kill(0.0, 0.5, target="kafka-1"), pause)
    rig.injector.join(20)
    assert rig.rows("skipped") == []
    paused, whole = rig.rows("inject", 2)[0], rig.rows("healed", 1)[0]
    assert paused["t_ns"] > whole["t_ns"]
    assert paused["planned_s"] == 0.05


def test_who_waits_is_skipped_when_everything_heals(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(
        cluster, run, kill(0.0, 30, target="kafka-1"), kill(0.05, target="kafka-2", wait="20s")
    )
    rig.wait_for("effect")
    assert rig.injector.heal_all(10) == []
    assert len(rig.rows("skipped")) == 1
    assert "kill kafka-2" not in cluster.runtime.calls


def test_what_was_due_before_a_harness_came_is_left_out(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, kill(0.0, target="kafka-1"), kill(0.1, target="kafka-2"), since_s=0.05)
    rig.wait_for("healed")
    rig.injector.join(20)
    assert {row["id"] for row in rig.rows()} == {2}


def test_together_allows_it_but_never_the_same_node(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(
        cluster,
        run,
        kill(0.0, 30, target="kafka-1"),
        kill(0.1, 30, target="kafka-2", together=True),
        kill(0.15, 30, target="kafka-1", together=True),
    )
    rig.wait_for("skipped")
    rig.wait_for("effect", 2)
    assert rig.injector.heal_all(5) == []
    assert rig.events(2) == ["inject", "effect", "heal", "healed"]
    assert rig.rows("skipped")[0]["reason"] == "kafka-1 is held by fault 1"


def test_a_node_that_died_by_itself_counts_as_away(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.kill("kafka-3")
    rig = Rig(cluster, run, kill(0.0, target="kafka-1"))
    rig.injector.join(20)
    assert rig.rows("skipped")[0]["reason"].startswith("kafka-3 is not")


def test_a_target_that_died_by_itself_is_no_target(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.kill("kafka-3")
    rig = Rig(cluster, run, {"fault": "pause", "at": 0, "target": "kafka-3", "together": True})
    rig.injector.join(20)
    assert rig.rows("skipped")[0]["reason"] == "kafka-3 is not running, and no fault did that"


def test_a_follower_out_of_sync_counts_as_away(run: RunDir) -> None:
    cluster = StateCluster(join_s=30.0)
    cluster.runtime.changed_at["kafka-3"] = time.monotonic()  # came back just now
    rig = Rig(cluster, run, kill(0.0, target="kafka-1"))
    rig.injector.join(20)
    assert rig.rows("skipped")[0]["reason"].startswith("kafka-3 is not in sync for orders-0")


def test_all_together(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(
        cluster, run, {"fault": "pause", "at": 0, "for": 0.2, "target": "all", "together": True}
    )
    rig.injector.join(20)
    assert rig.rows("inject")[0]["targets"] == list(NAMES)
    assert cluster.runtime.paused == set()


@pytest.mark.parametrize("answers", [False, True])
def test_of_all_at_once_nobody_is_left_to_tell(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """That no broker answers is the proof then, as their clients see it."""

    def tell(node: str) -> bool:
        return answers or cluster.runtime.running == set(NAMES)

    monkeypatch.setattr(cluster.admin, "answers", tell, raising=False)
    end, begin = cluster.runtime.kill, cluster.runtime.start
    monkeypatch.setattr(
        cluster.runtime, "kill", lambda node: (cluster.admin.silent.set(), end(node))
    )
    monkeypatch.setattr(
        cluster.runtime, "start", lambda node: (begin(node), cluster.admin.silent.clear())
    )
    rig = Rig(cluster, run, kill(0.0, 0.5, target="all", together=True))
    rig.injector.join(20)
    evidence = rig.rows("effect")[0]["evidence"]
    assert ("process gone; no answer from kafka-1, kafka-2, kafka-3" in evidence) is not answers, (
        rig.rows()
    )


def test_random_is_seeded(cluster: StateCluster) -> None:
    def chosen(seed: int) -> list[str]:
        steps = [kill(at) for at in range(20)]
        timeline = faults.compile(
            steps, faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=seed, load_s=60
        )
        view = ClusterView(cluster, timeline.inventory)  # type: ignore[arg-type]
        kind, params = KINDS["kill"], KINDS["kill"].params.model_validate({})
        return [kind.prepare(params, view, firing.draw).targets[0] for firing in timeline.firings]

    assert chosen(7) == chosen(7) != chosen(8)
    assert set(chosen(7)) == set(NAMES)


def test_a_slow_admin_delays_no_other_firing(cluster: StateCluster, run: RunDir) -> None:
    answered, original = threading.Event(), cluster.admin.partition_states

    def slow_for_the_move(topics: Sequence[str]) -> dict[str, PartitionState]:
        if threading.current_thread().name == "fault-1":
            answered.wait(10)
        return original(topics)

    cluster.admin.partition_states = slow_for_the_move  # type: ignore[method-assign]
    rig = Rig(cluster, run, {"fault": "leader-move", "at": 0.0}, kill(0.05, 0.1, target="kafka-3"))
    rig.wait_for("healed")
    assert [row["id"] for row in rig.rows("inject")] == [2]
    answered.set()
    rig.injector.join(20)
    assert [row["id"] for row in rig.rows("inject")] == [2, 1]


def without_third(cluster: StateCluster) -> StateCluster:
    """Its third node may join, and holds nothing."""
    cluster.admin.order = {partition: ["kafka-1", "kafka-2"] for partition in cluster.admin.order}
    cluster.runtime.leave("kafka-3")
    cluster.admin.voters = {"kafka-1", "kafka-2"}
    return cluster


@pytest.mark.parametrize("look_s", [0.03, 0.3], ids=["one-look-or-two", "longer-than-the-fault"])
def test_a_heal_waits_until_the_effect_was_looked_for(look_s: float, run: RunDir) -> None:
    """A short fault whose heal takes back what its proof sees, on brokers that answer slowly."""
    cluster = without_third(StateCluster(fence_s=0.0, join_s=0.0))
    cluster.admin.blocked_s = look_s
    rig = Rig(cluster, run, {"fault": "add-controller", "at": 0, "for": 0.05})
    rig.injector.join(20)
    effect, heal = rig.rows("effect")[0], rig.rows("heal")[0]
    assert effect["effective"] is True, effect["evidence"]
    assert effect["t_ns"] <= heal["t_ns"]
    assert cluster.admin.voters == {"kafka-1", "kafka-2"}


def test_a_heal_does_not_wait_for_an_answer_that_never_comes(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = without_third(StateCluster(fence_s=0.0, join_s=0.0))
    monkeypatch.setattr("faults.engine.firing.PROOF_S", 0.2)
    asked, original = threading.Event(), cluster.admin.quorum

    def stuck() -> Quorum:
        if threading.current_thread().name == "fault-1-proof":
            asked.wait(10)
        return original()

    monkeypatch.setattr(cluster.admin, "quorum", stuck)
    rig = Rig(cluster, run, {"fault": "add-controller", "at": 0, "for": 0.05})
    rig.wait_for("healed")
    assert rig.rows("effect") == []
    asked.set()
    rig.injector.join(20)
    assert rig.rows("effect")[0]["effective"] is False


def test_a_cluster_that_does_not_say_whom_to_hit(cluster: StateCluster, run: RunDir) -> None:
    cluster.admin.silent.set()
    rig = Rig(cluster, run, kill(0.0, target="leader-of:orders"))
    rig.injector.join(20)
    assert "no broker answers" in rig.rows("skipped")[0]["reason"]
    assert cluster.runtime.calls == []


def test_a_broken_listener_keeps_nothing_from_healing(cluster: StateCluster, run: RunDir) -> None:
    def listener(row: object) -> None:
        raise RuntimeError("broken")

    rig = Rig(cluster, run, kill(0.0, 0.1), on_event=listener)
    rig.injector.join(20)
    assert cluster.runtime.running == set(NAMES)
    assert rig.events(1) == ["inject", "effect", "heal", "healed"] or rig.rows("healed")[0]["ok"]


def test_refused_before_anything_starts(cluster: StateCluster) -> None:
    timeline = faults.compile(
        [kill(1), {"fault": "leader-move", "at": 2}],
        faults.inventory_of(topics=TOPICS, nodes=NAMES),
        seed=1,
        load_s=9,
    )
    faults.refuse_unsupported(timeline, cluster)  # type: ignore[arg-type]

    class NoAdmin(StateCluster):
        def __init__(self) -> None:
            super().__init__()
            self.admin = object()  # type: ignore[assignment]

    said = "kill needs a cluster that can tell which node leads or owns what; this state cluster cannot"
    with pytest.raises(ScenarioError, match=rf"faults\[0\]\.fault: {said}"):
        faults.refuse_unsupported(timeline, NoAdmin())  # type: ignore[arg-type]
