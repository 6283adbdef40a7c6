"""Nothing stays applied: heals on every way out, in a hurry, in trouble and in threads."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest

import faults
from faults.engine import journal
from faults.engine.ledger import Ledger
from harness.errors import EnvironmentNotReady
from harness.rundir import Document, RunDir, append_jsonl, read_jsonl
from harness.waiting import wait_until
from tests.unit.fault_cluster import NAMES, StateCluster
from tests.unit.fault_engine.rig import TOPICS, Rig, kill


def test_heal_all_heals_at_once_and_again_does_nothing(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, kill(0.0, 300.0), kill(55.0))
    rig.wait_for("effect")
    start = time.monotonic()
    assert rig.injector.heal_all(60) == []
    assert time.monotonic() - start < 60
    calls = list(cluster.runtime.calls)
    assert rig.injector.heal_all(5) == []
    assert cluster.runtime.calls == calls
    assert rig.rows("healed")[0]["ok"] is True
    assert rig.rows("skipped")[0]["reason"] == "the run stopped before it was due"
    assert Ledger(run).entries() == []


def test_heal_all_before_start_and_without_faults(cluster: StateCluster, run: RunDir) -> None:
    timeline = faults.compile(
        [], faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=1, load_s=10
    )
    injector = faults.Injector(timeline, cluster, run)  # type: ignore[arg-type]
    assert injector.heal_all(1) == []
    injector.join(1)
    injector.stop()


def test_a_full_disk_keeps_nothing_from_healing(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written down is written once there is room again."""
    is_full = threading.Event()

    def append(path: Path, row: Document) -> None:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        append_jsonl(path, row)

    monkeypatch.setattr(journal, "append_jsonl", append)
    rig = Rig(cluster, run, kill(0.0, 30.0), kill(1.0, target="kafka-2", together=True))
    rig.wait_for("effect")
    is_full.set()
    # the second one is due by then
    assert wait_until(lambda: time.monotonic_ns() > rig.epoch_ns + 1.2e9, 5)
    assert rig.injector.heal_all(10) == []
    assert cluster.runtime.running == set(NAMES)
    with pytest.raises(OSError, match="No space left"):
        rig.injector.join(5)
    is_full.clear()
    rig.injector.join(5)
    assert rig.events(1) == ["inject", "effect", "heal", "healed"]
    assert (
        rig.rows("skipped")[0]["reason"] == "it could not be written down: No space left on device"
    )
    assert Ledger(run).entries() == []


def test_heal_all_from_several_threads(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(cluster, run, {"fault": "pause", "at": 0.0, "for": 30})
    rig.wait_for("inject")
    results: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: results.append(rig.injector.heal_all(5))) for _ in range(3)
    ]
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
    assert rig.injector.heal_all(0.3) == []
    assert cluster.runtime.running == set(NAMES)
    (healed,) = rig.rows("healed")
    assert healed["ok"] is False
    assert healed["evidence"].startswith("undone, but the cluster did not recover in time: kafka-")
    assert Ledger(run).entries() == []


def test_a_node_that_runs_for_a_moment_and_dies_of_its_start_is_left_behind(run: RunDir) -> None:
    """While its time to heal is over it runs, as any JVM that has not read its data yet."""
    cluster = StateCluster(join_s=30.0)
    cluster.admin.join_s = 0.0
    rig = Rig(cluster, run, kill(0.0, 30.0, target="kafka-2"))
    rig.wait_for("effect")
    cluster.admin.join_s = 30.0
    assert rig.injector.heal_all(0.3) == []
    cluster.runtime.running.discard("kafka-2")
    (left,) = rig.injector.heal_all(0.3)
    assert left == "fault 1 (kill kafka-2): kafka-2 not running"
    cluster.runtime.running.add("kafka-2")
    assert rig.injector.heal_all(0.3) == []


