"""Consumers that are handed nothing, while it happens: what counts as silence, what waits, who is
told."""

from __future__ import annotations

import errno
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.plan import Plan
from harness.contracts.worker import StatsLine
from harness.errors import EnvironmentNotReady
from harness.plan.build import build_plan
from harness.progress.plain import PlainProgress
from harness.run.draining import waiting_for
from harness.run.hangs import stall_sentence
from harness.run.liveness import Stall, StallDetector
from harness.run.manifest import ManifestFile
from harness.run.place import RunPlace
from harness.run.stalls import StallMonitor
from harness.run.worker_pool import WorkerPool
from harness.run.worker_process import WorkerProcess
from harness.run.worker_specs import Endpoints, group_id
from harness.rundir import RunDir, append_jsonl, read_jsonl
from harness.scenario.model import Scenario
from tests.specs import reading, worker_spec

S = 1_000_000_000


def plan_of(system: str = "kafka", **consumers: Any) -> Plan:
    topics = {"a": {"partitions": 2}} if system == "kafka" else {"a": {}, "b": {}}
    load = {"consumers": consumers or {"c": {}}}
    data = {
        "name": "x",
        "system": system,
        "topics": topics,
        "load": load,
        "limits": {"stall": "5s"},
    }
    return build_plan(Scenario.model_validate(data), seed=1)


class Worker:
    """A consumer's process, as far as it is looked at."""

    is_alive = True
    is_stopped = False

    def __init__(self, name: str) -> None:
        self.name = self.plan_name = name
        self.stats = StatsLine()


class Watching:
    """A pool that writes down what it is told."""

    def __init__(self, plan: Plan) -> None:
        self.consumers = [Worker(consumer.name) for consumer in plan.consumers]
        self.told: list[tuple[str, int]] = []
        self.went_on: list[str] = []

    def note_stall(self, worker: Worker, silence: Stall, waiting: int) -> None:
        self.told.append((worker.name, waiting))

    def note_stall_over(self, worker: Worker) -> None:
        self.went_on.append(worker.name)


class Ends:
    """An admin of a system whose positions are dense."""

    def __init__(self, **ends: int) -> None:
        self.ends = {name.replace("_", "-"): end for name, end in ends.items()}

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        if not self.ends:
            raise EnvironmentNotReady("no broker answers")
        return self.ends


class Backlogs(Ends):
    def __init__(self, found: Mapping[str, Mapping[str, int]]) -> None:
        self.found = found

    def backlogs(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        return {
            stream: found
            for stream, found in self.found.items()
            if stream.rpartition("-")[0] in topics
        }


class Rig:
    def __init__(self, tmp_path: Path, plan: Plan, admin: object) -> None:
        self.run = RunDir(tmp_path / "run").create()
        self.pool = Watching(plan)
        self.stalls = StallMonitor(plan, self.run, lambda: admin, self.pool)  # type: ignore[arg-type, return-value]
        self.now_s = 100

    def look(self, times: int = 1) -> list[tuple[str, int]]:
        for _ in range(times):
            self.now_s += 1
            self.stalls.check(self.now_s * S)
        return self.pool.told

    def fault(self, event: str, **more: Any) -> None:
        append_jsonl(
            self.run.faults,
            {"id": 1, "event": event, "kind": "kill", "t_ns": self.now_s * S, **more},
        )


def test_silence_is_time_without_a_message() -> None:
    judge = StallDetector(5)

    def look(at_s: float, delivered: int, *, epoch: int = 1, counts: bool = True) -> Stall | None:
        return judge.check(
            int(at_s * S), StatsLine(delivered=delivered, epoch=epoch), counts=counts
        )

    assert not any(look(at, 7) for at in range(10, 16))
    assert look(16, 7) == Stall(10 * S, 6.0, 5, 7)
    assert look(17, 8) is None, "it goes on"
    assert not any(look(at, 8, counts=False) for at in range(18, 60)), (
        "stopped, or a fault is applied"
    )
    assert not any(look(at, 8) for at in range(60, 65))
    assert look(65, 8) is not None, "six seconds that count, and the others before"
    assert not any(look(at, 8, epoch=0) for at in range(66, 90)), "has no assignment"


def test_looks_that_come_late_are_no_silence_of_the_client() -> None:
    judge = StallDetector(5)
    assert judge.check(0, StatsLine(delivered=1), counts=True) is None
    assert judge.check(60 * S, StatsLine(delivered=1), counts=True) is None, (
        "nobody looked for a minute"
    )


def test_a_stall_is_told_once_and_its_end_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path, plan_of(), Ends(a_0=50, a_1=0))
    rig.pool.consumers[0].stats = StatsLine(delivered=40, positions={"a-0": 40})
    assert rig.look(7) == [], "seen once"
    assert rig.look() == [("consumer-c", 10)], "limit and three looks"
    assert rig.look(20) == [("consumer-c", 10)]
    assert rig.pool.went_on == []
    rig.pool.consumers[0].stats.delivered = 41
    rig.look(3)
    assert rig.pool.went_on == ["consumer-c"]


