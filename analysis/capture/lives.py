"""Later lives of clients: workers of a run that the plan does not have, each in the place of a client of it.

What is planned of a client (library, options, promises, deadline) holds for each of its lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]


def all_lives(planned: Sequence[Row], workers: Sequence[Row], number: str) -> Iterator[Row]:
    """The clients of a plan, each followed by its later lives under their own names and numbers.

    ``number``: what a client is numbered by, ``instance`` or ``session``; ``workers``: of the manifest.
    """
    for client in planned:
        yield client
        for worker in workers:
            if worker.get("life_of") == client["name"] and number in worker:
                yield {**client, "name": worker["name"], number: worker[number]}


def absences_ns(plan: Row, workers: Sequence[Row]) -> Iterator[tuple[Row, int, int]]:
    """Producer of the plan, and from when to when it was between two lives.

    One that did not come back is not away: what it should have sent is missing.
    """
    for client in plan.get("producers") or ():
        lives = [w for w in workers if client["name"] in (w.get("name"), w.get("life_of"))]
        lives = sorted(lives, key=lambda w: int(w.get("t_start_ns") or 0))
        for life, later in pairwise(lives):
            until_ns, begin_ns = int(life.get("offers_until_ns") or 0), int(later.get("offers_from_ns") or 0)
            if 0 < until_ns < begin_ns:
                yield client, until_ns, begin_ns
