"""Estimates from the history how far rounds of one night, and nights that follow each other, go
together.

A test that takes a night's rounds for independent is wrong where they share their fate (a disk that
fills, a seed that is unlucky for all), and one that takes nights for independent where a figure
drifts. Both are estimated from all series of a suite, and from the one that is tested the more, the
more it has to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from experiments.history.series import Tally

#: Nights apart at which figures are held against each other.
LAGS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
#: The weight of the other series besides the tested one: expected differences of rounds, and pairs
#: of nights.
_OTHERS_ROUNDS, _OTHERS_PAIRS = 2.0, 8.0
#: Differences of rounds that a suite is taken to have shown before it has any: they are independent
#: at first.
_FIRST_ROUNDS = 1.0


@dataclass(frozen=True, slots=True)
class Within:
    """How often two rounds of one night came out differently, and two of nights that follow each
    other.

    Where rounds are independent the two are alike; one less their ratio is the intraclass
    correlation. Only neighbours are held against each other: a change that lasts is one odd pair of
    nights, not many.
    """

    seen: float = 0.0
    expected: float = 0.0

    def __add__(self, other: Within) -> Within:
        return Within(self.seen + other.seen, self.expected + other.expected)

    def __sub__(self, other: Within) -> Within:
        return Within(self.seen - other.seen, self.expected - other.expected)

    @classmethod
    def running(cls, nights: Sequence[Tally]) -> list[Within]:
        """Return the sums within the first 0, 1, 2 ... nights."""
        made, last = [cls()], None
        for night in nights:
            rate = night.hits / night.rounds
            seen = 2 * rate * (night.rounds - night.hits) / max(1, night.rounds - 1)
            expected = seen if last is None else last + rate - 2 * last * rate
            made.append(made[-1] + cls(seen, expected))
            last = rate
        return made

    def correlation(self, others: Within) -> float:
        """Return the correlation of two rounds of a night, from 0 (independent) to 1 (all have the
        same result).
        """
        pooled = (others.expected - others.seen) / (others.expected + _FIRST_ROUNDS)
        missing = self.expected - self.seen + _OTHERS_ROUNDS * pooled
        return min(1.0, max(0.0, missing / (self.expected + _OTHERS_ROUNDS)))


class Drift:
    """How much more the figures of nights differ that are further apart, of all series of a metric.

    The variogram of a series by lag, in units of its value at lag 1, by the robust estimator of
    Cressie and Hawkins (1980): it is 1 at all lags where nights are independent, and grows where a
    level wanders.
    """

    def __init__(self, every: Sequence[np.ndarray]) -> None:
        """``every``: logarithms of each series, one a night."""
        self._every = every
        found = [_roots([logs]) for logs in every]
        self._ratios, self._pairs = (
            np.array([each[0] for each in found]),
            np.array([each[1] for each in found]),
        )

    def variogram(self, number: int, at: int) -> np.ndarray:
        """Return the variogram of series ``number`` at lags 0, 1, 2 ... up to its length, in units
        of that at lag 1; 0 at lag 0.

        Args:
            at: where it may have changed: nights on both sides are not held against each other.
        """
        logs = self._every[number]
        own, pairs = _roots([logs[:at], logs[at:]])
        weights = self._pairs.copy()
        weights[number] = 0.0
        pooled = np.array(
            [_weighted_median(self._ratios[:, k], weights[:, k]) for k in range(len(LAGS))]
        )
        others = np.minimum(weights.sum(axis=0), _OTHERS_PAIRS)
        mixed = (own * pairs + pooled * others) / np.maximum(pairs + others, 1.0)
        known = (pairs + others) > 0
        grown = np.maximum.accumulate(np.where(known, np.maximum(1.0, mixed**4), 1.0))
        made: np.ndarray = np.interp(
            np.log(np.maximum(1, np.arange(len(logs)))), np.log(LAGS), grown
        )
        made[0] = 0.0
        return made


def _roots(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(mean root of the differences at each lag over lag 1's, number of pairs); 1 where none is."""
    roots, pairs = np.zeros(len(LAGS)), np.zeros(len(LAGS))
    for k, lag in enumerate(LAGS):
        for part in parts:
            if lag < len(part):
                roots[k] += np.sqrt(np.abs(part[lag:] - part[:-lag])).sum()
                pairs[k] += len(part) - lag
    roots /= np.maximum(pairs, 1.0)
    first = roots[0] if roots[0] > 0 else 1.0
    return np.where(pairs > 0, roots / first, 1.0), pairs


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """1 where nothing has a weight."""
    order = np.argsort(values)
    summed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(summed, summed[-1] / 2)]) if summed[-1] > 0 else 1.0
