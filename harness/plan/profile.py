"""Reads a plan's profile: which share of its rate is asked for when.

The rows of a profile, (seconds, share of the rate) from the start of load on, are the load that is
asked for. The warm-up, which is not part of it, has its mean rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from harness.contracts.plan import Plan, ProducerPlan

Rows = Sequence[tuple[float, float]]


def mean_share(rows: Rows) -> float:
    """Return the mean share of the rate over the whole profile; 1 without a profile."""
    total_s = sum(seconds for seconds, _ in rows)
    return sum(seconds * share for seconds, share in rows) / total_s if total_s else 1.0


def mean_rate_per_s(plan: Plan) -> float:
    """Messages per second on average, warm-up included; 0 = unlimited."""
    return plan.rate_per_s * mean_share(plan.profile)


def share_at(rows: Rows, elapsed_s: float) -> float:
    """Return the share of the rate at a moment of the load; the mean before it."""
    if elapsed_s < 0 or not rows:
        return mean_share(rows)
    ends = accumulate(seconds for seconds, _ in rows)
    return next(
        (share for end, (_, share) in zip(ends, rows, strict=True) if elapsed_s < end), rows[-1][1]
    )


def combined(producers: Sequence[ProducerPlan]) -> list[tuple[float, float]]:
    """Return the profile of producers with their own profiles together: a row from each change to
    the next.
    """
    changes = {0.0}
    for producer in producers:
        changes |= set(accumulate(seconds for seconds, _ in producer.profile))
    borders = sorted(changes)
    merged = [0.0, *(after for before, after in pairwise(borders) if after - before > 1e-9)]
    rate = sum(producer.rate_per_s for producer in producers)

    def asked(t_s: float) -> float:
        return sum(each.rate_per_s * share_at(each.profile, t_s) for each in producers)

    return [(end - begin, asked((begin + end) / 2) / rate) for begin, end in pairwise(merged)]


def spans_ns(plan: Plan, producer: ProducerPlan) -> list[tuple[int, float]]:
    """A profile as its worker follows it: (duration in whole ns, share of the rate), warm-up
    first."""
    own = producer.profile or plan.profile
    rows = [(plan.warm_up_s, mean_share(own)), *own]
    borders = [0, *(round(end_s * 1e9) for end_s in accumulate(seconds for seconds, _ in rows))]
    return [
        (end - begin, share)
        for (begin, end), (_, share) in zip(pairwise(borders), rows, strict=True)
    ]


def shares_over(rows: Rows, columns: int) -> list[float]:
    """The mean share in each of so many equal parts of the load."""
    total_s = sum(seconds for seconds, _ in rows)
    ends = [0.0, *accumulate(seconds for seconds, _ in rows)]
    sums = [0.0, *accumulate(seconds * share for seconds, share in rows)]
    borders = [total_s * column / columns for column in range(columns + 1)]
    reached, at = [], 0
    for border in borders:
        while at + 2 < len(ends) and ends[at + 1] <= border:
            at += 1
        reached.append(sums[at] + (border - ends[at]) * rows[at][1])
    return [(after - before) * columns / total_s for before, after in pairwise(reached)]
