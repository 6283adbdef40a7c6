"""Reports of hangs, stalls and crashes: the sentence for people, and the stacks of the worker."""

from __future__ import annotations

from contextlib import suppress

from harness.progress.view import clock
from harness.run.crashes import Crash
from harness.run.liveness import Hang, Stall
from harness.run.stacks import shown, waiting
from harness.run.worker_process import WorkerProcess
from harness.rundir import Document, RunDir


def hang_sentence(hang: Hang, epoch_ns: int) -> str:
    """Since when, how many, and when the client last answered; times from the start of load."""
    since = _time((hang.since_ns - epoch_ns) / 1e9)
    calls = "1 send" if hang.count == 1 else f"{hang.count:,} sends"
    last = hang.last_progress_ns
    progress = f"last answer at {_time((last - epoch_ns) / 1e9)}" if last else "no answer ever"
    oldest = f"the oldest since {since} ({hang.open_s:.1f} s, deadline {hang.deadline_s:g} s)"
    return f"{calls} open, {oldest}, {progress}"


def stall_sentence(stall: Stall, waiting: int, epoch_ns: int) -> str:
    """Since when, what it had been handed until then, and what waits; times from the start of
    load."""
    since = _time((stall.since_ns - epoch_ns) / 1e9)
    messages = "1 message waits" if waiting == 1 else f"{waiting:,} messages wait"
    quiet = f"handed nothing since {since} ({stall.quiet_s:.1f} s, limit {stall.limit_s:g} s)"
    return f"{quiet}, {stall.delivered:,} delivered until then, {messages} for it"


def _time(seconds: float) -> str:
    """``00:07.1``, from the start of load."""
    return f"{clock(seconds)}.{int(abs(seconds) * 10) % 10}"


def take_stacks(worker: WorkerProcess, run: RunDir) -> Document:
    """Keep the stacks of a worker that lives; what an event row says of them.

    Returns:
        ``stacks``: the file in the run's folder; ``where``, ``thread`` and ``stack``: the call that
        waits. Empty when the process is gone or gave no dump in time.
    """
    target = run.stacks / f"{worker.name}.txt"
    worker.dump_stack(target)
    if not target.exists() or not target.stat().st_size:
        return {}
    found: Document = {"stacks": str(target.relative_to(run.root))}
    if (stack := waiting(target.read_text(errors="replace"))) is not None:
        found |= {"where": stack.where, "thread": stack.title, "stack": shown(stack)}
    return found


def keep_dump(worker: WorkerProcess, crash: Crash, run: RunDir) -> Document:
    """Keep what a process printed as it crashed; return the fields of its event row
    (`take_stacks`)."""
    found: Document = {}
    if crash.dump:
        target = run.stacks / f"{worker.name}.txt"
        with suppress(OSError):  # on a full disk the dump stays in the worker's own log
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(crash.dump)
            found["stacks"] = str(target.relative_to(run.root))
    if crash.stack is not None:
        stack = crash.stack
        found |= {"where": stack.where, "thread": stack.title, "stack": shown(stack)}
    return found
