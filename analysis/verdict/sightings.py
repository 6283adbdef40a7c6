"""Finds the text that tells a bug from others of its class: where a client waits, what it says,
logs.

Only what the clients under load left is read. The brokers' logs are shared by all rounds of a
campaign, so a line there may be another round's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.capture.hangs import KINDS
from harness.contracts import read_document, read_rows
from harness.contracts.rows import EventRow, Manifest, NameRow
from harness.rundir import RunDir

_LOG = "stderr.log"


@dataclass(frozen=True, slots=True)
class Sighting:
    """Attributes:
    where: what has the text in it; empty = nothing that could be read.
    unread: what could not be read and might have it; empty = all was read.
    """

    where: str = ""
    unread: str = ""


def look_for(run: RunDir, text: str) -> Sighting:
    """The first place that has the text: the call that a client waits in, its errors, its log.

    Raises:
        UsageError: a file of the run is damaged.
    """
    workers = [row for row in read_document(run.manifest, Manifest).workers if row.role != "audit"]
    lacking: list[str] = []
    events = [row for row in read_rows(run.events, EventRow) if row.kind in (*KINDS, "client-died")]
    for where, said in (*_in_events(events, lacking), *_in_errors(run, lacking)):
        if text in said:
            return Sighting(where)
    for worker in workers:
        if line := _line_with(run.worker(worker.name) / _LOG, text, lacking, worker.name):
            return Sighting(f"{worker.name} logged: {line}")
    return Sighting(unread="; ".join(dict.fromkeys(lacking)))


def _in_events(rows: list[EventRow], lacking: list[str]) -> Iterator[tuple[str, str]]:
    for row in rows:
        verb = "waits" if row.kind in KINDS else "crashed"
        where = f"{row.worker} {verb} in {row.where}" if row.where else f"{row.worker}: {row.text}"
        yield where, "\n".join((row.where, row.thread, row.text, row.why, *row.frames))
        if row.kind in KINDS and not row.frames:
            lacking.append(f"no stacks of {row.worker} were available")


def _in_errors(run: RunDir, lacking: list[str]) -> Iterator[tuple[str, str]]:
    if not run.names.exists():
        lacking.append("the errors of the clients are not sealed")
    for row in read_rows(run.names, NameRow):
        if row.kind == "error":
            yield f"an error of a send: {row.text}", row.text


def _line_with(path: Path, text: str, lacking: list[str], name: str) -> str:
    try:
        with path.open(errors="replace") as lines:
            return next((line.strip() for line in lines if text in line), "")
    except OSError:
        lacking.append(f"no log is available of {name}")
        return ""
