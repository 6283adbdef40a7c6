"""The rows of ``faults.jsonl`` folded into one `FaultRecord` a fault.

`faults.engine.journal` writes the rows; docs/capture-format.md says what they hold. A fault is over when
nothing of it is applied any more and the wait for the cluster has ended, whether the cluster was whole by
then or not. One that could not be undone, or whose end nobody wrote down, is not over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from harness.errors import UsageError
from harness.rundir import read_jsonl

#: Of acknowledgements that a broker had confirmed: it has them still, it may have lost some, nobody can tell.
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
        skipped: why it was not injected.
    """

    id: int
    kind: str = ""
    selector: str = ""
    targets: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    planned_s: float = 0.0
    inject_ns: int | None = None
    heal_ns: int | None = None
    end_ns: int | None = None
    recovered: bool = False
    effective: bool = False
    evidence: str = ""
    confirmed_acks: ConfirmedAcks = "unknown"
    skipped: str = ""

    @property
    def is_applied(self) -> bool:
        return self.inject_ns is not None and self.end_ns is None

    @property
    def hit(self) -> str:
        """``kafka-1``; of many, how many: ``orders (12 targets)``; before it was injected: the selector."""
        if len(self.targets) > _TARGETS_SHOWN:
            return f"{self.selector} ({len(self.targets)} targets)"
        return ", ".join(self.targets) or self.selector

    @property
    def target(self) -> str:
        """`hit` with the selector that chose it: ``kafka-1 (leader-of:orders)``."""
        is_said = len(self.targets) > _TARGETS_SHOWN or self.selector in ("", self.hit)
        return self.hit if is_said else f"{self.hit} ({self.selector})"

    def after(self, row: Mapping[str, Any]) -> FaultRecord:
        """What is known with one more row. Events of a later version change nothing."""
        known = {"inject": _inject, "effect": _effect, "heal": _heal, "healed": _healed, "skipped": _skipped}
        change = known.get(str(row["event"]))
        return replace(self, **change(self, row)) if change else self


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": str(row["kind"]),
        "selector": str(row.get("target", "")),
        "planned_s": float(row.get("planned_s", 0.0)),
    }


def _inject(_: FaultRecord, row: Mapping[str, Any]) -> dict[str, Any]:
    targets = tuple(str(target) for target in row.get("targets", ()))
    hit = {"targets": targets, "params": dict(row.get("params", {}))}
    return {**_named(row), **hit, **_acks(row), "inject_ns": int(row["t_ns"])}


def _acks(row: Mapping[str, Any]) -> dict[str, Any]:
    """Rows without it (an older capture, a heal by another process) leave what is known."""
    said = row.get("confirmed_acks")
    return {"confirmed_acks": said} if said in get_args(ConfirmedAcks) else {}


def _effect(_: FaultRecord, row: Mapping[str, Any]) -> dict[str, Any]:
    return {"effective": bool(row.get("effective")), "evidence": str(row.get("evidence", ""))}


def _heal(record: FaultRecord, row: Mapping[str, Any]) -> dict[str, Any]:
    return {"heal_ns": int(row["t_ns"])} if record.heal_ns is None else {}


def _healed(_: FaultRecord, row: Mapping[str, Any]) -> dict[str, Any]:
    """``undone`` came with ``ok: false`` for a cluster that is slow to recover; without it, it is applied."""
    recovered = bool(row.get("ok", False))
    is_over = recovered or bool(row.get("undone", False))
    return {**_acks(row), "recovered": recovered, "end_ns": int(row["t_ns"]) if is_over else None}


def _skipped(_: FaultRecord, row: Mapping[str, Any]) -> dict[str, Any]:
    return {**_named(row), "skipped": str(row.get("reason", ""))}


class FaultLog:
    """Faults by id, from rows in the order they were written."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._records: dict[int, FaultRecord] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> FaultRecord:
        """Take one more row; return what is known of its fault now."""
        number = int(row["id"])
        record = self._records.get(number, FaultRecord(number)).after(row)
        self._records[number] = record
        return record

    @property
    def records(self) -> list[FaultRecord]:
        """In order of id."""
        return [record for _, record in sorted(self._records.items())]


def missing_rows(records: Iterable[FaultRecord], planned: int, *, is_complete: bool) -> list[str]:
    """What the rows of a run lack, in sentences. Each planned fault has an ``inject`` or a ``skipped`` row
    once the run is complete; nothing can be told of a fault whose first row is gone.

    Args:
        planned: fault steps of the plan; each stands for one fault or more.
    """
    found = list(records)
    if planned and is_complete and not found:
        return [f"faults.jsonl has no row, and {planned} faults were planned"]
    return [f"faults.jsonl lacks the first row of fault #{each.id}" for each in found if not each.kind]


def read_faults(path: Path) -> list[FaultRecord]:
    """The faults of a run in order of id; none when there is no file.

    Raises:
        UsageError: a row is not JSON, or not one of a fault.
    """
    log = FaultLog()
    for number, row in enumerate(read_jsonl(path), start=1):
        try:
            log.add(row)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise UsageError(
                f"{path}, line {number} is not an event of a fault: {error!r}",
                hint="docs/capture-format.md lists the fields of each event",
            ) from error
    return log.records
