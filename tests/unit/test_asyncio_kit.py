"""The Python kit on an event loop: workers of a client made for this, driven by the protocol."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.contracts.worker import SpecPart, StatsLine
from harness.records import RAW, VALID_FIELD, Event, Outcome, TableId
from harness.run.stacks import waiting
from harness.run.worker_process import WorkerProcess
from harness.workers import KIT
from tests.specs import reading, sending, worker_spec

CLIENT = '''
"""An asyncio client library without a broker: partition 0 stores after a moment, 1 refuses, 2 loses, and
the call for partition 3 waits for ever."""
import asyncio

class Refused(Exception):
    pass

class Client:
    def __init__(self):
        self.offset = -1

    async def send(self, partition):
        if partition == 1:
            raise Refused("too large")
        if partition == 3:
            await self._room_in_the_buffer()
        return asyncio.ensure_future(self._stored(partition))

    async def _room_in_the_buffer(self):
        await asyncio.get_running_loop().create_future()

    async def _stored(self, partition):
        await asyncio.sleep(0.002)
        if partition == 2:
            raise TimeoutError("no answer")
        self.offset += 1
        return self.offset
'''
PRODUCER = """
import sys
import worker_kit.process
from fakeclient import Client, Refused
from worker_kit import layouts as lay
from worker_kit.asyncio_loop import AsyncOpenLoop

class Role(AsyncOpenLoop):
    client_errors = (Refused, TimeoutError)
    async def connect(self):
        self.client = Client()
    def for_thread(self, share):
        role = Role(self.session, share)
        role.client = self.client
        return role
    async def send(self, lane, payload):
        return await self.client.send(lane.partition)
    def place(self, answer):
        return "orders", 0, answer
    def outcome(self, error, *, refused):
        return (lay.FAIL if refused else lay.INFO), f"{type(error).__name__}: {error}"
    async def flush(self):
        pass
    async def close(self):
        pass

roles = {"producer": lambda session: Role(session).run()}
sys.exit(worker_kit.process.main(roles, {"client_version": "1"}, ()))
"""
CONSUMER = """
import asyncio, sys
import worker_kit.process
from worker_kit.asyncio_consuming import AsyncConsumer

class Role(AsyncConsumer):
    async def subscribe(self):
        self.journal.assign({("orders", 0): -1})
        self.beats = 0
        self.session.report.counts = lambda: {**self.journal.counts(), "beats": self.beats}
        self.heart = asyncio.create_task(self.beat())
        self.next = 0
    async def beat(self):
        while True:
            await asyncio.sleep(0.01)
            self.beats += 1
    async def poll(self):
        self.next += 1
        await asyncio.sleep(0)
        return [("orders", 0, self.next - 1, b"hello")]
    async def commit(self, positions):
        await asyncio.sleep(0.001)
    async def close(self):
        pass

roles = {"consumer": lambda session: Role(session).run()}
sys.exit(worker_kit.process.main(roles, {"client_version": "1"}, ()))
"""
REBALANCED = """
import asyncio, sys
import worker_kit.process
from worker_kit.asyncio_consuming import AsyncConsumer

PLACE = ("orders", 0)

class Role(AsyncConsumer):
    async def subscribe(self):
        self.journal.assign({PLACE: -1})
        self.polls = 0
    def moves(self):
        self.journal.revoke([PLACE])
        self.journal.assign({PLACE: -1})
    async def poll(self):
        self.polls += 1
        if self.polls == 1:
            asyncio.get_running_loop().call_later(0.3, self.moves)
        await asyncio.sleep(0.01)
        return [(*PLACE, offset, b"hello") for offset in range(20)] if self.polls <= 2 else []
    async def commit(self, positions):
        pass
    async def close(self):
        pass

roles = {"consumer": lambda session: Role(session).run()}
sys.exit(worker_kit.process.main(roles, {"client_version": "1"}, ()))
"""
Start = Callable[[str, SpecPart], WorkerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a worker whose folder and whose client are outside of the repository."""
    client = tmp_path / "lib/python3.11/site-packages/fakeclient.py"
    client.parent.mkdir(parents=True)
    client.write_text(CLIENT)
    made: list[WorkerProcess] = []

    def begin(program: str, part: SpecPart) -> WorkerProcess:
        spec = worker_spec(
            "w", part=part, streams={"orders-0": 1}, capture_dir=str(tmp_path / "raw")
        )
        script = tmp_path / "mine" / f"{spec.role}.py"
        script.parent.mkdir()
        script.write_text(program)
        script.with_name("worker.toml").write_text("")
        made.append(WorkerProcess(spec, tmp_path / "raw"))
        env = {"PYTHONPATH": f"{KIT}:{client.parent}"}
        made[-1].start([sys.executable, str(script)], env)
        made[-1].wait_ready(20)
        made[-1].tell(f"start {time.monotonic_ns()}")
        return made[-1]

    yield begin
    for worker in made:
        worker.kill()


def producer_part(lanes: list[int], **more: Any) -> SpecPart:
    """One lane on each of these partitions."""
    count = max(lanes) + 1
    group = {
        "topic": "orders",
        "mode": "partition",
        "first": 0,
        "count": count,
        "partitions": count,
    }
    return sending(**{"rate_per_s": 400.0, "load_s": 0.5, "lane_groups": [group], **more})


