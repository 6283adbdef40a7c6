"""Shares a rate out to producers, and lays a rate that was measured over a plan.

With ``load.rate: {at_most: N}`` a plan is made for N and says so in `Plan.rate_choice`. Before the
first round `harness.run.calibration` measures what the machine keeps; `at_rate` then gives the plan
that rate, so that the schedules of all producers are as exact as with a fixed one. From there on
the plan is the one place where the rate, and how it came about, is written: judging, replay and
report read it there.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.contracts.plan import Plan, RateStep
from harness.errors import ScenarioError


def shared_out(rate: int, shares: Sequence[float]) -> list[int]:
    """Whole messages per second for each share; their sum is the rate exactly (largest remainders).

    Raises:
        ScenarioError: one would get less than 1 msg/s.
    """
    total = sum(shares)
    exact = [rate * share / total for share in shares]
    rates = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (rates[i] - exact[i], i))
    for index in by_remainder[: rate - sum(rates)]:
        rates[index] += 1
    if 0 in rates:
        raise ScenarioError(
            f"load.rate: {rate} msg/s shared by {len(shares)} producers leaves one with less than 1 msg/s",
            hint="raise load.rate, or lower the producers' count",
        )
    return rates


def at_rate(plan: Plan, rate: int) -> Plan:
    """The plan with ``rate`` msg/s in all, shared among its producers as before.

    Raises:
        ScenarioError: as `shared_out`.
    """
    scheduled = plan.scheduled
    rates = shared_out(rate, [producer.rate_per_s for producer in scheduled])
    by_instance = {each.instance: float(rates[at]) for at, each in enumerate(scheduled)}
    producers = [
        producer.model_copy(update={"rate_per_s": by_instance.get(producer.instance, 0.0)})
        for producer in plan.producers
    ]
    return plan.model_copy(update={"rate_per_s": float(rate), "producers": producers})


def decided(plan: Plan, rate: int, steps: Sequence[RateStep]) -> Plan:
    """The plan at a rate within its limits, with the measurements that it rests on."""
    choice = plan.rate_choice
    assert choice is not None
    chosen = max(min(rate, choice.at_most_per_s), choice.at_least_per_s)
    return at_rate(plan, chosen).model_copy(
        update={"rate_choice": choice.model_copy(update={"steps": list(steps)})}
    )


def is_open(plan: Plan) -> bool:
    """Its rate is still to be measured."""
    return plan.rate_choice is not None and not plan.rate_choice.steps


def as_recorded(plan: Plan, earlier: Plan) -> Plan:
    """The plan at the rate of an earlier run, if it leaves its rate open and the earlier one was
    measured."""
    found = earlier.rate_choice
    if not is_open(plan) or found is None or not found.steps:
        return plan
    return decided(plan, int(earlier.rate_per_s), found.steps)


def rate_words(plan: Plan) -> str:
    """``50,000 msg/s``, ``at most 50,000 msg/s``, ``31,000 msg/s of at most 50,000`` or
    ``unlimited``."""
    rate = f"{plan.rate_per_s:,.0f} msg/s"
    if plan.rate_choice is not None:
        most = f"at most {plan.rate_choice.at_most_per_s:,}"
        return f"{most} msg/s" if is_open(plan) else f"{rate} of {most}"
    return rate if plan.rate_per_s else "unlimited"