def test_nothing_waits_nothing_stalls(tmp_path: Path) -> None:
    rig = Rig(tmp_path, plan_of(), Ends(a_0=40, a_1=0))
    rig.pool.consumers[0].stats = StatsLine(delivered=40, positions={"a-0": 40})
    assert rig.look(30) == []
    nobody_answers = Rig(tmp_path / "other", plan_of(), Ends())
    assert nobody_answers.look(30) == []


def test_time_of_faults_is_left_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path, plan_of(), Ends(a_0=50, a_1=0))
    rig.fault("inject")
    assert rig.look(30) == []
    rig.fault("effect", effective=True)
    rig.fault("heal")
    assert rig.look(5) == [], "not whole yet"
    rig.fault("healed", ok=True)
    assert rig.look(6) == []
    assert rig.look(2) == [("consumer-c", 50)]


def test_a_fault_that_is_undone_is_over_though_the_cluster_recovered_too_slowly(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, plan_of(), Ends(a_0=50, a_1=0))
    rig.fault("inject")
    rig.fault("healed", ok=False, undone=False)
    assert rig.look(30) == [], "still applied"
    rig.fault("healed", ok=False, undone=True)
    assert rig.look(8) == [("consumer-c", 50)]


def test_a_consumer_that_is_frozen_or_dead_does_not_stall(tmp_path: Path) -> None:
    rig = Rig(tmp_path, plan_of(), Ends(a_0=50, a_1=0))
    rig.pool.consumers[0].is_stopped = True
    assert rig.look(30) == []
    rig.pool.consumers[0].is_stopped = False
    rig.pool.consumers[0].is_alive = False
    assert rig.look(30) == []


def test_work_of_the_application_is_no_silence(tmp_path: Path) -> None:
    rig = Rig(tmp_path, plan_of(c={"work": "20s"}), Ends(a_0=50, a_1=0))
    assert rig.look(25) == []
    assert rig.look(5) == [("consumer-c", 50)]


def test_a_member_without_partitions_does_not_stall_for_those_of_others() -> None:
    plan = plan_of(c={"count": 3}, d={"group": "other"})
    stats = [StatsLine(positions=at) for at in ({"a-0": 10, "a-1": 4}, {"a-1": 8}, {}, {})]
    admin = Ends(a_0=12, a_1=9)

    def waiting(number: int) -> int:
        return waiting_for(plan, admin, stats, number)  # type: ignore[arg-type]

    assert [waiting(number) for number in range(4)] == [2, 1, 0, 21]


@pytest.mark.parametrize(
    ("system", "held", "settle", "waits"),
    [
        ("pulsar", {"a-0": {"GROUP": 3, "other": 9}, "b-0": {"GROUP": 1}}, "ack", 4),
        ("pulsar", {"a-0": {"GROUP": 3}}, "none", 0),
        ("qpid", {"a-0": {"": 5}, "b-0": {"": 0}}, "ack", 5),
    ],
)
def test_what_a_subscription_or_a_queue_holds(
    system: str, held: dict[str, dict[str, int]], settle: str, waits: int
) -> None:
    plan = plan_of(system, c={"settle": settle})
    name = group_id(plan, plan.consumers[0].group)
    found = {
        stream: {group.replace("GROUP", name): n for group, n in groups.items()}
        for stream, groups in held.items()
    }
    assert waiting_for(plan, Backlogs(found), [{}], 0) == waits  # type: ignore[arg-type]


