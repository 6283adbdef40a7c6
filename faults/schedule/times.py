"""Computes when a step fires, in seconds after the start of load, from its schedule and a seed.
Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from faults.kit.errors import StepProblem
from faults.kit.params import FaultSchedule

#: More is a typo in `every`; the densest schedule that showed a bug fired 890 times. In a load of
#: hours one a second is not a typo.
MAX_FIRINGS: Final = 10_000


def most_firings(load_s: float) -> int:
    """Return the largest number of firings of one load."""
    return max(MAX_FIRINGS, int(load_s))


_DIGITS: Final = 6  # microseconds: finer than any timer, and readable


def firing_times(schedule: FaultSchedule, seed: str, load_s: float, for_s: float) -> list[float]:
    """Every firing of a step, ascending.

    Args:
        seed: text that is this step's alone.
        for_s: how long one firing stays applied.

    Raises:
        StepProblem: a firing would miss the load, or there are none, or too many.
    """
    times: list[float] = []
    for number, base_s in enumerate(_bases(schedule, seed, load_s, for_s)):
        times += _burst(schedule, base_s, f"{seed}:{number}")
        if len(times) > most_firings(load_s):
            raise StepProblem("every", f"more than {most_firings(load_s)} firings")
    if not times:
        raise StepProblem("every", f"does not fire and end within the {load_s:g} s of load")
    late_s = max(times)
    if late_s >= load_s:
        raise StepProblem(
            _key_at_fault(schedule, load_s),
            f"would fire at {late_s:g} s, but the load ends at {load_s:g} s: no message would be affected",
        )
    return sorted(times)


def _key_at_fault(schedule: FaultSchedule, load_s: float) -> str:
    if schedule.at is not None and schedule.at >= load_s:
        return "at"
    return "storm" if schedule.storm else "until"


def _bases(schedule: FaultSchedule, seed: str, load_s: float, for_s: float) -> Iterator[float]:
    """The firings without their bursts. Each counts from the first one, so nothing drifts."""
    if schedule.every is None:
        assert schedule.at is not None
        yield schedule.at
        return
    first_s = schedule.every if schedule.from_ is None else schedule.from_
    last_s = _last_s(schedule, load_s, for_s)
    for number in range(most_firings(load_s) + 1):
        jitter_s = random.Random(f"{seed}:{number}:jitter").uniform(0.0, schedule.jitter)
        t_s = round(first_s + number * schedule.every + jitter_s, _DIGITS)
        if t_s > last_s or t_s >= load_s:
            return
        yield t_s


def _last_s(schedule: FaultSchedule, load_s: float, for_s: float) -> float:
    """By default the last burst has time to fire and heal under load, or its effect would be half
    seen."""
    if schedule.until is None:
        burst_s = (schedule.storm.times - 1) * schedule.storm.gap[1] if schedule.storm else 0.0
        return load_s - for_s - burst_s
    if schedule.until > load_s:
        raise StepProblem("until", f"{schedule.until:g} s is after the end of load at {load_s:g} s")
    return schedule.until


def _burst(schedule: FaultSchedule, base_s: float, seed: str) -> Iterator[float]:
    yield base_s
    if schedule.storm is None:
        return
    rng, t_s = random.Random(f"{seed}:gaps"), base_s
    for _ in range(schedule.storm.times - 1):
        t_s = round(t_s + rng.uniform(*schedule.storm.gap), _DIGITS)
        yield t_s
