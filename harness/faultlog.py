"""The rows of ``faults.jsonl`` folded into one `FaultRecord` a fault.

`faults.engine.journal` writes the rows; docs/capture-format.md says what they hold. A fault is over
when nothing of it is applied any more and the wait for the cluster has ended, whether the cluster
was whole by then or not. One that could not be undone, or whose end was not written down, is not
over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from harness.contracts import typed
from harness.contracts.rows import FaultDetails, FaultEvent
from harness.errors import UsageError
from harness.rundir import Document, read_jsonl

#: Of acknowledgements that a broker had confirmed: it has them still, it may have lost some, or it
#: is not known.
ConfirmedAcks = Literal["kept", "at-risk", "unknown"]
_TARGETS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault. Times: CLOCK_MONOTONIC ns, None = it did not come to that.

    Attributes:
        selector: the target as the scenario has it (``leader-of:orders``).
        targets: what was hit.
        params: keys of the kind with every choice made.
        planned_s: seconds after the start of load.
        heal_ns: its undoing began for the first time.
        end_ns: it was over.
        recovered: the cluster was seen whole again after it.
        confirmed_acks: what it did to acknowledgements that a broker had confirmed.
        details: a topic that was ``remade`` is another one from ``heal_ns`` on.
        skipped: why it was not injected.
    """

    id: int
    kind: str = ""
    selector: str = ""
    targets: tuple[str, ...] = ()
    params: Document = field(default_factory=dict)
    planned_s: float = 0.0
    inject_ns: int | None = None
    heal_ns: int | None = None
    end_ns: int | None = None
    recovered: bool = False
    effective: bool = False
    evidence: str = ""
    confirmed_acks: ConfirmedAcks = "unknown"
    details: FaultDetails = field(default_factory=FaultDetails)
    skipped: str = ""

    @property
    def is_applied(self) -> bool:
        """Whether the fault was injected and is not undone yet."""
        return self.inject_ns is not None and self.end_ns is None

    @property
    def start_ns(self) -> int:
        """`inject_ns` of one that was injected."""
        assert self.inject_ns is not None
        return self.inject_ns

    @property
    def over_ns(self) -> int:
        """`end_ns` of one that is over, or that `closed` has closed."""
        assert self.end_ns is not None
        return self.end_ns

    @property
    def hit(self) -> str:
        """``kafka-1``; of many, how many: ``orders (12 targets)``; before it was injected: the
        selector."""
        if len(self.targets) > _TARGETS_SHOWN:
            return f"{self.selector} ({len(self.targets)} targets)"
        return ", ".join(self.targets) or self.selector

    @property
    def target(self) -> str:
        """`hit` with the selector that chose it: ``kafka-1 (leader-of:orders)``."""
        is_said = len(self.targets) > _TARGETS_SHOWN or self.selector in ("", self.hit)
        return self.hit if is_said else f"{self.hit} ({self.selector})"

    def after(self, row: FaultEvent) -> FaultRecord:
        """Return the state after one more row. Events of a later version change nothing."""
        known = {
            "inject": _inject,
            "effect": _effect,
            "heal": _heal,
            "healed": _healed,
            "skipped": _skipped,
        }
        change = known.get(row.event)
        return change(self, row) if change else self


def _named(record: FaultRecord, row: FaultEvent) -> FaultRecord:
    if not row.kind:
        raise ValueError(f"{row.event} without kind")
    return replace(record, kind=row.kind, selector=row.target, planned_s=row.planned_s)


def _inject(record: FaultRecord, row: FaultEvent) -> FaultRecord:
    hit = replace(
        _named(record, row), targets=row.targets, params=row.params, inject_ns=_moment(row)
    )
    return replace(hit, confirmed_acks=_acks(record, row))


def _moment(row: FaultEvent) -> int:
    if row.t_ns is None:
        raise ValueError(f"{row.event} without t_ns")
    return row.t_ns


def _acks(record: FaultRecord, row: FaultEvent) -> ConfirmedAcks:
    """Rows without it (an older capture, a heal by another process) leave what is known."""
    return next(
        (each for each in get_args(ConfirmedAcks) if each == row.confirmed_acks),
        record.confirmed_acks,
    )


