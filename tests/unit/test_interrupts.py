"""Signals to this very process: what is raised, what is only noted, what a second one does."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import Exit, HealError, Interrupted
from harness.run import interrupts as module
from harness.run.interrupts import Interrupts
from harness.run.lifecycle import LiveRun
from harness.run.worker_process import WorkerProcess
from tests.specs import worker_spec


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    of_these_tests = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` ignores it
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    with Interrupts() as found:
        yield found
    assert {number: signal.getsignal(number) for number in before} == before
    signal.signal(signal.SIGHUP, of_these_tests)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, Exit.INTERRUPTED),
        (signal.SIGTERM, Exit.TERMINATED),
        (signal.SIGHUP, Exit.TERMINATED),
    ],
)
def test_the_first_is_raised_at_once(interrupts: Interrupts, number: int, code: Exit) -> None:
    with pytest.raises(Interrupted, match=signal.Signals(number).name) as caught:
        send(number)
    assert caught.value.exit_code is code
    assert interrupts.stop.is_set()
    assert not interrupts.hurry.is_set()


def test_a_hangup_that_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            send(signal.SIGHUP)
            assert not interrupts.stop.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_while_it_heals_signals_are_noted_and_the_second_means_hurry(
    interrupts: Interrupts,
) -> None:
    with interrupts.deferred():
        send(signal.SIGTERM)
        assert (interrupts.stop.is_set(), interrupts.hurry.is_set()) == (True, False)
        send(signal.SIGINT)
        assert interrupts.hurry.is_set()
    with pytest.raises(Interrupted) as caught:
        interrupts.raise_if_stopped()
    assert caught.value.exit_code is Exit.TERMINATED, "the first signal decides"


def test_deferring_ends_with_the_outermost_block(interrupts: Interrupts) -> None:
    with interrupts.deferred():
        with interrupts.deferred():
            pass
        send(signal.SIGINT)
    with pytest.raises(Interrupted):
        send(signal.SIGINT)


def test_nothing_is_raised_without_a_signal(interrupts: Interrupts) -> None:
    interrupts.raise_if_stopped()


def test_a_question_is_given_up_inside_of_deferred(interrupts: Interrupts) -> None:
    with interrupts.deferred():
        with pytest.raises(Interrupted), interrupts.raising():
            send(signal.SIGTERM)
        send(signal.SIGTERM)  # noted again
    with pytest.raises(Interrupted), interrupts.raising():
        pytest.fail("it was to be stopped before")


def test_while_a_run_is_finished_only_the_second_is_raised(interrupts: Interrupts) -> None:
    """The first one shortens the load: nothing that is waited for then is cut, and judging goes
    on."""
    interrupts.begin_finishing()
    send(signal.SIGTERM)
    interrupts.raise_if_stopped()
    with interrupts.deferred(), interrupts.raising():
        pass  # questions to the cluster are still asked
    far = time.monotonic() + 3_600
    assert (interrupts.stop.is_set(), interrupts.gives_up.is_set(), interrupts.cut(far)) == (
        True,
        False,
        far,
    )
    with pytest.raises(Interrupted) as caught:
        send(signal.SIGINT)
    assert caught.value.exit_code is Exit.TERMINATED, "the first signal decides"
    assert (interrupts.gives_up.is_set(), interrupts.cut(far)) == (True, 0.0)


def test_after_a_run_that_was_cut_nothing_else_begins(interrupts: Interrupts) -> None:
    interrupts.begin_finishing()
    send(signal.SIGINT)
    interrupts.end_finishing()
    with pytest.raises(Interrupted):
        interrupts.raise_if_stopped()


@pytest.mark.parametrize(
    ("judges_cut", "signals", "audited", "status"),
    [
        (True, 0, True, "complete"),
        (True, 1, True, "interrupted"),
        (True, 2, False, "interrupted"),
        (False, 1, False, "interrupted"),
    ],
)
def test_a_load_that_was_cut_is_audited_unless_a_second_signal_comes(
    interrupts: Interrupts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    judges_cut: bool,
    signals: int,
    audited: bool,
    status: str,
) -> None:
    done: list[str] = []

    def load(live: Any) -> bool:
        for _ in range(signals):
            send(signal.SIGINT)
        return not signals

    monkeypatch.setattr(LiveRun, "_load", load)
    monkeypatch.setattr(LiveRun, "_prepare", lambda live: None)
    for name in ("_heal", "_drain"):
        monkeypatch.setattr(LiveRun, name, lambda live: None)
    monkeypatch.setattr(LiveRun, "_phase", lambda live, name, note: done.append(name))
    monkeypatch.setattr(LiveRun, "_close", lambda live, status: done.append(status))
    live: Any = object.__new__(LiveRun)
    live._interrupts, live._judges_cut, live._run = (
        interrupts,
        judges_cut,
        SimpleNamespace(plan=tmp_path / "p", faults=tmp_path / "f"),
    )
    live._plan = SimpleNamespace(
        model_dump=lambda mode: {},
        limits={"audit": 1.0},
        audit="leader",
        producers=[],
        pipelines=[],
        applications=[],
        consumers=[],
        system="kafka",
        load_s=1.0,
    )
    live._cluster = SimpleNamespace(admin=None, runtime=None)
    live._pool = SimpleNamespace(start_audit=lambda epochs, anew: None, auditors=[])
    live._leaders = SimpleNamespace(record=lambda **_: None, epochs=dict)
    live._applications, live._manifest = SimpleNamespace(sources={}), None
    live._not_healed, live._is_restored = (), True
    assert live.execute().status == status
    assert done == [*(["audit"] if audited else []), status]


def test_a_stop_cuts_waiting_short_that_had_begun(
    interrupts: Interrupts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain may have minutes; after SIGTERM its producers get what is left of `STOPPING_S`."""
    monkeypatch.setattr(module, "STOPPING_S", 0.3)
    live: Any = object.__new__(LiveRun)
    live._interrupts, live._epoch_ns = interrupts, 0
    live._progress = SimpleNamespace(update=lambda **_: None)
    live._pool = SimpleNamespace(totals=dict, report_deaths=lambda: None)
    worker = WorkerProcess(worker_spec(), tmp_path)
    worker.start([sys.executable, "-c", "input()"], {})
    threading.Timer(0.2, send, [signal.SIGTERM]).start()
    began = time.monotonic()
    with interrupts.deferred():
        assert not live._wait_done(worker, began + 30)
    took_s = time.monotonic() - began
    worker.stop()
    assert 0.5 <= took_s < 10


