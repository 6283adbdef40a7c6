"""Reads the clients that died: those that gave themselves up, and those that took their process
down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from harness.contracts.rows import EventRow

#: The kind of event that a worker writes once, when its client says that it is of no further use.
KIND: Final = "client-died"
#: The client made an error of it; another client has its name; its settings ask for it.
ERROR, FENCED, ASKED = "error", "fenced", "asked"
#: The client took its process down; the harness saw it.
CRASHED: Final = "crashed"
#: An instance of an application under test ended by itself.
ENDED: Final = "ended"


@dataclass(frozen=True, slots=True)
class Death:
    """A client that declared itself dead, or that crashed.

    ``name`` and ``text``: its error in its own words; ``where``: the call that crashed.
    """

    worker: str
    t_ns: int
    name: str
    text: str
    why: str = ERROR
    where: str = ""


def deaths(events: Iterable[EventRow]) -> dict[str, Death]:
    """Worker -> its crash, or else the first that it said."""
    found: dict[str, Death] = {}
    for row in events:
        if row.kind == KIND:
            why = row.why or ERROR
            death = Death(row.worker, row.t_ns, row.name, row.text, why, row.where)
            if why == CRASHED:
                found[row.worker] = death
            found.setdefault(row.worker, death)
    return found
