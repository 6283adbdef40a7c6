"""Tells what changed: per cell and class *new*, *still*, *fixed* or *flaky*; per figure another
level.

The history is read night by night, as if each morning's page were written anew: what was reported
on a morning depends on that morning's history alone, so a page says the same when it is made twice.

For all series that are tested on a morning, Holm's method keeps the chance of telling any false
change at `ALPHA` for classes and for figures; bench/nights.py measures what is left of it. What
would be told if rounds and nights were independent is tested again with what the history says of
that (`experiments.history.dependence`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from math import exp
from typing import Any, Final

import numpy as np

from analysis.verdict.statistics import clopper_pearson, holm
from experiments.history.blame import Controls, differences
from experiments.history.dependence import Drift, Within
from experiments.history.detect import LONGEST, Split, logs_of, split_of_hits, split_of_level
from experiments.history.rounds import Round
from experiments.history.series import METRICS, Metric, Tally, figures, tallies, total

#: The chance that a morning tells any change that is none, at most; Fisher's test stays far below
#: it.
ALPHA: Final = {"class": 0.02, "figure": 0.01}
#: Nights that a hit rate is given over, and that a class stays on the page after its last hit.
RECENT: Final = 30


class Standing(StrEnum):
    """The state of a class in a cell this morning."""

    NEW = "new"  # a rise was reported this morning
    FIRST = "first seen"  # no night before showed it, and a rise is not proved
    STILL = "still"  # a rise was reported earlier, or every round shows it since the history began
    FIXED = "fixed"  # a fall to nothing was reported this morning
    FLAKY = "flaky"  # it shows now and then, and chance alone explains how often


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRate:
    """Hits among the rounds that could show a class, with the exact 95 % interval of their rate."""

    hits: int
    rounds: int
    low: float
    high: float

    @classmethod
    def from_tally(cls, tally: Tally) -> ClassRate:
        low, high = clopper_pearson(tally.hits, tally.rounds)
        return cls(hits=tally.hits, rounds=tally.rounds, low=round(low, 4), high=round(high, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that was reported.

    ``before``, ``after``: rates for a class; for a figure levels (geometric means, without what the
    machine added). ``p``: adjusted for the search and for all series of that morning. ``machine``:
    why it is the machine's; empty where it is not.
    """

    cell: str
    subject: str  # a class, or a metric
    kind: str  # class, figure
    at: str  # the first night of the new level
    told: str  # the night whose page told it
    is_up: bool
    is_worse: bool
    before: ClassRate | float
    after: ClassRate | float
    p: float
    machine: str = ""
    differences: list[str] = field(
        default_factory=list
    )  # versions and machine that differ from that night on


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassState:
    """A class in a cell, as it is on the last night.

    ``rate``: since the last change, over 30 nights at most. ``tonight``: of the last night; None
    when no round of it could show the class. ``is_first``: no night before the last showed it.
    """

    cell: str
    cls: str
    standing: Standing
    since: str  # night of the first hit since the last change; of *fixed*, the first night without
    rate: ClassRate
    tonight: ClassRate | None
    is_expected: bool
    is_first: bool
    is_control: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that was reported until the last night."""

    nights: list[str]
    changes: list[Change]  # oldest first
    states: list[ClassState]
    comparisons: dict[str, int]  # series that the last morning tested, by kind

    @property
    def fresh(self) -> list[Change]:
        """The changes that the last morning tells."""
        return [change for change in self.changes if self.nights and change.told == self.nights[-1]]


@dataclass(slots=True)
class _Series:
    """One tested series: its nights, its values, and where its last stretch begins."""

    cell: str
    subject: str
    nights: list[str]
    values: list[Any]
    start: int = 0
    running: list[Within] = field(default_factory=list)  # of hits, over its first nights
    direction: int = 0  # of the last change: +1 up, -1 down

    def stretch(self, night: str, longest: int | None = None) -> tuple[int, list[Any]] | None:
        """(index of its first night, values) up to a night; None when the series has nothing that
        night."""
        end = bisect_left(self.nights, night)
        if end == len(self.nights) or self.nights[end] != night:
            return None
        start = self.start if longest is None else max(self.start, end + 1 - longest)
        return start, self.values[start : end + 1]

    def within(self, before: str) -> Within:
        """How its rounds went together on the nights before one."""
        return self.running[bisect_left(self.nights, before)]


def story_of(rounds: Sequence[Round]) -> Story:
    """Read a suite's rounds night by night. Pure: the same rounds, the same story."""
    nights = sorted({row.night for row in rounds})
    hits = [
        _Series(*key, list(n), list(n.values()), running=Within.running([*n.values()]))
        for key, n in tallies(rounds).items()
    ]
    levels = [_Series(*key, list(n), list(n.values())) for key, n in figures(rounds).items()]
    controls = Controls.from_rounds(rounds)
    metrics = {metric.name: metric for metric in METRICS}
    changes: list[Change] = []
    comparisons = {"class": 0, "figure": 0}
    for night in nights:
        told, comparisons["class"] = _classes_told(hits, night)
        changes += [
            _class_change(each, night=night, controls=controls, rounds=rounds) for each in told
        ]
        told, comparisons["figure"] = _figures_told(levels, night, metrics, controls)
        changes += [
            _figure_change(
                each,
                night=night,
                metric=metrics[each.series.subject],
                controls=controls,
                rounds=rounds,
            )
            for each in told
        ]
    states = [
        state for series in hits if nights and (state := _state(series, nights, changes, rounds))
    ]
    return Story(nights=nights, changes=changes, states=states, comparisons=comparisons)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Where a series seems to turn.

    Attributes:
        first: index in the series of the first of ``values``, its last stretch.
        split: where within ``values``, and how likely that is chance.
    """

    series: _Series
    first: int
    values: list[Any]
    split: Split


def _classes_told(every: Sequence[_Series], night: str) -> tuple[list[_Turn], int]:
    """The series of hits that change this morning, with the stretch's first index; how many were
    tested."""
    tested: list[_Turn] = []
    for series in every:
        stretch = series.stretch(night)
        found = split_of_hits(stretch[1]) if stretch else None
        if stretch and found:
            tested.append(_Turn(series, *stretch, found))

    def careful() -> Callable[[_Turn], Split]:
        within = {id(series): series.within(night) for series in every}
        pooled = sum(within.values(), Within())

        def split(each: _Turn) -> Split:
            series, end = each.series, each.first + len(each.values)
            others = pooled - within[id(series)]

            def correlation(width: int) -> float:
                return series.running[end - width].correlation(others)

            return split_of_hits(each.values, correlation) or each.split

        return split

    return _proved(tested, ALPHA["class"], careful), len(tested)


def _figures_told(
    every: Sequence[_Series], night: str, metrics: Mapping[str, Metric], controls: Controls
) -> tuple[list[_Turn], int]:
    """Return the changes of figures, without what the machine added to them; see
    `_classes_told`."""
    logs: dict[int, np.ndarray] = {}
    tested: list[_Turn] = []
    for series in every:
        if stretch := series.stretch(night, LONGEST):
            metric = metrics[series.subject]
            logs[id(series)] = _own_logs(series, *stretch, metric, controls)
            if found := split_of_level(logs[id(series)], metric.least):
                tested.append(_Turn(series, *stretch, found))

    def careful() -> Callable[[_Turn], Split]:
        by_metric = {
            name: [id(each) for each in every if each.subject == name and id(each) in logs]
            for name in metrics
        }

        @cache
        def drift(metric: str) -> Drift:
            return Drift([logs[each] for each in by_metric[metric]])

        def split(each: _Turn) -> Split:
            own, metric = id(each.series), each.series.subject
            variogram = partial(drift(metric).variogram, by_metric[metric].index(own))
            return split_of_level(logs[own], metrics[metric].least, variogram) or each.split

        return split

    return _proved(tested, ALPHA["figure"], careful), len(tested)


def _proved(
    tested: Sequence[_Turn], alpha: float, careful: Callable[[], Callable[[_Turn], Split]]
) -> list[_Turn]:
    """Return the changes that remain after Holm's method. They are tested again with what the
    history shows about how rounds and nights depend on each other, which raises p.
    """
    told = _left(tested, alpha)
    if not told:
        return []
    again, candidates = careful(), {id(each.series) for each in told}
    return _left(
        [
            replace(each, split=again(each)) if id(each.series) in candidates else each
            for each in tested
        ],
        alpha,
    )


def _left(tested: Sequence[_Turn], alpha: float) -> list[_Turn]:
    adjusted = holm([each.split.p for each in tested])
    return [
        replace(each, split=Split(each.split.at, p))
        for each, p in zip(tested, adjusted, strict=True)
        if p <= alpha
    ]


def _own_logs(
    series: _Series, first: int, stretch: list[float], metric: Metric, controls: Controls
) -> np.ndarray:
    """Logarithms of a cell's figures without what the machine added to them; a control's as they
    are."""
    logs = logs_of(stretch, metric)
    if series.cell in controls.cells:
        return logs
    own: np.ndarray = logs - controls.offset(metric, series.nights[first : first + len(stretch)])
    return own


def _class_change(
    turn: _Turn, *, night: str, controls: Controls, rounds: Sequence[Round]
) -> Change:
    series, split = turn.series, turn.split
    before, after = total(turn.values[: split.at]), total(turn.values[split.at :])
    is_up = after.hits * before.rounds > before.hits * after.rounds
    series.start, series.direction = turn.first + split.at, 1 if is_up else -1
    at = series.nights[series.start]
    return Change(
        cell=series.cell,
        subject=series.subject,
        kind="class",
        at=at,
        told=night,
        is_up=is_up,
        is_worse=is_up != _is_expected(series, rounds),
        before=ClassRate.from_tally(before),
        after=ClassRate.from_tally(after),
        p=split.p,
        machine=controls.blame_class(series.cell, series.subject, at, night) if is_up else "",
        differences=differences(rounds, series.cell, at),
    )


def _figure_change(
    turn: _Turn, *, night: str, metric: Metric, controls: Controls, rounds: Sequence[Round]
) -> Change:
    series, split = turn.series, turn.split
    logs = _own_logs(series, turn.first, turn.values, metric, controls)
    before, after = exp(float(logs[: split.at].mean())), exp(float(logs[split.at :].mean()))
    is_up = after > before
    nights = series.nights[turn.first : turn.first + len(turn.values)]
    series.start, series.direction = turn.first + split.at, 1 if is_up else -1
    at = series.nights[series.start]
    return Change(
        cell=series.cell,
        subject=series.subject,
        kind="figure",
        at=at,
        told=night,
        is_up=is_up,
        is_worse=is_up == metric.is_worse_up,
        before=round(before, 3),
        after=round(after, 3),
        p=split.p,
        machine=controls.blame_figure(series.cell, metric, nights, at, after / before),
        differences=differences(rounds, series.cell, at),
    )


def _is_expected(series: _Series, rounds: Sequence[Round]) -> bool:
    return any(row.expect == series.subject for row in rounds if row.cell == series.cell)


def _state(
    series: _Series, nights: Sequence[str], changes: Sequence[Change], rounds: Sequence[Round]
) -> ClassState | None:
    """The state of a class on the last night; None if it was not seen in the last 30 and did not
    change."""
    last = nights[-1]
    recent = set(nights[-RECENT:])
    tallied = dict(zip(series.nights, series.values, strict=True))
    since = [n for n in series.nights[series.start :] if n in recent]
    rate = total([tallied[n] for n in since])
    changed = any(
        c.told == last and (c.cell, c.subject) == (series.cell, series.subject) for c in changes
    )
    if rate.rounds == 0 or (rate.hits == 0 and not changed):
        return None
    hit_nights = [n for n in series.nights if tallied[n].hits]
    since_start = [n for n in hit_nights if n >= series.nights[series.start]]
    return ClassState(
        cell=series.cell,
        cls=series.subject,
        standing=_standing(series, rate, is_changed=changed, is_first=hit_nights == [last]),
        since=since_start[0] if since_start else series.nights[series.start],
        rate=ClassRate.from_tally(rate),
        tonight=ClassRate.from_tally(tallied[last]) if last in tallied else None,
        is_expected=_is_expected(series, rounds),
        is_first=hit_nights == [last],
        is_control=any(row.is_control for row in rounds if row.cell == series.cell),
    )


def _standing(series: _Series, rate: Tally, *, is_changed: bool, is_first: bool) -> Standing:
    if is_changed and series.direction > 0:
        return Standing.NEW
    if is_first:
        return Standing.FIRST
    if rate.hits == 0:
        return Standing.FIXED
    shows_always = series.start == 0 and rate.hits == rate.rounds > 1
    return Standing.STILL if series.direction > 0 or shows_always else Standing.FLAKY


def by_cell(states: Sequence[ClassState]) -> Mapping[str, list[ClassState]]:
    """The states of each cell."""
    made: dict[str, list[ClassState]] = {}
    for state in states:
        made.setdefault(state.cell, []).append(state)
    return made