def test_a_full_disk_leaves_no_worker_running_and_hides_no_fault(interrupts: Interrupts) -> None:
    done: list[str] = []

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def part(name: str, *verbs: str, **more: Any) -> Any:
        return SimpleNamespace(
            **{v: lambda *_, v=v: done.append(f"{name}.{v}") for v in verbs}, **more
        )

    live: Any = object.__new__(LiveRun)
    live._interrupts, live._not_healed = interrupts, ()
    live._cluster = SimpleNamespace(runtime=SimpleNamespace(run_id="r-1"))
    live._manifest = SimpleNamespace(problem=full, update=full, finish=full)
    live._injector = part(
        "faults", "stop", "join", heal_all=lambda timeout_s: ["fault 1 (pause kafka-1)"]
    )
    live._pool = part("workers", "stop", record=full)
    live._hosts = SimpleNamespace(rows=list)
    live._applications = part("applications", "end", rows=list)
    for name in ("coming", "hangs", "stalls", "leaders", "sealing", "meter"):
        setattr(live, f"_{name}", part(name, "stop"))
    with pytest.raises(
        HealError, match=r"no space left on the disk; still applied: fault 1"
    ) as raised:
        live._carried_out(full, lambda: True)
    assert raised.value.exit_code == Exit.NOT_HEALED
    assert {"workers.stop", "sealing.stop", "meter.stop"} <= set(done)