def _effect(record: FaultRecord, row: FaultEvent) -> FaultRecord:
    return replace(record, effective=row.effective, evidence=row.evidence, details=row.details)


def _heal(record: FaultRecord, row: FaultEvent) -> FaultRecord:
    return replace(record, heal_ns=_moment(row)) if record.heal_ns is None else record


def _healed(record: FaultRecord, row: FaultEvent) -> FaultRecord:
    """``undone`` came with ``ok: false`` for a cluster that is slow to recover; without it, it is
    applied."""
    end_ns = _moment(row) if row.ok or row.undone else None
    return replace(record, confirmed_acks=_acks(record, row), recovered=row.ok, end_ns=end_ns)


def _skipped(record: FaultRecord, row: FaultEvent) -> FaultRecord:
    return replace(_named(record, row), skipped=row.reason)


class FaultLog:
    """Faults by id, from rows in the order they were written.

    Raises:
        ValueError: a row lacks what its event must say.
    """

    def __init__(self, rows: Iterable[FaultEvent] = ()) -> None:
        self._records: dict[int, FaultRecord] = {}
        for row in rows:
            self.add(row)

    def add(self, row: FaultEvent) -> FaultRecord:
        """Take one more row; return what is known of its fault now."""
        record = self._records.get(row.id, FaultRecord(row.id)).after(row)
        self._records[row.id] = record
        return record

    @property
    def records(self) -> list[FaultRecord]:
        """In order of id."""
        return [record for _, record in sorted(self._records.items())]


class FaultTail:
    """Follows ``faults.jsonl`` while it grows: each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = FaultLog()
        self._read_to = 0

    @property
    def is_any_applied(self) -> bool:
        """By the lines that are there now."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read_to += len(whole) + len(newline)
            for line in whole.splitlines():
                self._log.add(typed(json.loads(line), FaultEvent, str(self._path)))
        return any(fault.is_applied for fault in self._log.records)


def closed(records: Iterable[FaultRecord], last_ns: int) -> tuple[FaultRecord, ...]:
    """The faults that were injected. One that is not over lasts until ``last_ns``."""
    return tuple(
        each if each.end_ns is not None else replace(each, end_ns=max(last_ns, each.inject_ns))
        for each in records
        if each.inject_ns is not None
    )


def remade_topics(records: Iterable[FaultRecord]) -> dict[str, int]:
    """Topic -> since when it is another one of its name (CLOCK_MONOTONIC ns)."""
    found: dict[str, int] = {}
    for fault in records:
        for topic in fault.details.remade if fault.effective else ():
            found[topic] = max(found.get(topic, 0), fault.heal_ns or fault.over_ns)
    return found


def may_lack_what_was_read(records: Iterable[FaultRecord]) -> bool:
    """Whether a log may not hold what readers had of it before: files were damaged, or all copies
    lost what they had not synced."""
    return any(fault.details.damaged or fault.details.unkept for fault in records)


def missing_rows(records: Iterable[FaultRecord], planned: int, *, is_complete: bool) -> list[str]:
    """Return what the rows of a run lack, in sentences.

    Args:
        planned: fault steps of the plan; each is one fault or more.
    """
    found = list(records)
    if planned and is_complete and not found:
        return [f"faults.jsonl has no row, and {planned} faults were planned"]
    return [
        f"faults.jsonl lacks the first row of fault #{each.id}" for each in found if not each.kind
    ]


def read_faults(path: Path) -> list[FaultRecord]:
    """The faults of a run in order of id; none without a file.

    Raises:
        UsageError: a row is not JSON, or not one of a fault.
    """
    log = FaultLog()
    for number, row in enumerate(read_jsonl(path), start=1):
        where = f"{path}, line {number}"
        hint = "docs/capture-format.md lists the fields of each event"
        event = typed(row, FaultEvent, where, hint=hint)
        try:
            log.add(event)
        except ValueError as error:
            raise UsageError(f"{where} is not a fault event: {error}", hint=hint) from error
    return log.records
