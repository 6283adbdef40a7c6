"""Finds the nights from which on a rate of hits, or the level of a figure, is another one.

Every morning asks, of each series, whether its last stretch (the nights since its last change)
falls into two. For hits: Fisher's exact test between the last 1, 2, 4, 8 or 16 nights and those
before. For figures: the two-sample t of the split that divides the logarithms best (the
likelihood-ratio test for one shift of a normal mean, Hawkins 1977), with Worsley's (1979)
Bonferroni bound over the splits; applied again to the stretch that is left it is binary
segmentation (Scott and Knott 1974). Both p hold for the whole search through one series;
`analysis.verdict.statistics.holm` then corrects for the number of series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, log, sqrt
from typing import Final

import numpy as np

from analysis.verdict.statistics import fisher_exact, student_p
from experiments.history.series import Metric, Tally, total

#: The last nights that are held against those before.
WINDOWS: Final = (1, 2, 4, 8, 16)
#: Nights that make a level, and nights that make another one: a single odd night is not a change.
BEFORE, AFTER = 4, 2
#: The longest stretch of a figure that is looked at, in nights.
LONGEST: Final = 60
#: Figures are taken to vary by one percent at least: equal nights prove no precision.
_LEAST_SPREAD: Final = 0.01
#: p of a step in a control cell: lenient, since what is found wakes no one.
_STEP: Final = 0.01

_fisher = lru_cache(maxsize=100_000)(fisher_exact)


@dataclass(frozen=True, slots=True)
class Split:
    """Where a stretch falls into two: index of the first night of the later part, and p of the
    search."""

    at: int
    p: float


def split_of_hits(
    nights: Sequence[Tally], correlation: Callable[[int], float] | None = None
) -> Split | None:
    """The most telling split of a stretch; None where no split can tell anything (no hit, or only
    hits).

    Args:
        correlation: last nights -> the correlation of two rounds of a night, as the nights before
            say; None = 0.
    """
    whole = total(nights)
    if whole.hits in (0, whole.rounds):
        return None
    windows = [width for width in WINDOWS if width < len(nights)]
    if not windows:
        return None
    p_values = []
    after, taken = Tally(0, 0), 0
    for width in windows:
        after = total([after, *nights[len(nights) - width : len(nights) - taken]])
        taken = width
        before = Tally(whole.hits - after.hits, whole.rounds - after.rounds)
        p = _fisher(after.hits, after.rounds, before.hits, before.rounds)
        if correlation is not None:
            p = max(p, _of_nights(p, before, after, len(nights) - width, width, correlation(width)))
        p_values.append(p)
    return Split(_likeliest(nights), min(1.0, min(p_values) * len(windows)))


def _of_nights(
    p: float, before: Tally, after: Tally, nights: int, width: int, correlation: float
) -> float:
    """p where rounds of a night go together: between the one of rounds and the one of whole nights.

    The rounds of a night are worth 1 + (rounds - 1) x correlation times less (the design effect),
    and the logarithm of p is in proportion to what they are worth.
    """
    rounds = (before.rounds + after.rounds) / (nights + width)
    if rounds <= 1.0 or correlation <= 0.0:
        return p
    share = (1 - 1 / (1 + (rounds - 1) * correlation)) / (1 - 1 / rounds)
    old, new = before.hits * nights / before.rounds, after.hits * width / after.rounds
    is_up = after.hits * before.rounds > before.hits * after.rounds
    least = (ceil(old), floor(new)) if is_up else (floor(old), ceil(new))
    of_nights = _fisher(least[1], width, least[0], nights)
    return float(p ** (1 - share) * of_nights**share)


def _likeliest(nights: Sequence[Tally]) -> int:
    """The split at which two rates explain the hits best."""
    whole, before = total(nights), Tally(0, 0)
    best, at = -float("inf"), 1
    for index, night in enumerate(nights[:-1], start=1):
        before = total([before, night])
        after = Tally(whole.hits - before.hits, whole.rounds - before.rounds)
        likelihood = _log_likelihood(before) + _log_likelihood(after)
        if likelihood > best:
            best, at = likelihood, index
    return at


def _log_likelihood(tally: Tally) -> float:
    hits, misses = tally.hits, tally.rounds - tally.hits
    return sum(n * log(n / tally.rounds) for n in (hits, misses) if n)


def split_of_level(
    logs: np.ndarray, least: float, variogram: Callable[[int], np.ndarray] | None = None
) -> Split | None:
    """The best split of a stretch of logarithms, one a night; None where the stretch is too short.

    Levels that differ by less than the factor ``least`` are not a change, whatever the test says: p
    is 1.

    The later nights are tested without the most extreme one: no single odd night makes a change.

    Args:
        variogram: split -> as of `experiments.history.dependence.Drift`; None = nights are
            independent.
    """
    found = _best_split(logs, BEFORE)
    if found is None:
        return None
    at, splits = found
    before, after = logs[:at], logs[at:]
    is_up = after.mean() > before.mean()
    odd = int(np.argmax(after) if is_up else np.argmin(after))
    rest = np.delete(after, odd)
    if (rest.mean() - before.mean()) * (1 if is_up else -1) < log(least):
        return Split(at, 1.0)
    p = _t_test(before, rest)
    if variogram is not None:
        nights = np.delete(np.arange(len(logs)), at + odd)
        p = max(p, _t_test_of_drift(logs[nights], at, nights, variogram(at)))
    return Split(at, min(1.0, p * splits))


def steps_of(logs: np.ndarray) -> np.ndarray:
    """Binary segmentation of a whole series: at each night, the mean of the segment that it lies
    in."""
    found = _best_split(logs, AFTER)
    if found is not None:
        at, splits = found
        if _t_test(logs[:at], logs[at:]) * splits <= _STEP:
            return np.concatenate([steps_of(logs[:at]), steps_of(logs[at:])])
    return np.full(len(logs), logs.mean() if len(logs) else 0.0)


def _best_split(logs: np.ndarray, before: int) -> tuple[int, int] | None:
    """(index that divides the logarithms best, number of splits looked at); None where they are too
    few."""
    n = len(logs)
    if n < before + AFTER:
        return None
    at = np.arange(before, n - AFTER + 1)
    sums = np.cumsum(logs)
    difference = (sums[-1] - sums[at - 1]) / (n - at) - sums[at - 1] / at
    return int(at[np.argmax(difference**2 * at * (n - at))]), len(at)


def shift_p(logs: np.ndarray, at: int) -> tuple[float, float]:
    """The shift of the logarithm at a split that was chosen elsewhere, and its p."""
    return float(logs[at:].mean() - logs[:at].mean()), _t_test(logs[:at], logs[at:])


def logs_of(values: Sequence[float], metric: Metric) -> np.ndarray:
    """Return the logarithms of a figure; values below its floor count as the floor."""
    made: np.ndarray = np.log(np.maximum(np.asarray(values, dtype=float), metric.floor))
    return made


def _t_test_of_drift(logs: np.ndarray, at: int, nights: np.ndarray, variogram: np.ndarray) -> float:
    """Two-sided p of the two-sample t where the level wanders: the variance of the difference of
    the means and that within the parts are what the variogram says, the degrees of freedom are
    Satterthwaite's.

    Args:
        nights: when each of ``logs`` was measured.
    """
    parts = np.zeros(len(logs), dtype=int)
    parts[at:] = 1
    # a covariance, but for a constant
    likeness = -variogram[np.abs(nights[:, None] - nights[None, :])]
    weights = np.where(parts, 1 / (len(logs) - at), -1 / at)
    averaging = np.where(parts[:, None] == parts[None, :], np.abs(weights)[:, None], 0.0)
    centring = np.eye(len(logs)) - averaging
    # Neighbours differ by what is not drift: as many degrees of freedom as independent nights have,
    # nearly.
    steps = np.diff(centring, axis=0)[np.diff(parts) == 0]
    of_steps, of_levels = steps @ likeness @ steps.T, centring @ likeness @ centring.T
    degrees = float(of_steps.trace() ** 2 / (of_steps * of_steps).sum())
    spread = max(
        float(((each @ logs) ** 2).sum() / made.trace())
        for each, made in ((steps, of_steps), (centring, of_levels))
    )
    error = sqrt(max(spread, _LEAST_SPREAD**2) * float(weights @ likeness @ weights))
    return student_p(float(weights @ logs) / error, degrees)


def _t_test(before: np.ndarray, after: np.ndarray) -> float:
    """Two-sided p of the pooled two-sample t."""
    degrees = len(before) + len(after) - 2
    spread = (
        float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum()) / degrees
    )
    error = sqrt(max(spread, _LEAST_SPREAD**2) * (1 / len(before) + 1 / len(after)))
    return student_p(float(after.mean() - before.mean()) / error, degrees)
