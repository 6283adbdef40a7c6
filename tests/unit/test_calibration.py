"""A load that claims no rate: what is measured, what is decided from it, and for whom."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.contracts.plan import Plan, RateStep
from harness.errors import ScenarioError
from harness.plan.build import build_plans
from harness.plan.rates import as_recorded, decided, is_open, rate_words
from harness.run.calibration import HEADROOM, rounded, step_words, with_rates
from harness.scenario.model import Scenario

STEP = RateStep(
    variant="a",
    rate_per_s=50_000,
    tried_per_s=75_000,
    acked_per_s=52_310,
    late_s=1.5,
    open=9,
    held=False,
)


def plans_of(rate: object, **more: object) -> list[Plan]:
    variants = {
        name: {"override": {"load": {"producers": {"p": {"options": {"acks": acks}}}}}}
        for name, acks in (("a", 1), ("b", "all"))
    }
    data = {"name": "x", "rounds": 2, "variants": variants, "load": {"rate": rate, **more}}
    return build_plans(Scenario.model_validate(data), seed=1)


class Machine:
    """Acknowledges so much in a second of a variant's messages; notes what it was asked."""

    def __init__(self, **acked_per_s: int) -> None:
        self.acked_per_s = acked_per_s
        self.asked: list[tuple[str, int]] = []

    def __call__(self, plan: Plan, rate: int) -> RateStep:
        self.asked.append((plan.variant, rate))
        tried = int(rate * HEADROOM)
        acked = min(tried, self.acked_per_s[plan.variant])
        return STEP.model_copy(
            update={
                "variant": plan.variant,
                "rate_per_s": rate,
                "tried_per_s": tried,
                "acked_per_s": acked,
                "held": acked == tried,
            }
        )


def rates(plans: list[Plan]) -> set[float]:
    return {plan.rate_per_s for plan in plans}


def test_a_machine_that_keeps_the_most_is_asked_once_for_each_variant_and_not_for_each_round() -> (
    None
):
    machine = Machine(a=100_000, b=75_000)
    assert rates(with_rates(plans_of({"at_most": 50_000}), machine)) == {50_000.0}
    assert machine.asked == [("b", 50_000), ("a", 50_000)]


def test_all_variants_get_the_rate_of_the_one_that_keeps_least() -> None:
    machine = Machine(a=100_000, b=46_700)
    found = with_rates(plans_of({"at_most": 50_000}), machine)
    assert rates(found) == {31_000.0}
    assert [rate for variant, rate in machine.asked if variant == "b"] == [50_000, 31_000]
    assert machine.asked[-1] == ("a", 31_000)  # no higher than the other one keeps
    assert {plan.producers[0].rate_per_s for plan in found} == {31_000.0}
    assert all(plan.rate_choice is not None and len(plan.rate_choice.steps) == 3 for plan in found)


def test_a_step_goes_lower_by_a_fifth_even_where_nearly_everything_was_acknowledged() -> None:
    machine = Machine(a=74_000, b=74_000)
    assert rates(with_rates(plans_of({"at_most": 50_000}), machine)) == {40_000.0}


def test_a_machine_that_keeps_nothing_gets_the_least_and_is_not_asked_for_ever() -> None:
    machine = Machine(a=0, b=0)
    assert rates(with_rates(plans_of({"at_most": 50_000}), machine)) == {1_000.0}
    assert machine.asked == [("b", 50_000), ("b", 1_000), ("a", 1_000)]


def test_rates_that_are_claimed_and_rates_that_were_measured_are_left_alone() -> None:
    never: Callable[[Plan, int], RateStep] = lambda plan, rate: pytest.fail("was measured")  # noqa: E731
    for plans in (plans_of(500), plans_of(500, unlimited=True)):
        assert with_rates(plans, never) == plans
    measured = [decided(plan, 31_000, [STEP]) for plan in plans_of({"at_most": 50_000})]
    assert with_rates(measured, never) == measured


def test_producers_share_the_measured_rate_as_they_share_the_most() -> None:
    producers = {"p": {"share": 2.0, "count": 2}, "q": {"share": 1.0}}
    plan = plans_of({"at_most": 50_000}, producers=producers)[0]
    assert [p.rate_per_s for p in decided(plan, 31_000, [STEP]).producers] == [
        10_334,
        10_333,
        10_333,
    ]


def test_a_least_that_leaves_a_producer_without_messages_is_refused_before_anything_is_started() -> (
    None
):
    with pytest.raises(ScenarioError, match="2 msg/s shared by 3 producers"):
        plans_of({"at_most": 100}, producers={"p": {"count": 3}})


def test_a_replay_has_the_rate_of_the_run_it_repeats() -> None:
    plan = plans_of({"at_most": 50_000})[0]
    earlier = decided(plan, 31_000, [STEP])
    again = as_recorded(plan, earlier)
    assert (again.rate_per_s, again.rate_choice) == (31_000.0, earlier.rate_choice)
    assert is_open(as_recorded(plan, plan))
    claimed = plans_of(500)[0]
    assert as_recorded(claimed, earlier) == claimed


def test_words() -> None:
    plan = plans_of({"at_most": 50_000})[0]
    assert rate_words(plan) == "at most 50,000 msg/s"
    assert rate_words(decided(plan, 31_000, [STEP])) == "31,000 msg/s of at most 50,000"
    assert rate_words(plans_of(500, unlimited=True)[0]) == "unlimited"
    assert step_words(STEP) == (
        "a: 52,310 of 75,000/s acknowledged, 1.5 s late: this machine does not keep 50,000/s"
    )


@pytest.mark.parametrize(
    ("rate", "down"), [(31_999, 31_000), (999.9, 990), (99, 99), (7, 7), (0, 0)]
)
def test_a_rate_is_rounded_down_to_two_digits(rate: float, down: int) -> None:
    assert rounded(rate) == down
