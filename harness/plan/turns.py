"""Whose turn it is: how often each lane of a producer comes in a round of its messages.

Without shares and skew every lane comes once, one after the other, and no table is needed.
Otherwise a table of turns, drawn from the seed, is handed to the workers: message i has the lane of
turn i modulo its length.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from harness.contracts.plan import Plan, ProducerPlan
from harness.errors import ScenarioError

#: Turns of a table: what is rarer than one in so many messages comes as often as that all the same.
TURNS: Final = 16_384
#: Lanes of which each can still come.
MOST_LANES: Final = TURNS // 2


def turns_of(plan: Plan, producer: ProducerPlan) -> list[int]:
    """Indexes of the producer's lanes, in the order of its groups; none = each once.

    Raises:
        ScenarioError: more lanes than a table has turns for.
    """
    if not producer.skew and not producer.topic_shares:
        return []
    weights = _weights(plan, producer)
    if len(weights) > MOST_LANES:
        raise ScenarioError(
            f"{producer.name} has {len(weights):,} lanes: with skew or topic shares at most {MOST_LANES:,}",
            hint="lower keys, or the number of topics",
        )
    table = [lane for lane, count in enumerate(_counts(weights)) for _ in range(count)]
    random.Random(f"{plan.seed} turns {producer.instance}").shuffle(table)
    return table


def _weights(plan: Plan, producer: ProducerPlan) -> list[float]:
    """Return the weight of each lane: its topic's share, divided within the topic by Zipf's law,
    with key n as n to the power -skew.
    """
    weights: list[float] = []
    for group in (plan.lane_groups[index] for index in producer.groups):
        ranks = [(n + 1) ** -producer.skew for n in range(group.count)]
        share = producer.topic_shares.get(group.topic, float(group.count))
        weights += [share * rank / sum(ranks) for rank in ranks]
    return weights


def _counts(weights: Sequence[float]) -> list[int]:
    """Turns of each lane, at least one (largest remainders)."""
    left = TURNS - len(weights)
    exact = [weight / sum(weights) * left for weight in weights]
    counts = [int(each) for each in exact]
    by_remainder = sorted(range(len(weights)), key=lambda k: (counts[k] - exact[k], k))
    for k in by_remainder[: left - sum(counts)]:
        counts[k] += 1
    return [1 + count for count in counts]