def rows(worker: WorkerProcess, table: TableId) -> Any:
    found = np.concatenate(
        [np.fromfile(p, RAW[table], offset=64) for p in sorted(worker.folder.glob("*.seg"))]
    )
    return found[found[VALID_FIELD[table]] != 0]


def seen(worker: WorkerProcess, wanted: Callable[[StatsLine], bool]) -> None:
    deadline = time.monotonic() + 20
    while not (worker.stats.t_ns and wanted(worker.stats)):
        assert time.monotonic() < deadline, worker.stats
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("calls", ["async", "sync"])
def test_each_send_has_a_row_and_the_outcome_that_the_client_gave(start: Start, calls: str) -> None:
    worker = start(PRODUCER, producer_part([0, 1, 2], calls=calls))
    seen(worker, lambda stats: stats.attempted == 200)
    worker.tell(f"drain {time.monotonic_ns() + 20 * 10**9}")
    assert worker.wait_done(20)
    sends = rows(worker, TableId.SENDS)
    by_lane = {lane: set(sends["outcome"][sends["lane"] == lane].tolist()) for lane in range(3)}
    assert by_lane == {0: {Outcome.OK}, 1: {Outcome.FAIL}, 2: {Outcome.INFO}}
    stored = sends[sends["lane"] == 0]
    assert sorted(stored["position"].tolist()) == list(range(len(stored)))
    assert (stored["seq"] == np.arange(len(stored))).all()
    assert len(sends) == 200 == worker.done_line.attempted
    assert worker.done_line.open == 0


@pytest.mark.long
def test_an_application_may_repeat_what_failed(start: Start) -> None:
    worker = start(PRODUCER, producer_part([0, 1], results="resent", load_s=0.01))
    seen(worker, lambda stats: stats.attempted > 6)
    worker.tell("stop")
    assert worker.wait_done(20)
    refused = rows(worker, TableId.SENDS)
    refused = refused[(refused["lane"] == 1) & (refused["seq"] == 0)]
    assert refused["attempt"].tolist() == list(range(len(refused)))
    assert (np.diff(refused["t_start_ns"]) >= 500_000_000).all()
    assert len(set(refused["t_intended_ns"].tolist())) == 1


def test_a_call_that_waits_is_shown_and_keeps_nobody(start: Start, tmp_path: Path) -> None:
    """The stacks name the task and the call of the client in which it waits; stop is obeyed."""
    worker = start(PRODUCER, producer_part([3]))
    seen(worker, lambda stats: stats.attempted == 4 and stats.ok == 1 and stats.blocked_ns > 0)
    worker.dump_stack(tmp_path / "stacks.txt")
    found = waiting((tmp_path / "stacks.txt").read_text())
    assert found is not None
    assert found.title == 'Task "send-0"'
    assert found.where.startswith("_room_in_the_buffer (fakeclient.py:")
    worker.tell("stop")
    assert worker.wait_done(20)
    assert worker.wait_done(1)
    assert worker.done_line.open == 1
    assert rows(worker, TableId.SENDS)["outcome"].tolist().count(Outcome.NONE) == 1


def test_a_task_that_waits_keeps_only_its_own_lanes(start: Start) -> None:
    """Of four tasks with a lane each one waits for ever; the others follow their part of the
    schedule."""
    worker = start(PRODUCER, producer_part([0, 1, 2, 3], threads=4))
    seen(worker, lambda stats: stats.attempted == 3 * 50 + 1)
    worker.tell("stop")
    assert worker.wait_done(20)
    sends = rows(worker, TableId.SENDS)
    assert [int((sends["lane"] == lane).sum()) for lane in range(4)] == [50, 50, 50, 1]
    for lane in range(3):
        mine = sends[sends["lane"] == lane]
        assert (mine["seq"] == np.arange(50)).all()
        assert np.allclose(np.diff(mine["t_intended_ns"]), 10_000_000, atol=1)


@pytest.mark.long
def test_work_on_a_message_blocks_nobody_else(start: Start) -> None:
    """Half a second of work a message, and the client's heart beats on."""
    worker = start(CONSUMER, reading(topics=["orders"], commit_every_s=0.2, work_s=0.5))
    seen(worker, lambda stats: stats.delivered >= 3)
    assert (worker.stats.model_extra or {})["beats"] > 50
    worker.tell("stop")
    assert worker.wait_done(20)
    journal = rows(worker, TableId.DELIVERIES)
    kinds = journal["kind"].tolist()
    assert kinds[0] == Event.ASSIGN
    assert kinds.count(Event.DELIVER) == worker.done_line.delivered
    committed = journal[journal["kind"] == Event.COMMIT]
    called = journal[journal["kind"] == Event.COMMIT_CALLED]
    assert committed["position"].tolist() == called["position"].tolist() != []


def test_a_batch_is_not_used_after_its_partition_was_taken_and_given_again(start: Start) -> None:
    """The member reads from the last commit then: the rest of the batch would come twice."""
    worker = start(REBALANCED, reading(topics=["orders"], commit_every_s=60, work_s=0.05))
    seen(worker, lambda stats: stats.delivered > 20)
    time.sleep(1)
    worker.tell("stop")
    assert worker.wait_done(20)
    journal = rows(worker, TableId.DELIVERIES)
    handed = journal[journal["kind"] == Event.DELIVER]
    first, second = (handed["position"][handed["epoch"] == epoch].tolist() for epoch in (1, 2))
    assert 0 < len(first) < 20
    assert first == list(range(len(first)))
    assert second == list(range(len(second)))
