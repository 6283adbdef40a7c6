"""The engine on a cluster that is only state: order of events, claims, heals on every path, the ledger."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import faults
from faults.kinds import KINDS
from faults.ledger import Ledger
from faults.site import Site
from harness.errors import HealError, ScenarioError, UsageError
from harness.protocols import PartitionState, TopicSettings
from harness.rundir import RunDir, read_jsonl, write_json
from tests.unit.fault_cluster import NAMES, StateCluster

TOPICS = [TopicSettings("orders", 6, 3)]


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("site", "life", "prover"):
        monkeypatch.setattr(f"faults.{module}.POLL_S", 0.01)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run").create()


@pytest.fixture
def cluster() -> StateCluster:
    return StateCluster()


class Rig:
    """A storm that started, and what it wrote."""

    def __init__(self, cluster: StateCluster, run: RunDir, *steps: dict[str, Any], **more: Any) -> None:
        self.run = run
        timeline = faults.compile(list(steps), seed=7, load_s=60, topics=TOPICS, nodes=NAMES)
        self.storm = faults.Storm(timeline, cluster, run, **more)  # type: ignore[arg-type]
        self.epoch_ns = time.monotonic_ns()
        self.storm.start(self.epoch_ns)

    def rows(self, event: str = "", fault_id: int = 0) -> list[dict[str, Any]]:
        rows = read_jsonl(self.run.faults)
        return [r for r in rows if event in ("", r["event"]) and fault_id in (0, r["id"])]

    def events(self, fault_id: int) -> list[str]:
        return [row["event"] for row in self.rows(fault_id=fault_id)]

    def wait_for(self, event: str, count: int = 1) -> None:
        deadline = time.monotonic() + 20
        while len(self.rows(event)) < count:
            assert time.monotonic() < deadline, f"no {event} in {self.rows()}"
            time.sleep(0.005)


def kill(at: float, seconds: float = 0.2, **more: Any) -> dict[str, Any]:
    return {"fault": "kill", "at": at, "for": seconds, **more}


def test_kill_from_inject_to_healed(cluster: StateCluster, run: RunDir) -> None:
    seen: list[str] = []
    rig = Rig(
        cluster, run, kill(0.05, target="leader-of:orders-1"), on_event=lambda row: seen.append(row["event"])
    )
    rig.storm.join(20)
    inject, effect, heal, healed = rig.rows()
    assert inject["kind"] == "kill"
    assert inject["target"] == "leader-of:orders-1"
    assert inject["targets"] == ["kafka-2"]
    assert inject["planned_s"] == 0.05
    assert (inject["t_ns"] - rig.epoch_ns) / 1e9 >= 0.05
    assert effect["effective"] is True
    assert effect["details"]["leaders_moved"] == 2
    assert "process gone; leaders of 2 partitions moved" in effect["evidence"]
    assert (heal["t_ns"] - inject["t_ns"]) / 1e9 >= 0.2
    assert healed["ok"] is True
    assert cluster.runtime.calls == ["kill kafka-2", "start kafka-2"]
    assert seen == ["inject", "effect", "heal", "healed"]
    assert Ledger(run).entries() == []
    assert rig.storm.heal_all(1) == []


def test_the_ledger_is_written_before_and_struck_out_after(cluster: StateCluster, run: RunDir) -> None:
    entries: list[Any] = []
    original = cluster.runtime.kill

    def kill_and_look(node: str) -> None:
        entries.extend(Ledger(run).entries())
        original(node)

    cluster.runtime.kill = kill_and_look  # type: ignore[method-assign]
    rig = Rig(cluster, run, kill(0.0, target="kafka-3"))
    rig.storm.join(20)
    assert [(e["id"], e["kind"], e["targets"], e["down"]) for e in entries] == [
        (1, "kill", ["kafka-3"], ["kafka-3"])
    ]
    assert Ledger(run).entries() == []


def test_a_second_node_is_not_taken_away(cluster: StateCluster, run: RunDir) -> None:
    pause = {"fault": "pause", "at": 0.1, "for": 0.1, "target": "kafka-2"}
    rig = Rig(cluster, run, kill(0.0, 30, target="kafka-1"), pause)
    rig.wait_for("skipped")
    rig.storm.heal_all(5)
    (skipped,) = rig.rows("skipped")
    assert skipped["kind"] == "pause"
    assert skipped["reason"] == "kafka-1 is still away (fault 1); `together: true` allows it"
    assert "pause kafka-2" not in cluster.runtime.calls


def test_a_firing_may_wait_for_its_turn(cluster: StateCluster, run: RunDir) -> None:
    pause = {"fault": "pause", "at": 0.05, "for": 0.1, "target": "kafka-2", "wait": "20s"}
    rig = Rig(cluster, run, kill(0.0, 0.5, target="kafka-1"), pause)
    rig.storm.join(20)
    assert rig.rows("skipped") == []
    paused, whole = rig.rows("inject", 2)[0], rig.rows("healed", 1)[0]
    assert paused["t_ns"] > whole["t_ns"]
    assert paused["planned_s"] == 0.05


def test_who_waits_is_skipped_when_everything_heals(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, kill(0.0, 30, target="kafka-1"), kill(0.05, target="kafka-2", wait="20s"))
    rig.wait_for("effect")
    assert rig.storm.heal_all(10) == []
    assert len(rig.rows("skipped")) == 1
    assert "kill kafka-2" not in cluster.runtime.calls


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
    assert rig.storm.heal_all(5) == []
    assert rig.events(2) == ["inject", "effect", "heal", "healed"]
    assert rig.rows("skipped")[0]["reason"] == "kafka-1 is still faulted by fault 1"


def test_a_node_that_died_by_itself_counts_as_away(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.kill("kafka-3")
    rig = Rig(cluster, run, kill(0.0, target="kafka-1"))
    rig.storm.join(20)
    assert rig.rows("skipped")[0]["reason"].startswith("kafka-3 is not")


def test_a_target_that_died_by_itself_is_no_target(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.kill("kafka-3")
    rig = Rig(cluster, run, {"fault": "pause", "at": 0, "target": "kafka-3", "together": True})
    rig.storm.join(20)
    assert rig.rows("skipped")[0]["reason"] == "kafka-3 is not running, and no fault did that"


def test_a_follower_out_of_sync_counts_as_away(run: RunDir) -> None:
    cluster = StateCluster(join_s=30.0)
    cluster.runtime.changed_at["kafka-3"] = time.monotonic()  # came back just now
    rig = Rig(cluster, run, kill(0.0, target="kafka-1"))
    rig.storm.join(20)
    assert rig.rows("skipped")[0]["reason"].startswith("kafka-3 is not in sync for orders-0")


def test_all_together(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "pause", "at": 0, "for": 0.2, "target": "all", "together": True})
    rig.storm.join(20)
    assert rig.rows("inject")[0]["targets"] == list(NAMES)
    assert cluster.runtime.paused == set()


def test_random_is_seeded(cluster: StateCluster) -> None:
    def chosen(seed: int) -> list[str]:
        steps = [kill(at) for at in range(20)]
        timeline = faults.compile(steps, seed=seed, load_s=60, topics=TOPICS, nodes=NAMES)
        site = Site(cluster, timeline.shape)  # type: ignore[arg-type]
        kind, params = KINDS["kill"], KINDS["kill"].params.model_validate({})
        return [kind.prepare(params, site, firing.draw).targets[0] for firing in timeline.firings]

    assert chosen(7) == chosen(7) != chosen(8)
    assert set(chosen(7)) == set(NAMES)


def test_pause_that_moves_nothing_is_vacuous(run: RunDir) -> None:
    rig = Rig(StateCluster(fence_s=30.0, join_s=0.0), run, {"fault": "pause", "at": 0, "for": 0.1})
    rig.storm.join(20)
    (effect,) = rig.rows("effect")
    assert effect["effective"] is False
    assert "but no leader moved and no ISR shrank" in effect["evidence"]


def test_restart_counts_down_after_the_stop(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.stop_takes_s = 0.15
    rig = Rig(cluster, run, {"fault": "restart", "at": 0, "down": 0.1, "target": "controller"})
    rig.storm.join(20)
    inject, heal = rig.rows("inject")[0], rig.rows("heal")[0]
    assert inject["targets"] == ["kafka-1"]
    assert (heal["t_ns"] - inject["t_ns"]) / 1e9 >= 0.25
    assert rig.rows("effect")[0]["effective"] is True
    assert cluster.runtime.calls == ["stop kafka-1", "start kafka-1"]


def test_controller_kill(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "controller-kill", "at": 0, "for": 0.2})
    rig.storm.join(20)
    assert rig.rows("inject")[0]["targets"] == ["kafka-1"]
    assert rig.rows("effect")[0]["details"]["controller"] == "kafka-1 -> kafka-2"


def test_rolling_restart_takes_one_after_the_other(cluster: StateCluster, run: RunDir) -> None:
    away: list[set[str]] = []
    original = cluster.runtime.stop

    def stop_and_look(node: str, *, timeout_s: float = 30.0) -> None:
        away.append(set(NAMES) - cluster.admin.registered())
        original(node, timeout_s=timeout_s)

    cluster.runtime.stop = stop_and_look  # type: ignore[method-assign]
    cluster.admin.fence_s = 0.0  # an orderly stop hands over at once
    rig = Rig(cluster, run, {"fault": "rolling-restart", "at": 0})
    rig.storm.join(10)
    assert cluster.runtime.calls == [f"{call} {node}" for node in NAMES for call in ("stop", "start")]
    assert away == [set(), set(), set()]
    (effect,) = rig.rows("effect")
    assert effect["effective"] is True, effect
    assert effect["evidence"].startswith("3 of 3 nodes restarted: kafka-1 back in sync after")
    assert rig.rows("healed")[0]["ok"] is True


def test_rolling_restart_stops_rolling_when_everything_heals(run: RunDir) -> None:
    cluster = StateCluster(join_s=0.3)
    rig = Rig(cluster, run, {"fault": "rolling-restart", "at": 0})
    rig.wait_for("inject")
    assert rig.storm.heal_all(5) == []
    assert cluster.runtime.running == set(NAMES)
    assert "stop kafka-3" not in cluster.runtime.calls
    assert rig.rows("effect")[0]["effective"] is False


def test_leader_move_is_proved_by_who_leads(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "leader-move", "topic": "orders", "partitions": 4, "at": 0})
    rig.storm.join(20)
    (effect,) = rig.rows("effect")
    assert effect["details"]["moved"] == 4
    moves = rig.rows("inject")[0]["params"]["moves"]
    assert {p: cluster.admin.leader[int(p)] for p in moves} == moves
    assert all(old != new for old, new in effect["details"]["leaders"].values())
    assert rig.events(1) == ["inject", "effect", "heal", "healed"]


def test_leader_move_that_nobody_carried_out(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.life.PROOF_S", 0.1)
    cluster.admin.moves_ignored = True
    rig = Rig(cluster, run, {"fault": "leader-move", "at": 0})
    rig.storm.join(20)
    assert rig.rows("effect")[0]["effective"] is False
    assert rig.rows("effect")[0]["evidence"] == "0 of 6 leaders changed"


def test_leader_move_goes_to_nodes_that_can_lead(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, kill(0.0, 30, target="kafka-1"), {"fault": "leader-move", "at": 0.3})
    rig.wait_for("inject", 2)
    rig.storm.heal_all(5)
    moves = rig.rows("inject", 2)[0]["params"]["moves"]
    assert moves
    assert "kafka-1" not in moves.values()


def test_preferred_election(cluster: StateCluster, run: RunDir) -> None:
    cluster.admin.leader = dict.fromkeys(range(6), "kafka-1")
    rig = Rig(
        cluster, run, {"fault": "preferred-election", "at": 0}, {"fault": "preferred-election", "at": 0.5}
    )
    rig.storm.join(20)
    assert rig.rows("inject")[0]["targets"] == ["orders-1", "orders-2", "orders-4", "orders-5"]
    assert rig.rows("effect")[0]["effective"] is True
    assert "already" in rig.rows("skipped")[0]["reason"]


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
    rig.storm.join(20)
    assert [row["id"] for row in rig.rows("inject")] == [2, 1]


def test_a_cluster_that_does_not_say_whom_to_hit(cluster: StateCluster, run: RunDir) -> None:
    cluster.admin.silent.set()
    rig = Rig(cluster, run, kill(0.0, target="leader-of:orders"))
    rig.storm.join(20)
    assert "no broker answers" in rig.rows("skipped")[0]["reason"]
    assert cluster.runtime.calls == []


def test_heal_all_heals_at_once_and_again_does_nothing(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, kill(0.0, 300.0), kill(55.0))
    rig.wait_for("effect")
    start = time.monotonic()
    assert rig.storm.heal_all(60) == []
    assert time.monotonic() - start < 60
    calls = list(cluster.runtime.calls)
    assert rig.storm.heal_all(5) == []
    assert cluster.runtime.calls == calls
    assert rig.rows("healed")[0]["ok"] is True
    assert rig.rows("skipped")[0]["reason"] == "the run stopped before it was due"
    assert Ledger(run).entries() == []


def test_heal_all_before_start_and_without_faults(cluster: StateCluster, run: RunDir) -> None:
    timeline = faults.compile([], seed=1, load_s=10, topics=TOPICS, nodes=NAMES)
    storm = faults.Storm(timeline, cluster, run)  # type: ignore[arg-type]
    assert storm.heal_all(1) == []
    storm.join(1)
    storm.stop()


def test_heal_all_from_several_threads(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "pause", "at": 0.0, "for": 30})
    rig.wait_for("inject")
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(rig.storm.heal_all(5))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert results == [[], [], []]
    assert cluster.runtime.paused == set()
    assert len(rig.rows("healed")) == 1


def test_what_recovers_late_is_undone_and_no_failure(run: RunDir) -> None:
    """The node runs again: nothing is left behind, even if there is no time to wait for the ISR."""
    cluster = StateCluster(join_s=30.0)
    cluster.admin.join_s = 0.0
    rig = Rig(cluster, run, kill(0.0, 30.0))
    rig.wait_for("effect")
    cluster.admin.join_s = 30.0
    assert rig.storm.heal_all(0.3) == []
    assert cluster.runtime.running == set(NAMES)
    (healed,) = rig.rows("healed")
    assert healed["ok"] is False
    assert healed["evidence"].startswith("undone, but the cluster did not recover in time: kafka-")
    assert Ledger(run).entries() == []


def test_who_is_in_a_hurry_does_not_wait_for_the_cluster(run: RunDir) -> None:
    cluster, hurry = StateCluster(join_s=0.0), threading.Event()
    rig = Rig(cluster, run, kill(0.0, 30.0), hurry=hurry)
    rig.wait_for("effect")
    cluster.admin.join_s = 300.0
    threading.Timer(0.2, hurry.set).start()
    start = time.monotonic()
    assert rig.storm.heal_all(200) == []
    assert time.monotonic() - start < 100
    assert cluster.runtime.running == set(NAMES)


def test_a_stop_that_comes_while_healing_shortens_the_wait(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.storm.STOPPING_S", 0.5)
    cluster, stopping = StateCluster(join_s=0.0), threading.Event()
    rig = Rig(cluster, run, kill(0.0, 30.0), stopping=stopping)
    rig.wait_for("effect")
    cluster.admin.join_s = 300.0
    threading.Timer(0.2, stopping.set).start()
    start = time.monotonic()
    assert rig.storm.heal_all(300) == []
    assert time.monotonic() - start < 100
    assert cluster.runtime.running == set(NAMES)
    assert rig.rows("healed")[0]["ok"] is False


def test_a_stop_that_takes_longer_than_there_is_time(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.stop_takes_s = 2.0
    rig = Rig(cluster, run, {"fault": "restart", "at": 0, "target": "kafka-1"})
    rig.wait_for("inject")
    (failure,) = rig.storm.heal_all(0.1)
    assert failure.startswith("fault 1 (restart kafka-1): still being applied")
    assert len(Ledger(run).entries()) == 1
    rig.storm.join(20)
    assert cluster.runtime.running == set(NAMES)
    assert rig.storm.heal_all(1) == []
    assert Ledger(run).entries() == []


def test_a_node_that_never_comes_back(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.start_fails = 10**9
    rig = Rig(cluster, run, kill(0.0, 0.1, target="kafka-2"), kill(0.5, 0.1, target="kafka-1"), verify_s=0.3)
    rig.storm.join(20)
    (failure,) = rig.storm.heal_all(1)
    assert failure == "fault 1 (kill kafka-2): kafka-2 not running (kafka-2 died at start)"
    assert [entry["down"] for entry in Ledger(run).entries()] == [["kafka-2"]]
    assert rig.rows("skipped")[0]["reason"].startswith("kafka-2 is still away (fault 1)")


def test_a_start_that_fails_is_tried_again(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.life._RETRY_S", 0.05)
    cluster.runtime.start_fails = 2
    rig = Rig(cluster, run, kill(0.0, 0.1))
    rig.storm.join(20)
    assert rig.rows("healed")[0]["ok"] is True


def test_an_apply_that_breaks_is_healed(cluster: StateCluster, run: RunDir) -> None:
    def half(node: str) -> None:
        cluster.runtime.paused.add(node)
        raise ValueError("broke in the middle")

    cluster.runtime.pause = half  # type: ignore[method-assign]
    rig = Rig(cluster, run, {"fault": "pause", "at": 0, "for": 30})
    rig.storm.join(20)
    (effect,) = rig.rows("effect")
    assert effect["effective"] is False
    assert "broke in the middle" in effect["evidence"]
    assert cluster.runtime.paused == set()
    assert rig.rows("healed")[0]["ok"] is True


def test_bugs_in_a_kind_are_recorded_and_nothing_stays(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise KeyError("oh")

    monkeypatch.setattr("faults.node_loss.NodeLoss.proof", broken)
    Rig(cluster, run, kill(0.0, 0.1)).storm.join(20)
    monkeypatch.setattr("faults.node_loss.NodeLoss.__init__", broken)
    second = RunDir(run.root.parent / "second").create()
    rig = Rig(cluster, second, kill(0.0, 0.1))
    rig.storm.join(20)
    effect = next(row for row in read_jsonl(run.faults) if row["event"] == "effect")
    assert (effect["effective"], effect["evidence"]) == (False, "its proof failed, a bug: KeyError('oh')")
    assert rig.rows("skipped")[0]["reason"] == "a bug: KeyError('oh')"
    assert cluster.runtime.running == set(NAMES)
    assert Ledger(run).entries() == Ledger(second).entries() == []


def test_a_broken_listener_keeps_nothing_from_healing(cluster: StateCluster, run: RunDir) -> None:
    def listener(row: object) -> None:
        raise RuntimeError("broken")

    rig = Rig(cluster, run, kill(0.0, 0.1), on_event=listener)
    rig.storm.join(20)
    assert cluster.runtime.running == set(NAMES)
    assert rig.events(1) == ["inject", "effect", "heal", "healed"] or rig.rows("healed")[0]["ok"]


def test_refused_before_anything_starts(cluster: StateCluster) -> None:
    timeline = faults.compile(
        [kill(1), {"fault": "leader-move", "at": 2}], seed=1, load_s=9, topics=TOPICS, nodes=NAMES
    )
    faults.refuse_unsupported(timeline, cluster)  # type: ignore[arg-type]
    assert set(faults.abilities_needed(timeline)) == {"Killable", "HasPlacement", "HasLeaders"}

    class NoAdmin(StateCluster):
        def __init__(self) -> None:
            super().__init__()
            self.admin = object()  # type: ignore[assignment]

    with pytest.raises(
        ScenarioError, match=r"faults\[0\]\.fault: kill needs HasPlacement, which this state cluster"
    ):
        faults.refuse_unsupported(timeline, NoAdmin())  # type: ignore[arg-type]


# -- replay ------------------------------------------------------------------------------------------


def test_replay_hits_the_same_nodes_at_the_real_times(tmp_path: Path, run: RunDir) -> None:
    steps = [
        kill(0.1, 0.2, target="leader-of:orders"),
        {"fault": "leader-move", "partitions": 2, "every": 0.3, "jitter": 0.1, "from": 0.7, "until": 1.2},
        kill(0.15, 0.2, target="kafka-1"),
    ]
    first = Rig(StateCluster(), run, *steps)
    first.storm.join(10)
    write_json(run.manifest, {"epoch_ns": first.epoch_ns})
    topics = [{"name": "orders", "partitions": 6, "replication": 3, "config": {}}]
    write_json(run.plan, {"topics": topics, "seed": 7, "load_s": 60.0})

    timeline = faults.load_replay(run)
    injected = first.rows("inject")
    assert len(injected) >= 2
    assert [f.t_s for f in timeline.firings] == [(r["t_ns"] - first.epoch_ns) / 1e9 for r in injected]
    assert [f.params.get("moves") or f.target for f in timeline.firings] == [
        r["params"].get("moves") or r["targets"][0] for r in injected
    ]
    again = RunDir(tmp_path / "again").create()
    storm = faults.Storm(timeline, StateCluster(), again)  # type: ignore[arg-type]
    storm.start(time.monotonic_ns())
    storm.join(10)
    repeated = [row for row in read_jsonl(again.faults) if row["event"] == "inject"]
    assert [row["targets"] for row in repeated] == [row["targets"] for row in injected]
    assert [row["params"] for row in repeated] == [row["params"] for row in injected]


def test_nothing_to_replay(run: RunDir) -> None:
    with pytest.raises(UsageError, match="injected no fault"):
        faults.load_replay(run)


# -- inject ------------------------------------------------------------------------------------------


def test_inject_for_a_while(cluster: StateCluster, run: RunDir) -> None:
    result = faults.inject_once("kill", {"target": "leader-of:orders-2"}, cluster, run, 0.2)  # type: ignore[arg-type]
    assert result["targets"] == ["kafka-3"]
    assert (result["id"], result["effective"], result["healed"], result["applied"]) == (1, True, True, False)
    result = faults.inject_once("leader-move", {"partitions": 1}, cluster, run, None)  # type: ignore[arg-type]
    assert (result["id"], result["effective"], result["applied"]) == (2, True, False)


def test_inject_and_leave(cluster: StateCluster, run: RunDir) -> None:
    result = faults.inject_once("pause", {"target": "kafka-1"}, cluster, run, None)  # type: ignore[arg-type]
    assert (result["effective"], result["healed"], result["applied"]) == (True, False, True)
    assert cluster.runtime.paused == {"kafka-1"}
    cluster.runtime.kill("kafka-2")
    Ledger(run).write(9, {"kind": "kill", "targets": ["kafka-2"], "down": ["kafka-2"]})
    assert faults.heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert cluster.runtime.running == set(NAMES)
    assert Ledger(run).entries() == []


@pytest.mark.parametrize(
    ("kind", "params", "for_s", "message"),
    [
        ("kil", {}, None, "unknown kind 'kil'"),
        ("kill", {"target": "kafka-7"}, 1.0, "no node 'kafka-7'"),
        ("kill", {"tagret": "all"}, 1.0, "tagret: unknown key (did you mean 'target'?)"),
        ("leader-move", {"topic": "order"}, None, "no topic 'order' (did you mean 'orders'?)"),
        ("leader-move", {}, 3.0, "for: leader-move ends by itself"),
    ],
)
def test_inject_refuses(
    cluster: StateCluster, run: RunDir, kind: str, params: dict[str, Any], for_s: float | None, message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        faults.inject_once(kind, params, cluster, run, for_s)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert cluster.runtime.calls == []


def test_inject_that_cannot_be_healed(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.storm.VERIFY_S", 0.2)
    cluster.runtime.start_fails = 10**9
    with pytest.raises(HealError, match="kafka-1 not running"):
        faults.inject_once("kill", {"target": "kafka-1"}, cluster, run, 0.1)  # type: ignore[arg-type]
