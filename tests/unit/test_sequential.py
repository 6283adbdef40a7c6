"""The sequential test: its errors are at most those stated, followed exactly and in simulated
rounds."""

from __future__ import annotations

import copy
import random
from collections import Counter

import pytest

from analysis.verdict.sequential import SequentialDecision, SequentialTest


def _exact_ends(rate: float, asked: SequentialTest) -> dict[SequentialDecision, float]:
    """The chance of each end at a rate, by following every sequence of rounds."""
    ends = dict.fromkeys(SequentialDecision, 0.0)
    going = {(0, 0): (asked, 1.0)}
    while going:
        reached: dict[tuple[int, int], tuple[SequentialTest, float]] = {}
        for test, chance in going.values():
            for shown, share in ((True, rate), (False, 1 - rate)):
                after = copy.copy(test)
                after.add(shown)
                if after.is_over:
                    ends[after.decision] += chance * share
                else:
                    key = (after.shown, after.counted)
                    reached[key] = (after, reached.get(key, (after, 0.0))[1] + chance * share)
        going = reached
    return ends


@pytest.mark.parametrize("error", [0.05, 0.01, 0.001])
def test_no_error_is_larger_than_stated(error: float) -> None:
    test = SequentialTest(error_present=error, error_absent=error, most_rounds=60)
    for rate in (0.5, 0.6, 0.9, 1.0):
        assert _exact_ends(rate, test)[SequentialDecision.NOT_SHOWN] <= error
    for rate in (0.02, 0.01, 0.0):
        assert _exact_ends(rate, test)[SequentialDecision.SHOWN] <= error


@pytest.mark.parametrize("rate", [0.6, 0.02])
def test_simulated_rounds_end_right_as_often_as_stated_and_undecided_hardly_ever(
    rate: float,
) -> None:
    dice = random.Random(1945)
    ends: Counter[SequentialDecision] = Counter()
    rounds = 0
    for _ in range(4000):
        test = SequentialTest()
        while not test.is_over:
            test.add(dice.random() < rate)
        ends[test.decision] += 1
        rounds += test.counted
    right, wrong = SequentialDecision.SHOWN, SequentialDecision.NOT_SHOWN
    if rate == 0.02:
        right, wrong = wrong, right
    assert ends[wrong] <= 0.01 * 4000
    assert ends[right] >= 0.98 * 4000
    assert rounds / 4000 < 8.0


def test_two_hits_or_seven_clean_rounds_settle_it() -> None:
    test = SequentialTest()
    assert test.add(True) is SequentialDecision.UNDECIDED
    assert test.add(True) is SequentialDecision.SHOWN
    assert str(test) == "shown in 2 of 2 rounds (error at most 1 %)"
    clean = SequentialTest()
    assert [clean.add(False) for _ in range(7)][-2:] == [
        SequentialDecision.UNDECIDED,
        SequentialDecision.NOT_SHOWN,
    ]
    assert str(clean) == "not shown in 7 rounds (error at most 1 %)"


def test_where_a_class_never_shows_by_chance_one_round_settles_it() -> None:
    assert SequentialTest(absent_at_most=0).add(True) is SequentialDecision.SHOWN
    assert SequentialTest(shows_at_least=1).add(False) is SequentialDecision.NOT_SHOWN


def test_rounds_without_exposure_do_not_count_and_are_told() -> None:
    test = SequentialTest(most_left_out=1)
    test.leave_out("no fault took effect")
    assert (test.counted, test.error, test.is_over) == (0, None, False)
    test.leave_out("no fault took effect")
    assert test.is_over
    assert test.decision is SequentialDecision.UNDECIDED
    assert str(test) == "undecided in 0 of 0 rounds, 2 did not count: no fault took effect"


def test_a_reason_with_other_numbers_is_told_once() -> None:
    test = SequentialTest()
    for why in ("4,222 sends were open", "no fault took effect", "51 sends were open"):
        test.leave_out(why)
    assert str(test).endswith("3 did not count: 4,222 sends were open; no fault took effect")


def test_it_is_given_up_undecided_and_takes_no_more_rounds() -> None:
    test = SequentialTest(most_rounds=3)
    for shown in (True, False, False):
        test.add(shown)
    assert (test.is_over, test.decision) == (True, SequentialDecision.UNDECIDED)
    with pytest.raises(ValueError, match="the test is over"):
        test.add(True)
    with pytest.raises(ValueError, match="the test is over"):
        test.leave_out("")


@pytest.mark.parametrize(
    "asked",
    [
        {"shows_at_least": 0.02},
        {"absent_at_most": -0.1},
        {"shows_at_least": 1.1},
        {"error_present": 0.0},
        {"error_absent": 0.5},
        {"most_rounds": 0},
    ],
)
def test_what_is_no_test_is_refused(asked: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"absent at most|errors|rounds"):
        SequentialTest(**asked)  # type: ignore[arg-type]
