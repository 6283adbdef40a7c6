"""Faults as the result shows them: each with the outage that it met and the recovery after its
heal."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.capture.context import SETTLE_NS
from analysis.findings import FaultRow
from analysis.series import Outage
from harness.faultlog import FaultRecord


def met_by(record: FaultRecord, outages: Sequence[Outage]) -> list[Outage]:
    """Outages during a fault that was injected, or shortly after it."""
    start, end = record.inject_ns, record.end_ns
    assert start is not None
    until = (end if end is not None else start) + SETTLE_NS
    return [o for o in outages if o.start_ns < until and o.end_ns > start]


def out_at(end_ns: int, outages: Sequence[Outage]) -> list[Outage]:
    """Return the outages that a fault met and that its end did not end."""
    return [o for o in outages if o.start_ns <= end_ns < o.end_ns]


def fault_row(record: FaultRecord, outages: Sequence[Outage] | None, zero_ns: int) -> FaultRow:
    """``outages``: of the run; None = not known. ``zero_ns``: start of load."""
    start, end = record.inject_ns, record.end_ns
    outage_s = recovery_s = None
    if start is not None and record.effective and outages is not None:
        met = met_by(record, outages)
        outage_s = max((round((o.end_ns - o.start_ns) / 1e9, 3) for o in met), default=0.0)
        if end is not None:
            recovery_s = _recovery_s(end, out_at(end, met))
    return FaultRow(
        id=record.id,
        kind=record.kind,
        target=record.target,
        t_s=record.planned_s if start is None else round((start - zero_ns) / 1e9, 3),
        until_s=None if end is None else round((end - zero_ns) / 1e9, 3),
        effective=record.effective,
        healed=record.recovered,
        evidence=record.evidence,
        outage_s=outage_s,
        recovery_s=recovery_s,
        skipped=record.skipped,
    )


def _recovery_s(end_ns: int, out_then: Sequence[Outage]) -> float | None:
    """From the end of the fault until the last stream that was out has an ok again; None if one
    never had."""
    if any(o.open for o in out_then):
        return None
    return max((round((o.end_ns - end_ns) / 1e9, 3) for o in out_then), default=0.0)
