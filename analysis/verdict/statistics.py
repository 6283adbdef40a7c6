"""Rates of a class in two arms: an exact interval for each, an exact test between them; a shift of
a mean; and the correction for asking many such questions at once.

Pure; rates are exact (integers and fractions of the standard library): samples are tens of rounds,
not millions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb, exp, inf, isclose, lgamma, log, log1p

CONFIDENCE = 0.95
#: A difference at or below this two-sided p counts as proved.
ALPHA = 0.05
_BISECTIONS = 60


def fisher_exact(hits_a: int, rounds_a: int, hits_b: int, rounds_b: int) -> float:
    """Two-sided p of Fisher's exact test: how often chance alone would divide the hits at least as
    oddly.

    Every division with the same totals that is at most as likely as the observed one counts (the
    definition that R and SciPy use).

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


def highest_rate(rounds: int, confidence: float = CONFIDENCE) -> float:
    """The exact one-sided (Clopper-Pearson) upper bound of a rate after so many rounds without a
    hit: a class of a higher rate would have shown with this confidence.

    Raises:
        ValueError: no rounds.
    """
    return clopper_pearson(0, rounds, 2 * confidence - 1)[1]


def fewest_rounds() -> int:
    """Rounds an arm from which on a perfect result (all against none) can be told from chance."""
    rounds = 1
    while fisher_exact(rounds, rounds, 0, rounds) > ALPHA:
        rounds += 1
    return rounds


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p (Holm 1979): telling those at or below alpha keeps the chance of
    even one false one among all of them at alpha, however they depend on each other."""
    made = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        made[index] = highest
    return made


def student_p(t: float, degrees: float) -> float:
    """Two-sided p of Student's t with so many degrees of freedom.

    Raises:
        ValueError: no degrees of freedom.
    """
    if degrees <= 0:
        raise ValueError(f"{degrees} degrees of freedom")
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) if abs(t) < inf else 0.0


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularized incomplete beta function, by its continued fraction (DLMF 8.17.22), Lentz's
    way."""
    if x <= 0.0 or x >= 1.0:
        return float(x > 0.0)
    if x > (a + 1) / (a + b + 2):  # where this fraction converges slowly, the other side's is quick
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1))
    product = d
    for m in range(1, 400):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1.0 / (1.0 + numerator * d), 1.0 + numerator / c
            product *= c * d
        if isclose(c * d, 1.0, rel_tol=1e-14):
            break
    return front * product


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
