"""Rates of a class in two arms: an exact interval for each, an exact test between them.

Pure and exact (integers and fractions of the standard library); samples are tens of rounds, not millions.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import comb, isclose

CONFIDENCE = 0.95
#: A difference at or below this two-sided p counts as proved.
ALPHA = 0.05
_BISECTIONS = 60


def fisher_exact(hits_a: int, rounds_a: int, hits_b: int, rounds_b: int) -> float:
    """Two-sided p of Fisher's exact test: how often chance alone would divide the hits at least as oddly.

    Every division with the same totals that is no likelier than the observed one counts (the definition
    that R and SciPy use).

    Raises:
        ValueError: more hits than rounds, or fewer than none.
    """
    _check(hits_a, rounds_a)
    _check(hits_b, rounds_b)
    rounds, hits = rounds_a + rounds_b, hits_a + hits_b
    ways = [
        comb(rounds_a, in_a) * comb(rounds_b, hits - in_a)
        for in_a in range(max(0, hits - rounds_b), min(hits, rounds_a) + 1)
    ]
    observed = comb(rounds_a, hits_a) * comb(rounds_b, hits_b)
    return float(Fraction(sum(n for n in ways if n <= observed), comb(rounds, hits)))


def clopper_pearson(hits: int, rounds: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a rate; never too narrow, also at 0 and at all.

    Raises:
        ValueError: no rounds, or more hits than rounds.
    """
    _check(hits, rounds)
    if rounds == 0:
        raise ValueError("no rounds, no rate")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else _rate_where(lambda p: 1 - _at_most(hits - 1, rounds, p), tail)
    high = 1.0 if hits == rounds else 1 - _rate_where(lambda q: _at_most(hits, rounds, 1 - q), tail)
    return low, high


def fewest_rounds(alpha: float = ALPHA) -> int:
    """Rounds an arm from which on a perfect result (all against none) can be told from chance."""
    rounds = 1
    while fisher_exact(rounds, rounds, 0, rounds) > alpha:
        rounds += 1
    return rounds


def _check(hits: int, rounds: int) -> None:
    if not 0 <= hits <= rounds:
        raise ValueError(f"{hits} hits in {rounds} rounds")


def _at_most(hits: int, rounds: int, p: float) -> float:
    """Chance of at most ``hits`` in ``rounds`` at rate ``p``."""
    return sum(comb(rounds, k) * p**k * (1 - p) ** (rounds - k) for k in range(hits + 1))


def _rate_where(growing: Callable[[float], float], target: float) -> float:
    """The rate at which a growing function reaches ``target``."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if growing(middle) < target else (low, middle)
        if isclose(low, high, rel_tol=1e-12):
            break
    return (low + high) / 2