def test_the_one_that_waits_in_reserve_does_not_stall(tmp_path: Path) -> None:
    """A failover subscription: one member is handed everything, the other nothing."""
    plan = plan_of("pulsar", c={"count": 2, "settle": "ack"})
    name = group_id(plan, plan.consumers[0].group)
    rig = Rig(tmp_path, plan, Backlogs({"a-0": {name: 7}}))
    for _ in range(30):
        rig.pool.consumers[0].stats.delivered += 1
        assert rig.look() == []
    assert sorted(rig.look(9)) == [("consumer-c-1", 7), ("consumer-c-2", 7)]


def test_the_sentence_tells_since_when_and_what_waits() -> None:
    text = stall_sentence(Stall(71 * S, 15.24, 15, 1140), 857, 64 * S - S // 4)
    before, after = text.split(", 1,140 delivered until then, ")
    assert before == "handed nothing since 00:07.2 (15.2 s, limit 15 s)"
    assert after == "857 messages wait for it"


def test_a_stall_is_written_down_with_who_and_what(tmp_path: Path) -> None:
    run, said = RunDir(tmp_path / "run").create(), (tmp_path / "said").open("w+")
    manifest = ManifestFile(run, command="x", versions={})
    manifest.set_epoch(64 * S)
    progress = PlainProgress(said)
    pool = WorkerPool(
        RunPlace(plan_of(), run, Endpoints("", ""), manifest, progress, "x", offline=True)
    )
    worker = WorkerProcess(worker_spec("consumer-3", "kafka-python", reading(3)), tmp_path)
    told = pool._report_waiting(
        worker, "stall", "handed nothing since 00:07.2", since_ns=71 * S, waiting=857
    )
    pool._keep_stacks(worker, told)
    (row,) = read_jsonl(run.events)
    assert (row["worker"], row["kind"], row["session"]) == ("consumer-3", "stall", 3)
    assert (row["since_ns"], row["waiting"]) == (71 * S, 857)
    assert progress.view.waiting == {"consumer-3": "stalls: handed nothing since 00:07.2"}
    pool.note_stall_over(worker)
    assert progress.view.waiting == {}
    said.seek(0)
    first, last = said.read().splitlines()
    assert first.endswith("consumer-3 (kafka-python) stalls: handed nothing since 00:07.2")
    assert last.endswith("consumer-3 continues: it receives messages again")
    said.close()


def test_a_client_that_gave_itself_up_is_written_down_and_told_of(tmp_path: Path) -> None:
    run, said = RunDir(tmp_path / "run").create(), (tmp_path / "said").open("w+")
    manifest = ManifestFile(run, command="x", versions={})
    pool = WorkerPool(
        RunPlace(
            plan_of(), run, Endpoints("", ""), manifest, PlainProgress(said), "x", offline=True
        )
    )
    worker = WorkerProcess(worker_spec("consumer-1", "kafka-clients", reading()), tmp_path)
    event = {
        "type": "event",
        "t_ns": 5,
        "kind": "client-died",
        "why": "error",
        "name": "_FATAL",
        "text": "_FATAL: no",
    }
    pool._on_message(worker, event)
    assert worker.client_died
    (row,) = read_jsonl(run.events)
    assert row == {"worker": "consumer-1", **{k: v for k, v in event.items() if k != "type"}}
    said.seek(0)
    (line,) = said.read().splitlines()
    assert line.endswith("consumer-1 (kafka-clients) declared itself dead: _FATAL: no")
    said.close()


def test_an_event_that_a_full_disk_refused_is_written_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path / "run").create()
    progress, manifest = PlainProgress(io.StringIO()), ManifestFile(run, command="x", versions={})
    pool = WorkerPool(
        RunPlace(plan_of(), run, Endpoints("", ""), manifest, progress, "x", offline=True)
    )
    worker = WorkerProcess(worker_spec("consumer-1", "kafka-clients", reading()), tmp_path)

    def full(path: Path, row: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("harness.run.worker_pool.append_jsonl", full)
        pool._on_message(worker, {"type": "event", "t_ns": 5, "kind": "client-died", "text": "no"})
        with pytest.raises(OSError, match="No space left"):
            pool.record()
    assert worker.client_died
    pool.record()
    pool.record()
    assert [(row["kind"], row["t_ns"]) for row in read_jsonl(run.events)] == [("client-died", 5)]
