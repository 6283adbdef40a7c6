"""Exact statistics against published tables."""

from __future__ import annotations

import pytest

from analysis.verdict.statistics import (
    ALPHA,
    clopper_pearson,
    fewest_rounds,
    fisher_exact,
    highest_rate,
    holm,
    student_p,
)


@pytest.mark.parametrize(
    ("table", "p"),
    [
        ((3, 4, 1, 4), 0.485714),  # Fisher's lady tasting tea, two-sided
        ((8, 10, 1, 6), 0.034965),  # the example of R's and SciPy's manuals
        ((10, 10, 0, 10), 1.0825e-05),
        ((4, 4, 0, 4), 0.028571),
        ((3, 3, 0, 3), 0.1),
        ((5, 10, 0, 10), 0.032508),
        ((4, 10, 0, 10), 0.086687),
        ((0, 10, 0, 10), 1.0),
        ((10, 10, 10, 10), 1.0),
        ((0, 0, 0, 5), 1.0),
    ],
)
def test_fisher_exact_agrees_with_the_tables(table: tuple[int, int, int, int], p: float) -> None:
    assert fisher_exact(*table) == pytest.approx(p, rel=1e-4)


def test_fisher_exact_does_not_care_which_arm_is_first() -> None:
    for hits in range(8):
        assert fisher_exact(hits, 7, 2, 9) == fisher_exact(2, 9, hits, 7)


@pytest.mark.parametrize(
    ("hits", "rounds", "low", "high"),
    [
        (0, 10, 0.0, 0.30850),
        (10, 10, 0.69150, 1.0),
        (5, 10, 0.18709, 0.81291),
        (9, 10, 0.55498, 0.99747),
        (1, 1, 0.025, 1.0),
        (4, 20, 0.05733, 0.43661),
    ],
)
def test_clopper_pearson_agrees_with_the_tables(
    hits: int, rounds: int, low: float, high: float
) -> None:
    assert clopper_pearson(hits, rounds) == pytest.approx((low, high), abs=1e-5)


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    [
        (2.228139, 10, 0.05),
        (12.7062, 1, 0.05),
        (-3.290527, 1e7, 0.001),
        (0, 5, 1.0),
        (6.859, 9, 7.3984e-05),
    ],
)
def test_student_p_agrees_with_the_tables(t: float, degrees: float, p: float) -> None:
    assert student_p(t, degrees) == pytest.approx(p, rel=1e-3)


def test_holm_adjusts_each_p_by_those_that_are_left() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("rounds", "rate"), [(1, 0.95), (10, 0.258866), (212, 0.014031), (3000, 0.000998)]
)
def test_rounds_without_a_hit_bound_the_rate(rounds: int, rate: float) -> None:
    """1 - 0.05 ** (1 / n); for many rounds the rule of three, 3 / n."""
    assert highest_rate(rounds) == pytest.approx(rate, abs=1e-6)


def test_few_rounds_cannot_prove_anything() -> None:
    assert fewest_rounds() == 4
    assert fisher_exact(3, 3, 0, 3) > ALPHA >= fisher_exact(4, 4, 0, 4)


@pytest.mark.parametrize("table", [(3, 2, 0, 2), (-1, 2, 0, 2), (0, 2, 3, 2)])
def test_impossible_counts_are_refused(table: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="hits in"):
        fisher_exact(*table)
    with pytest.raises(ValueError, match="no rounds"):
        clopper_pearson(0, 0)
