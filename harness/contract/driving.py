"""One worker process under test: told what to do, heard, and read when it is over."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from harness.connections.security import Security
from harness.contracts.worker import ErrorLine, ProcessSpec, StatsLine
from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.records import RAW, TABLE_NAMES, VALID_FIELD, Event, Kind, Outcome, TableId
from harness.run.worker_process import Message, WorkerProcess
from harness.waiting import wait_until
from harness.workers import launch
from harness.workers.spec import WorkerSpec

READY_S: Final = 120.0  # a JVM or an interpreter on a machine that other work keeps busy
Rows = npt.NDArray[np.void]


class NotHere(Exception):
    """Something that this machine does not let us ask; the message says what it lacks."""


class ContractBroken(Exception):
    """The worker did not do what docs/worker-protocol.md promises; the message says what it did."""


def expect(holds: object, otherwise: str) -> None:
    """Raise ContractBroken with ``otherwise`` unless something holds."""
    if not holds:
        raise ContractBroken(otherwise)


def equal(what: str, found: object, wanted: object) -> None:
    """Raise ContractBroken unless what was found is what was wanted."""
    if found != wanted:
        raise ContractBroken(f"{what}: {_short(found)}, must be {_short(wanted)}")


def _short(value: object) -> str:
    if isinstance(value, set) and value and all(isinstance(each, IntEnum) for each in value):
        return ", ".join(sorted(each.name for each in value))
    text = str(value)
    return text if len(text) <= 150 else f"{text[:147]}..."


class DrivenWorker(WorkerProcess):
    """A started worker that remembers every line it said."""

    def __init__(
        self, worker: WorkerSpec, spec: ProcessSpec, offline: bool, security: Security | None = None
    ) -> None:
        self.said: list[Message] = []
        super().__init__(
            spec, Path(spec.capture_dir),
            on_message=lambda _worker, message: self.said.append(message),
        )  # fmt: skip
        try:
            argv, env = launch(worker, spec.client.version, offline=offline)
        except (WorkerError, EnvironmentNotReady) as error:
            raise NotHere(f"{worker.library} cannot be built: {error}") from error
        except UsageError as error:
            raise ContractBroken(str(error)) from error
        self.start(argv, env, worker.secure_options(security))

    # -- its life

    def begin(self) -> int:
        """Wait for ready and start it; returns t0."""
        self.wait_ready(READY_S)
        t0_ns = time.monotonic_ns() + 100_000_000
        self.tell(f"start {t0_ns}")
        return t0_ns

    def wait_stats(self, wanted: Callable[[StatsLine], bool], timeout_s: float = 120) -> StatsLine:
        """The first stats line for which ``wanted(stats)`` holds."""

        def holds() -> bool:
            return self.stats.t_ns > 0 and wanted(self.stats)

        wait_until(lambda: holds() or not self.is_alive, timeout_s, every_s=0.05)
        if holds():
            return self.stats
        ended = "" if self.is_alive else f"; it ended with {self.exit_code}: {self.why()}"
        raise ContractBroken(
            f"not in {timeout_s:g} s of stats lines; the last: {self.stats}{ended}"
        )

    def later_since_ns(self, before: StatsLine) -> int:
        """How much later than in the line ``before`` the generator was at most after it.

        A generator is late by itself when the machine is busy while its process starts.
        """
        lines = [line for line in self.said if line["type"] == "stats"]
        since = [line["late_max_ns"] for line in lines if line["t_ns"] > before.t_ns]
        return max(since, default=0) - before.late_max_ns

    def wait_end(self, timeout_s: float = 20) -> int:
        """Exit code."""
        expect(
            self._wait_exit(timeout_s),
            f"still runs after {timeout_s:g} s; it said {self.said[-2:]}",
        )
        assert self.exit_code is not None
        return self.exit_code

    def finish(self, drain_s: float = 60) -> None:
        """Drain and end a producer; it must say done and exit with 0."""
        self.tell(f"drain {time.monotonic_ns() + int(drain_s * 1e9)}")
        expect(self.wait_done(drain_s + 5), f"not done after drain; it said {self.said[-2:]}")
        equal("exit code after drain", self.wait_end(), 0)

    def leave(self) -> None:
        """Stop it; it must say done and exit with 0."""
        self.tell("stop")
        equal("exit code after stop", self.wait_end(), 0)
        expect(self.done.is_set(), "ended after stop without a done line")

    def send_all(self) -> DrivenWorker:
        """Start a producer, let it send its whole schedule, drain it."""
        part = self.spec.producer
        assert part is not None
        seconds = part.warm_up_s + part.load_s
        end_ns = self.begin() + int(seconds * 1e9)
        profile = part.rate_profile or [(int(seconds * 1e9), 1.0)]
        count = int(sum(ns / 1e9 * share for ns, share in profile) * part.rate_per_s)
        if count:
            self.wait_stats(lambda stats: stats.attempted >= count, seconds + 60)
        else:
            self.wait_stats(lambda stats: stats.t_ns > end_ns, seconds + 60)
        self.finish()
        return self

    def close_input(self) -> None:
        """End its stdin, as the death of the harness would."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def refused(self, timeout_s: float = READY_S) -> ErrorLine:
        """The last words of a worker that must end with 4 before it is ready."""
        equal("exit code", self.wait_end(timeout_s), 4)
        expect(self.ready_line is None, "said ready")
        expect(self.errors, "ended without an error line")
        expect(self.errors[-1].fatal, "its error line does not say that it is fatal")
        return self.errors[-1]

    # -- what it left

    def rows(self, table: TableId) -> Rows:
        """All written rows of a table, segment after segment."""
        files = sorted(self.folder.glob(f"{TABLE_NAMES[table]}-*.seg"))
        parts = [np.fromfile(path, RAW[table], offset=64) for path in files]
        rows: Rows = np.concatenate(parts) if parts else np.empty(0, RAW[table])
        valid: Rows = rows[rows[VALID_FIELD[table]] != 0]
        return valid

    @property
    def sends(self) -> Rows:
        """All written rows of its sends, segment after segment."""
        return self.rows(TableId.SENDS)

    def events(self, kind: int) -> Rows:
        """Rows of a consumer's journal of one kind; without what readiness probes."""
        rows = self.rows(TableId.DELIVERIES)
        rows = rows[rows["kind"] == kind]
        ours: Rows = rows[(rows["header"]["kind"] != Kind.PROBE) | (rows["header"]["length"] == 0)]
        return ours

    @property
    def probes_delivered(self) -> int:
        """How many probes it was handed. A partition may hold more than one: probing is tried
        again."""
        rows = self.rows(TableId.DELIVERIES)
        return int((rows[rows["kind"] == Event.DELIVER]["header"]["kind"] == Kind.PROBE).sum())

    def errors_of(self, rows: Rows) -> set[str]:
        """Texts of the errors that rows name."""
        lines = (self.folder / "names.jsonl").read_text().splitlines()
        names = {row["id"]: row["text"] for row in map(json.loads, lines)}
        return {names[int(number)] for number in np.unique(rows["error"]) if number}

    def bounds(self) -> dict[str, dict[str, Any]]:
        """An audit's bounds, by stream."""
        lines = (self.folder / "log_bounds.jsonl").read_text().splitlines()
        return {row["stream"]: row for row in map(json.loads, lines)}


