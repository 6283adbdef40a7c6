"""Later lives of clients: workers of a run that the plan does not have, each in the place of a
client of it.

What is planned of a client (library, options, promises, deadline) holds for each of its lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from harness.contracts.plan import ConsumerPlan, Plan, ProducerPlan
from harness.contracts.rows import WorkerRow

Client = TypeVar("Client", ProducerPlan, ConsumerPlan)


def all_lives(planned: Sequence[Client], workers: Sequence[WorkerRow]) -> Iterator[Client]:
    """The clients of a plan, each followed by its later lives under their own names and numbers.

    ``workers``: of the manifest.
    """
    for client in planned:
        yield client
        number = "instance" if isinstance(client, ProducerPlan) else "session"
        for worker in workers:
            if worker.life_of == client.name and (own := getattr(worker, number)) is not None:
                yield client.model_copy(update={"name": worker.name, number: own})


def absences_ns(
    plan: Plan, workers: Sequence[WorkerRow]
) -> Iterator[tuple[ProducerPlan, int, int]]:
    """Producer of the plan, and from when to when it was between two lives.

    One that did not come back is not away: what it should have sent is missing.
    """
    for client in plan.producers:
        lives = [w for w in workers if client.name in (w.name, w.life_of)]
        for life, later in pairwise(sorted(lives, key=lambda w: w.t_start_ns)):
            if 0 < life.offers_until_ns < later.offers_from_ns:
                yield client, life.offers_until_ns, later.offers_from_ns
