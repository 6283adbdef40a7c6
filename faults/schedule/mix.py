"""A mix: random draws from a weighted set of faults, with quiet periods in which everything is
healed. Pure.

    - mix:
        of:
          - {fault: kill, target: random, for: 5s, weight: 3}
          - {fault: leader-move, topic: orders, weight: 5}
        every: 4s
        jitter: 2s
        quiet: {every: 30s, for: 10s}
        from: 5s
        until: 50s

A draw is a firing like any other: it has its place in the timeline before the run starts, and `run
--replay` repeats it. What could not be healed before the next quiet period, or before the load
ends, is not drawn; nor is a second fault that takes a node away while the first is applied.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import Field, model_validator

from faults.kit.errors import StepProblem
from faults.kit.injection import FaultKind
from faults.kit.params import FaultSchedule, Inventory, Params, keys_of, names
from faults.schedule.steps import find_kind, validated
from faults.schedule.times import most_firings
from harness.contracts.plan import FaultStep
from harness.durations import Seconds

_DIGITS: Final = 6
_EXAMPLE: Final = "such as {of: [{fault: kill, weight: 3}, {fault: pause}], every: 4s}"


class Quiet(Params):
    """Periods without faults."""

    every: Seconds = Field(
        gt=0, description="length of a round of faults and quiet, counted from `from`"
    )
    for_: Seconds = Field(
        alias="for", gt=0, description="the end of each round, in which nothing is applied"
    )

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.for_ >= self.every:
            raise ValueError(f"for ({self.for_:g} s) must be shorter than every ({self.every:g} s)")
        return self


class MixParams(Params):
    """The keys of a mix."""

    of: list[FaultStep] = Field(
        min_length=1,
        description="the faults to draw from: steps without times, each with a `weight` (default 1)",
    )
    every: Seconds = Field(gt=0, description="time from one draw to the next")
    jitter: Seconds = Field(0.0, description="each draw is delayed by a random time up to this")
    from_: Seconds | None = Field(
        None, alias="from", description="time of the first draw; default: `every`"
    )
    until: Seconds | None = Field(
        None, description="no draw happens after this time; default: the end of the load"
    )
    quiet: Quiet | None = Field(
        None, description="quiet periods: `{every: 30s, for: 10s}` is the last 10 s of each 30 s"
    )
    wait: Seconds | None = Field(
        None,
        description=(
            "a drawn fault that cannot begin (a node is still away) is tried for this long, but "
            "never in a quiet period; default: `every`"
        ),
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.jitter >= self.every:
            raise ValueError(
                f"jitter ({self.jitter:g} s) must be shorter than every ({self.every:g} s)"
            )
        return self


class Weight(Params):
    """Key that a mix adds to a kind's keys."""

    weight: float = Field(
        1.0, gt=0, le=1e6, description="chance of being drawn, against the others"
    )


@dataclass(frozen=True, slots=True)
class Draw:
    """One firing without its number. ``wait_s``: how long it may be tried."""

    t_s: float
    kind: FaultKind[Any]
    params: Any
    wait_s: float


@dataclass(frozen=True, slots=True)
class MixEntry:
    """One fault of the set. ``ends_s``: from injected to the beginning of its heal, at most."""

    kind: FaultKind[Any]
    params: Any
    weight: float
    ends_s: float


@dataclass(frozen=True, slots=True)
class Mix:
    """A checked mix."""

    params: MixParams
    entries: tuple[MixEntry, ...]

    @property
    def first_s(self) -> float:
        return self.params.every if self.params.from_ is None else self.params.from_

    def quiet_periods(self, load_s: float) -> list[tuple[float, float]]:
        """(begin, end) of each, seconds after the start of load, cut off at its end."""
        quiet = self.params.quiet
        if quiet is None:
            return []
        last_s = load_s if self.params.until is None else self.params.until
        periods, number = [], 1
        while (start_s := self.first_s + number * quiet.every - quiet.for_) < last_s:
            periods.append(
                (round(start_s, _DIGITS), round(min(start_s + quiet.for_, load_s), _DIGITS))
            )
            number += 1
        return periods


