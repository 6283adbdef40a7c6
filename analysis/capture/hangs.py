"""Reads the hangs and stalls that the harness noticed during the run: rows of events.jsonl with a
stack."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.findings import HangRow
from harness.contracts.rows import EventRow

KINDS = ("hang", "stall", "stuck")


def noticed(events: Iterable[EventRow]) -> list[EventRow]:
    """The rows that the harness wrote; a worker's own event may be called a stall too."""
    return [
        row
        for row in events
        if row.kind in KINDS and (row.stacks is not None or row.since_ns is not None)
    ]


def hang_rows(events: Iterable[EventRow], epoch_ns: int) -> list[HangRow]:
    """In the order in which they were noticed; ``epoch_ns``: start of load."""
    return [
        HangRow(
            worker=row.worker,
            kind=row.kind,
            t_s=(row.t_ns - epoch_ns) / 1e9,
            text=row.text,
            where=row.where,
            thread=row.thread,
            stack=row.frames,
            stacks=row.stacks or "",
        )
        for row in noticed(events)
    ]


def waits_in(events: Iterable[EventRow]) -> dict[str, str]:
    """Worker -> the call that it was seen waiting in."""
    return {row.worker: row.where for row in noticed(events) if row.where}
