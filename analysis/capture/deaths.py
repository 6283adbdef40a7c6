"""Reads the clients that gave themselves up: in events.jsonl workers tell their words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from harness.contracts.rows import EventRow

#: The kind of event that a worker writes once, when its client says that it is of no further use.
KIND: Final = "client-died"
#: The client made an error of it; another client has its name; its settings ask for it.
ERROR, FENCED, ASKED = "error", "fenced", "asked"


@dataclass(frozen=True, slots=True)
class Death:
    """A client that declared itself dead. ``name`` and ``text``: of its error, in its own words."""

    worker: str
    t_ns: int
    name: str
    text: str
    why: str = ERROR


def deaths(events: Iterable[EventRow]) -> dict[str, Death]:
    """Worker -> the first that it said."""
    found: dict[str, Death] = {}
    for row in events:
        if row.kind == KIND:
            found.setdefault(row.worker, Death(row.worker, row.t_ns, row.name, row.text, row.why or ERROR))
    return found