def read_mix(step: FaultStep, inventory: Inventory) -> Mix:
    """A checked mix from a raw step ``{mix: {...}}``.

    Raises:
        StepProblem: the key and what is wrong with it.
    """
    if others := [str(key) for key in step if key != "mix"]:
        raise StepProblem(
            others[0], "a mix has no other keys next to it; its keys belong inside `mix`"
        )
    if not isinstance(step["mix"], Mapping):
        raise StepProblem("mix", f"must be a mapping {_EXAMPLE}, got {step['mix']!r}")
    try:
        params = validated(MixParams, step["mix"])
    except StepProblem as problem:
        raise _inside("mix", problem) from None
    entries = []
    for number, raw in enumerate(params.of):
        try:
            entries.append(_entry(raw, inventory))
        except StepProblem as problem:
            raise _inside(f"mix.of[{number}]", problem) from None
    return Mix(params, tuple(entries))


def _entry(raw: FaultStep, inventory: Inventory) -> MixEntry:
    kind = find_kind(raw.get("fault"))
    for key in raw:
        if key in keys_of(FaultSchedule):
            raise StepProblem(str(key), "not allowed here: the mix decides the times")
        if key not in (known := ["fault", "weight", *keys_of(kind.params)]):
            raise StepProblem(str(key), f"unknown key. Keys of {kind.kind}: {names(known)}")
    weight = validated(Weight, {"weight": raw["weight"]} if "weight" in raw else {}).weight
    rest = {key: value for key, value in raw.items() if key not in ("fault", "weight")}
    params = kind.complete(validated(kind.params, rest), inventory)
    ends_s = kind.ends_within_s(params)
    if ends_s is None:
        text = f"how long {kind.kind} takes is not known: give it a step of its own, with `at` or `every`"
        raise StepProblem("fault", text)
    return MixEntry(kind, params, weight, ends_s)


def _inside(where: str, problem: StepProblem) -> StepProblem:
    return StepProblem(f"{where}.{problem.key}" if problem.key else where, str(problem))


def draws(mix: Mix, seed: str, load_s: float) -> list[Draw]:
    """Every draw of a mix, ascending in time.

    Args:
        seed: text that is this step's alone.

    Raises:
        StepProblem: nothing is ever drawn, one of the set can never be, or there are too many.
    """
    params = mix.params
    if params.until is not None and params.until > load_s:
        raise StepProblem(
            "mix.until", f"{params.until:g} s is after the end of load at {load_s:g} s"
        )
    if (load_s - mix.first_s) / params.every > most_firings(load_s):
        raise StepProblem("mix.every", f"more than {most_firings(load_s)} draws")
    periods = mix.quiet_periods(load_s)
    _check_room(mix, periods, load_s)
    found: list[Draw] = []
    number, busy_s = -1, 0.0
    last_s = load_s if params.until is None else params.until
    while (base_s := mix.first_s + (number := number + 1) * params.every) <= last_s:
        rng = random.Random(f"{seed}:{number}:mix")
        t_s = round(base_s + rng.uniform(0.0, params.jitter), _DIGITS)
        edge_s = _edge_s(t_s, periods, load_s)
        fitting = [
            entry
            for entry in mix.entries
            if t_s + entry.ends_s < edge_s and (t_s >= busy_s or not entry.kind.takes_nodes)
        ]
        if t_s > last_s or not fitting:
            continue
        entry = rng.choices(fitting, [each.weight for each in fitting])[0]
        if entry.kind.takes_nodes:
            busy_s = t_s + entry.ends_s
        wait_s = params.every if params.wait is None else params.wait
        room_s = round(min(wait_s, edge_s - entry.ends_s - t_s), _DIGITS)
        found.append(Draw(t_s, entry.kind, entry.params, room_s))
    if not found:
        raise StepProblem("mix.every", f"never draws anything within the {load_s:g} s of load")
    return found


def _edge_s(t_s: float, periods: Sequence[tuple[float, float]], load_s: float) -> float:
    """When everything drawn at ``t_s`` must be healed; ``t_s`` itself within a quiet period."""
    at = bisect_right(periods, t_s, key=lambda period: period[1])  # the first that ends later
    return max(t_s, periods[at][0]) if at < len(periods) else load_s


def _check_room(mix: Mix, periods: Sequence[tuple[float, float]], load_s: float) -> None:
    """Refuse what is longer than the longest time between quiet periods."""
    begins = [mix.first_s, *(end_s for _, end_s in periods)]
    ends = [*(start_s for start_s, _ in periods), load_s]
    room_s = max(end_s - begin_s for begin_s, end_s in zip(begins, ends, strict=True))
    for number, entry in enumerate(mix.entries):
        if entry.ends_s >= room_s:
            text = f"can never be drawn: it takes {entry.ends_s:g} s, and the longest time without quiet"
            raise StepProblem(f"mix.of[{number}]", f"{text} is {max(0.0, room_s):g} s")
