"""Reads the hangs and stalls that the harness noticed during the run: rows of events.jsonl with a stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from analysis.findings import HangRow

KINDS = ("hang", "stall", "stuck")
Row = Mapping[str, Any]


def noticed(events: Iterable[Row]) -> list[Row]:
    """The rows that the harness wrote; a worker's own event may be called a stall too."""
    return [row for row in events if row.get("kind") in KINDS and ("stacks" in row or "since_ns" in row)]


def hang_rows(events: Iterable[Row], epoch_ns: int) -> list[HangRow]:
    """In the order in which they were noticed; ``epoch_ns``: start of load."""
    return [
        HangRow(
            worker=str(row.get("worker", "")),
            kind=str(row["kind"]),
            t_s=(int(row["t_ns"]) - epoch_ns) / 1e9,
            text=str(row.get("text", "")),
            where=str(row.get("where", "")),
            thread=str(row.get("thread", "")),
            stack=[str(line) for line in row.get("stack", ())],
            stacks=str(row.get("stacks", "")),
        )
        for row in noticed(events)
    ]


def waits_in(events: Iterable[Row]) -> dict[str, str]:
    """Worker -> the call that it was seen waiting in."""
    return {str(row["worker"]): str(row["where"]) for row in noticed(events) if row.get("where")}