# -- what rows say


def dense(rows: Rows) -> bool:
    """Sequences are 0, 1, 2 ... in every lane, in the order of the rows."""
    lanes: Iterable[Any] = np.unique(rows["lane"])
    return all(
        np.array_equal(seqs := rows["seq"][rows["lane"] == lane], np.arange(len(seqs)))
        for lane in lanes
    )


def messages(rows: Rows) -> list[tuple[int, int]]:
    """(lane, seq) of sends or of headers."""
    return [(int(row["lane"]), int(row["seq"])) for row in rows]


def places(rows: Rows) -> list[tuple[int, ...]]:
    """Where messages are, in the order of the rows."""
    return [tuple(map(int, row)) for row in rows[["stream", "ledger", "position", "batch"]]]


def outcomes(rows: Rows) -> set[Outcome]:
    """Which outcomes rows have."""
    return set(map(Outcome, rows["outcome"].tolist()))


def after_refusals(sends: Rows) -> Rows:
    """Return the rows of each lane after its first FAIL, in their order."""
    lanes = (sends[sends["lane"] == lane] for lane in np.unique(sends["lane"]))
    later = (rows[np.logical_or.accumulate(rows["outcome"] == Outcome.FAIL)][1:] for rows in lanes)
    return np.concatenate([sends[:0], *later])