def test_who_is_in_a_hurry_does_not_wait_for_the_cluster(run: RunDir) -> None:
    cluster, hurry = StateCluster(join_s=0.0), threading.Event()
    rig = Rig(cluster, run, kill(0.0, 30.0), hurry=hurry)
    rig.wait_for("effect")
    cluster.admin.join_s = 300.0
    threading.Timer(0.2, hurry.set).start()
    start = time.monotonic()
    assert rig.injector.heal_all(200) == []
    assert time.monotonic() - start < 100
    assert cluster.runtime.running == set(NAMES)


def test_a_stop_that_comes_while_healing_shortens_the_wait(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.engine.injector.STOPPING_S", 0.5)
    cluster, stopping = StateCluster(join_s=0.0), threading.Event()
    rig = Rig(cluster, run, kill(0.0, 30.0), stopping=stopping)
    rig.wait_for("effect")
    cluster.admin.join_s = 300.0
    threading.Timer(0.2, stopping.set).start()
    start = time.monotonic()
    assert rig.injector.heal_all(300) == []
    assert time.monotonic() - start < 100
    assert cluster.runtime.running == set(NAMES)
    assert rig.rows("healed")[0]["ok"] is False


def test_a_stop_that_takes_longer_than_there_is_time(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.stop_takes_s = 1.5
    rig = Rig(cluster, run, {"fault": "restart", "at": 0, "target": "kafka-1"})
    rig.wait_for("inject")
    (failure,) = rig.injector.heal_all(0.1)
    assert failure.startswith("fault 1 (restart kafka-1): still being applied")
    assert len(Ledger(run).entries()) == 1
    rig.injector.join(20)
    assert cluster.runtime.running == set(NAMES)
    assert rig.injector.heal_all(1) == []
    assert Ledger(run).entries() == []


def test_a_node_that_never_comes_back(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.start_fails = 10**9
    rig = Rig(
        cluster,
        run,
        kill(0.0, 0.1, target="kafka-2"),
        kill(0.5, 0.1, target="kafka-1"),
        verify_s=0.3,
    )
    rig.injector.join(20)
    (failure,) = rig.injector.heal_all(1)
    assert failure == "fault 1 (kill kafka-2): kafka-2 not running (kafka-2 died at start)"
    assert [entry.down for entry in Ledger(run).entries()] == [("kafka-2",)]
    assert rig.rows("skipped")[0]["reason"].startswith("kafka-2 is still away (fault 1)")


def test_a_start_that_fails_is_tried_again(cluster: StateCluster, run: RunDir) -> None:
    cluster.runtime.start_fails = 2
    rig = Rig(cluster, run, kill(0.0, 0.1))
    rig.injector.join(20)
    assert rig.rows("healed")[0]["ok"] is True


def test_an_apply_that_breaks_is_healed(cluster: StateCluster, run: RunDir) -> None:
    def half(node: str) -> None:
        cluster.runtime.paused.add(node)
        raise ValueError("broke in the middle")

    cluster.runtime.pause = half  # type: ignore[method-assign]
    rig = Rig(cluster, run, {"fault": "pause", "at": 0, "for": 30})
    rig.injector.join(20)
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

    monkeypatch.setattr("faults.kit.node_loss.NodeLoss.proof", broken)
    Rig(cluster, run, kill(0.0, 0.1)).injector.join(20)
    monkeypatch.setattr("faults.kit.node_loss.NodeLoss.__init__", broken)
    second = RunDir(run.root.parent / "second").create()
    rig = Rig(cluster, second, kill(0.0, 0.1))
    rig.injector.join(20)
    effect = next(row for row in read_jsonl(run.faults) if row["event"] == "effect")
    assert (effect["effective"], effect["evidence"]) == (
        False,
        "its proof failed, internal error: KeyError('oh')",
    )
    assert rig.rows("skipped")[0]["reason"] == "internal error: KeyError('oh')"
    assert cluster.runtime.running == set(NAMES)
    assert Ledger(run).entries() == Ledger(second).entries() == []


def test_a_heal_that_breaks_is_tried_again_and_told(cluster: StateCluster, run: RunDir) -> None:
    """Whatever it raises, and on every way out: else a fault that stays applied would pass for
    healed."""
    start, left = cluster.runtime.start, [3]

    def breaks(node: str) -> None:
        if left[0]:
            left[0] -= 1
            raise RuntimeError("broke while healing")
        start(node)

    cluster.runtime.start = breaks  # type: ignore[method-assign]
    rig = Rig(cluster, run, kill(0.0, 0.1))
    rig.injector.join(20)
    assert rig.rows("healed")[0]["ok"] is True

    left[0] = 10**9
    second = RunDir(run.root.parent / "second").create()
    rig = Rig(cluster, second, kill(0.0, 0.1, target="kafka-1"), verify_s=0.3)
    rig.injector.join(20)
    (failure,) = rig.injector.heal_all(1)
    assert (
        failure
        == "fault 1 (kill kafka-1): kafka-1 not running (internal error: RuntimeError('broke while healing'))"
    )
    assert rig.rows("healed")[0]["ok"] is False
    assert len(Ledger(second).entries()) == 1


def test_an_engine_that_goes_away_leaves_its_faults_in_the_ledger_and_says_so(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers cannot be asked for any more: that is no bug, and nothing that may pass for
    healed."""
    rig = Rig(cluster, run, kill(0.0, 0.3, target="kafka-1"), verify_s=0.5)
    rig.wait_for("inject")

    def gone(node: str) -> bool:
        raise EnvironmentNotReady(f"cannot ask for the state of {node}: the engine does not answer")

    monkeypatch.setattr(cluster.runtime, "is_running", gone)
    monkeypatch.setattr(cluster.runtime, "start", gone)
    rig.injector.join(20)
    said = "cannot ask for the state of kafka-1: the engine does not answer"
    assert [said in failure for failure in rig.injector.heal_all(1)] == [True]
    assert rig.rows("healed")[0]["ok"] is False
    assert said in rig.rows("healed")[0]["evidence"]
    assert len(Ledger(run).entries()) == 1


def test_brokers_that_do_not_answer_are_neither_a_proof_nor_a_bug(
    cluster: StateCluster,
    run: RunDir,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A leader move, which asks them for everything: they answer again after a while."""
    monkeypatch.setattr("faults.engine.firing.PROOF_S", 0.3)
    leaders, silent = cluster.admin.leaders, threading.Event()

    def asked(topic: str) -> dict[int, str | None]:
        if silent.is_set():
            raise EnvironmentNotReady("no broker answers at its admin endpoint")
        return leaders(topic)

    cluster.admin.leaders = asked  # type: ignore[method-assign]
    silent.set()
    rig = Rig(cluster, run, {"fault": "leader-move", "partitions": 2, "at": 0})
    rig.wait_for("heal")
    silent.clear()
    rig.injector.join(20)
    assert [row["ok"] for row in rig.rows("healed")] == [True]
    assert not [record for record in caplog.records if record.exc_info]
    silent.set()
    second = RunDir(run.root.parent / "second").create()
    rig = Rig(cluster, second, {"fault": "leader-move", "partitions": 2, "at": 0}, verify_s=0.2)
    rig.injector.join(20)
    said = "the cluster does not answer: no broker answers at its admin endpoint"
    assert rig.rows("effect")[0]["evidence"] == said
    assert said in rig.rows("healed")[0]["evidence"]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_heal_that_a_full_disk_stops_says_so(
    cluster: StateCluster, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was killed starts only where its settings can be written."""

    def start(node: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", f"/runs/{node}/pid.json")

    rig = Rig(cluster, run, kill(0.0, 30.0))
    rig.wait_for("effect")
    monkeypatch.setattr(cluster.runtime, "start", start)
    (left,) = rig.injector.heal_all(3)
    assert "no space left on the disk of /runs/kafka-1/pid.json" in left
    assert "internal error" not in left
