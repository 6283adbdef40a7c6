"""Reads the clients that gave themselves up: in events.jsonl workers tell their words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

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


def deaths(events: Iterable[Mapping[str, Any]]) -> dict[str, Death]:
    """Worker -> the first that it said."""
    found: dict[str, Death] = {}
    for row in events:
        if row.get("kind") == KIND and "worker" in row:
            worker = str(row["worker"])
            told = (str(row.get("name", "")), str(row.get("text", "")), str(row.get("why", ERROR)))
            found.setdefault(worker, Death(worker, int(row["t_ns"]), *told))
    return found
