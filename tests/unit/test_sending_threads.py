"""Several sending threads in one producer of the Python kit, on a client that blocks, refuses or
fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.records import RAW, Outcome, TableId

LANES, RATE_PER_S, LOAD_S = 5, 1000.0, 0.4


@pytest.fixture
def open_loop(worker_module: Callable[[str, str], ModuleType]) -> ModuleType:
    """The module as a worker's process has it."""
    return worker_module("kafka_python", "worker_kit.open_loop")


def session_of(folder: Path, **more: Any) -> Any:
    part = {
        "lane_groups": [{"topic": "orders", "mode": "partition", "first": 0, "count": LANES}], "instance": 1,
        "payload_bytes": 100, "when_full": "wait", "rate_per_s": RATE_PER_S, "warm_up_s": 0.0,
        "load_s": LOAD_S, "threads": 2, **more,
    }  # fmt: skip
    control = SimpleNamespace(
        t0_ns=time.monotonic_ns(), deadline_ns=2**62, stop_load=False, draining=False, stopped=False,
        started=threading.Event(),
    )  # fmt: skip
    control.stop = lambda: vars(control).update(stop_load=True, draining=True, stopped=True)
    control.started.set()
    freeze = SimpleNamespace(frozen_ns=0, check=lambda: None)
    report = SimpleNamespace(freeze=freeze, error=lambda *_: None)
    names = SimpleNamespace(id=lambda kind, text: 1)
    spec = SimpleNamespace(part=part, run_tag=1, folder=folder)
    return SimpleNamespace(
        spec=spec, control=control, report=report, names=names, ready=lambda: None
    )


def role_of(open_loop: ModuleType, session: Any, on_send: Callable[[int], None]) -> Any:
    """A producer whose calls are ``on_send(lane)``; remembers which thread called for which
    lane."""
    callers: dict[int, set[int]] = {}

    class Role(open_loop.OpenLoop):  # type: ignore[misc, name-defined]
        def for_thread(self, share: Any) -> Any:
            return Role(self.session, share)

        def connect(self) -> None: ...

        def close(self) -> None: ...

        def serve(self, seconds: float) -> None:
            time.sleep(seconds)

        flush = serve

        def offer(self, first: int, stop: int, kind: int) -> int:
            for i in range(first, stop):
                lane = self.lanes[i % len(self.lanes)].lane
                callers.setdefault(lane, set()).add(threading.get_ident())
                rows, at = self.open_row(
                    lane, i // len(self.lanes), self.schedule.due_ns(i), kind, 0, 1
                )
                self.attempted = i + 1
                try:
                    on_send(lane)
                except ValueError as error:
                    self.finish(rows, at, Outcome.FAIL, str(error))
                else:
                    self.finish(rows, at, Outcome.OK, "")
            return stop

    role = Role(session)
    role.callers = callers
    return role


def rows_in(folder: Path) -> Any:
    parts = [
        np.fromfile(path, RAW[TableId.SENDS], offset=64) for path in sorted(folder.glob("*.seg"))
    ]
    found = np.concatenate(parts)
    return found[found["state"] != 0]


def run(role: Any, seconds: float) -> None:
    """Run, and drain after so long: what is due by then may be sent a little later on a busy
    machine."""
    timer = threading.Timer(
        seconds, lambda: vars(role.control).update(stop_load=True, draining=True)
    )
    timer.start()
    try:
        role.run()
    finally:
        timer.cancel()


def test_a_lane_has_one_thread_and_the_threads_share_the_rate(
    open_loop: ModuleType, tmp_path: Path
) -> None:
    role = role_of(open_loop, session_of(tmp_path), lambda lane: None)
    run(role, LOAD_S + 1.5)
    sends = rows_in(tmp_path)
    assert [int((sends["lane"] == lane).sum()) for lane in range(LANES)] == [80] * LANES
    for lane in range(LANES):
        mine = sends[sends["lane"] == lane]
        assert (mine["seq"] == np.arange(80)).all()
    assert all(len(threads) == 1 for threads in role.callers.values())
    assert (
        role.callers[0] == role.callers[2] == role.callers[4] != role.callers[1] == role.callers[3]
    )
    counts = role.session.report.counts()
    assert (counts["attempted"], counts["ok"], counts["open"]) == (400, 400, 0)


@pytest.mark.long
def test_a_call_that_blocks_keeps_only_its_own_thread(
    open_loop: ModuleType, tmp_path: Path
) -> None:
    released = threading.Event()
    role = role_of(
        open_loop, session_of(tmp_path), lambda lane: lane == 1 and not released.wait(20)
    )
    timer = threading.Timer(LOAD_S + 0.3, role.control.stop)
    timer.start()
    role.run()
    sends = rows_in(tmp_path)
    released.set()
    assert [int((sends["lane"] == lane).sum()) for lane in (0, 2, 4)] == [80] * 3
    assert sends[sends["lane"] == 1]["outcome"].tolist() == [Outcome.NONE]


def test_a_bug_in_any_thread_ends_the_worker(open_loop: ModuleType, tmp_path: Path) -> None:
    def broken(lane: int) -> None:
        if lane == 1:
            raise KeyError("no such lane")

    with pytest.raises(KeyError):
        run(role_of(open_loop, session_of(tmp_path), broken), 20)


def test_the_pause_before_a_repeat_counts_from_the_outcome_however_long_its_text_takes(
    open_loop: ModuleType, tmp_path: Path
) -> None:
    def slow(kind: str, text: str) -> int:
        time.sleep(0.02)
        return 1

    session = session_of(tmp_path, results="resent")
    session.names.id = slow
    role = role_of(open_loop, session, lambda lane: None)
    rows, at = role.open_row(0, 0, 5, 1, 0, 1)
    role.finish(rows, at, Outcome.FAIL, "refused", lambda: role.schedule_resend(0, 0, 5, 1, 0))
    (resend,), (row,) = role.resends, rows_in(tmp_path)
    assert resend.t_ns >= row["t_done_ns"] + 500_000_000
