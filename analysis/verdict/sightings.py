"""Finds the text by which a bug is told from others of its class: where a client waits, what it says, logs.

Only what the clients under load left is read. The logs of brokers are those of all rounds of a campaign, so
a line there may be another round's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.rundir import RunDir, read_json, read_jsonl

#: Events of workers that wait for something that does not come, with the call in which they do.
_WAITING = ("hang", "stall", "stuck")
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
    workers = [row for row in read_json(run.manifest).get("workers", ()) if row.get("role") != "audit"]
    lacking: list[str] = []
    events = [row for row in read_jsonl(run.events) if row.get("kind") in (*_WAITING, "client-died")]
    for where, said in (*_in_events(events, lacking), *_in_errors(run, lacking)):
        if text in said:
            return Sighting(where)
    for worker in workers:
        name = str(worker["name"])
        path = run.worker(name) / _LOG
        if line := _line_with(path, text, lacking, name):
            return Sighting(f"{name} logged: {line}")
    return Sighting(unread="; ".join(dict.fromkeys(lacking)))


def _in_events(rows: list[dict[str, Any]], lacking: list[str]) -> Iterator[tuple[str, str]]:
    for row in rows:
        name, call = str(row.get("worker", "")), str(row.get("where", ""))
        said = [str(row.get(key, "")) for key in ("where", "thread", "text", "why")]
        stack = row.get("stack", "")
        said += map(str, stack) if isinstance(stack, list) else [str(stack)]
        yield f"{name} waits in {call}" if call else f"{name}: {row.get('text', '')}", "\n".join(said)
        if row["kind"] in _WAITING and not stack:
            lacking.append(f"no stacks of {name} were to be had")


def _in_errors(run: RunDir, lacking: list[str]) -> Iterator[tuple[str, str]]:
    if not run.names.exists():
        lacking.append("the errors of the clients are not sealed")
    for row in read_jsonl(run.names):
        if row.get("kind") == "error":
            yield f"an error of a send: {row.get('text', '')}", str(row.get("text", ""))


def _line_with(path: Path, text: str, lacking: list[str], name: str) -> str:
    try:
        with path.open(errors="replace") as lines:
            return next((line.strip() for line in lines if text in line), "")
    except OSError:
        lacking.append(f"there is no log of {name}")
        return ""
