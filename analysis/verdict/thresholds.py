"""Holds the figures of a run against the scenario's thresholds: held, missed, or not known.

A threshold is *missed* only if the figure is what the brokers and the client made of the load: not
while records are missing, no latency of a generator that was late itself, and nothing that takes
time where the rate was not reached: the machine may have been too busy then. It is *held* only if
the load was the load asked for. Everything else is not known, which is never a pass.

**The time of faults** runs, as in attribution, from 1 s before an injection to 2 s after its end;
an outage that began within it belongs to it with 2 s more, in which the backlog is sent. It is
known to a step of the timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.capture.context import SETTLE_NS
from analysis.findings import Threshold, title_of
from analysis.series import OUTAGE_NS, Outage
from analysis.verdict.attribution import Intervals, RunSpan, windows
from analysis.verdict.coverage import RunFacts, generator_problems
from analysis.verdict.fault_rows import met_by, out_at
from harness.contracts.plan import ThresholdPlan
from harness.faultlog import closed

_QUANTILES: Final = {
    "latency_p50": 0.5,
    "latency_p90": 0.9,
    "latency_p99": 0.99,
    "latency_p999": 0.999,
    "latency_max": 1.0,
}
#: Checks without which no figure is one of this run.
_RECORDED: Final = ("analysis", "capture", "traffic")
#: Checks without which a figure is not one of the load that was asked for.
_ASKED_FOR: Final = (*_RECORDED, "run", "rate")
#: Figures that can only grow with what was not seen: an interrupted run shows them missed all the
#: same.
_ONLY_GROW: Final = ("latency_max", "outage", "recovery", "redeliveries", "moved_partitions")
#: Figures that do not depend on how fast the load was.
_WITHOUT_RATE: Final = ("error_ratio", "redeliveries", "moved_partitions")
#: Units of figures that are not times.
_UNITS: Final = {"error_ratio": "ratio", "redeliveries": "count", "moved_partitions": "count"}


@dataclass(frozen=True, slots=True)
class _Figure:
    """A measured figure; None with the reason if it was not measured. ``is_least``: it was at least
    this much.
    """

    value: float | None
    why: str = ""
    is_least: bool = False


def thresholds(facts: RunFacts, checks: Mapping[str, bool]) -> list[Threshold]:
    """One entry a threshold of the plan; ``checks``: name of each check of `coverage` -> whether it
    holds."""
    wanted = facts.plan.thresholds
    faults = _time_of_faults(facts) if any(each.outside_faults for each in wanted) else []
    return [_judged(each, facts, checks, faults) for each in wanted]


def limit_words(name: str, at_most: float, *, outside_faults: bool) -> str:
    """``latency_p99 outside faults: at most 500 ms``."""
    return (
        f"{title_of(name, outside_faults=outside_faults)}: at most {_number(at_most, _unit(name))}"
    )


def _unit(name: str) -> str:
    return _UNITS.get(name, "s")


def _judged(
    wanted: ThresholdPlan, facts: RunFacts, checks: Mapping[str, bool], faults: Intervals
) -> Threshold:
    name, outside, at_most = wanted.name, wanted.outside_faults, wanted.at_most
    measure: Callable[[RunFacts, str, Intervals], _Figure] = _FIGURES.get(name, _latency)
    found = measure(facts, name, faults if outside else [])
    held, why = _standing(found, name, at_most, facts, checks)
    unit = _unit(name)
    if found.value is None:
        text = f"not measured: {found.why}; {_number(at_most, unit)} at most required"
    else:
        least = "at least " if found.is_least else ""
        text = f"{least}{_number(found.value, unit)}, at most {_number(at_most, unit)} required"
        text += f", not judged: {why}" if why else ""
    return Threshold(
        name=name,
        outside_faults=outside,
        at_most=at_most,
        measured=None if found.value is None else round(found.value, 6),
        unit=unit,
        held=held,
        text=f"{title_of(name, outside_faults=outside)}: {text}",
    )


def _standing(
    found: _Figure, name: str, at_most: float, facts: RunFacts, checks: Mapping[str, bool]
) -> tuple[bool | None, str]:
    """Whether the threshold held; None with the reason why that cannot be said."""
    if found.value is None:
        return None, found.why
    missed = found.value > at_most
    for check in _needed(name, missed=missed):
        if not checks.get(check, True):
            return None, f"the check of {_CHECKED[check]} does not hold"
    if missed and name not in _WITHOUT_RATE and facts.rate.is_short:
        return None, "the load fell short of what this machine was measured to keep"
    if missed and name in _QUANTILES:
        late_s = max(facts.lateness_ns.values(), default=0) / 1e9
        if generator_problems(facts) or found.value - late_s <= at_most:
            return (
                None,
                f"the generator itself was late, by {_number(late_s, 's')} in a tenth of the load",
            )
    if not missed and found.is_least:
        return None, "it was not over when the capture ended"
    if not missed and name in ("outage", "recovery") and at_most * 1e9 < OUTAGE_NS:
        return None, f"an outage of less than {OUTAGE_NS / 1e9:g} s is not seen"
    return not missed, ""


def _needed(name: str, *, missed: bool) -> tuple[str, ...]:
    """The checks that must hold. Sends that failed are missing from the rate themselves."""
    if not missed:
        return _ASKED_FOR
    return (
        *_RECORDED,
        *(() if name in _ONLY_GROW else ("run",)),
        *(() if name in _WITHOUT_RATE else ("rate",)),
    )


_CHECKED: Final = {
    "analysis": "the analysis",
    "capture": "the capture",
    "traffic": "the traffic",
    "run": "the run",
    "rate": "the rate",
}


def _number(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value * 100:.4g} %"
    if unit == "count":
        return f"{value:,.0f}"
    return f"{value * 1000:.4g} ms" if value < 1 else f"{value:.4g} s"


# ----- figures ------------------------------------------------------------------------------------


def _latency(facts: RunFacts, name: str, without: Intervals) -> _Figure:
    """From the intended time, of messages that were acknowledged."""
    latency, wanted = facts.series.latency.only(_kept(facts, without)), _QUANTILES[name]
    needed = 1 if wanted == 1 else round(1 / (1 - wanted))
    if latency.total < needed:
        return _Figure(None, f"{latency.total:,} messages were acknowledged, {needed:,} needed")
    return _Figure(latency.quantiles([wanted])[0] / 1e9)


def _error_ratio(facts: RunFacts, _: str, without: Intervals) -> _Figure:
    """Sends of the load that were not acknowledged, of all; a message that was sent again counts
    again."""
    series, kept = facts.series, _kept(facts, without)
    due, ok = int(series.due[kept].sum()), int(series.latency.only(kept).total)
    if not due:
        return _Figure(None, "no message was sent")
    return _Figure(max(due - ok, 0) / due)


def _outage(facts: RunFacts, _: str, without: Intervals) -> _Figure:
    grid = facts.grid
    last = int(grid.step(np.array([grid.zero_ns + round(facts.rate.load_s * 1e9) - 1]))[0])
    if not _kept(facts, without)[: last + 1].any():
        return _Figure(None, "the whole load is the time of faults")
    met = [
        o for o in facts.series.outages if o.end_ns > grid.zero_ns and not _begins_in(o, without)
    ]
    return _longest([(o.end_ns - o.start_ns, o.open) for o in met])


def _recovery(facts: RunFacts, _: str, __: Intervals) -> _Figure:
    """Return the recovery time of the slowest fault."""
    effective = [fault for fault in facts.faults if fault.effective and fault.inject_ns is not None]
    if not effective:
        return _Figure(None, "no fault took effect")
    if not_over := [fault for fault in effective if fault.end_ns is None]:
        return _Figure(None, f"{not_over[0].kind} #{not_over[0].id} did not end")
    outages, lasting = facts.series.outages, []
    for fault in effective:
        assert fault.end_ns is not None
        lasting += [
            (o.end_ns - fault.end_ns, o.open) for o in out_at(fault.end_ns, met_by(fault, outages))
        ]
    return _longest(lasting)


def _redeliveries(facts: RunFacts, _: str, __: Intervals) -> _Figure:
    """Return the redeliveries of the message that one group was given most often."""
    if not facts.redelivered:
        return _Figure(None, "no consumer read")
    return _Figure(float(max(facts.redelivered.values())))


def _moved_partitions(facts: RunFacts, _: str, __: Intervals) -> _Figure:
    """Return the number of partitions that moved, in all groups together."""
    groups = {consumer.group for consumer in facts.plan.consumers}
    if not groups:
        return _Figure(None, "no consumer read")
    if unseen := sorted(groups - facts.moved.keys()):
        return _Figure(None, f"group {unseen[0]} journals no assignments of partitions")
    return _Figure(float(sum(facts.moved.values())))


def _longest(lasting: list[tuple[int, bool]]) -> _Figure:
    """Return the longest time; each entry has its nanoseconds, and whether it never ended."""
    length_ns = max((each for each, _ in lasting), default=0)
    return _Figure(length_ns / 1e9, is_least=any(is_open for _, is_open in lasting))


_FIGURES: Final[Mapping[str, Callable[[RunFacts, str, Intervals], _Figure]]] = {
    "error_ratio": _error_ratio,
    "outage": _outage,
    "recovery": _recovery,
    "redeliveries": _redeliveries,
    "moved_partitions": _moved_partitions,
}


# ----- the time of faults -------------------------------------------------------------------------


def _time_of_faults(facts: RunFacts) -> Intervals:
    grid = facts.grid
    own = windows(closed(facts.faults, grid.end_ns), RunSpan(grid.start_ns, grid.end_ns))
    outages = [
        (o.start_ns, o.end_ns + SETTLE_NS) for o in facts.series.outages if _begins_in(o, own)
    ]
    return [*own, *outages]


def _begins_in(outage: Outage, intervals: Intervals) -> bool:
    return any(start <= outage.start_ns < end for start, end in intervals)


def _kept(facts: RunFacts, without: Intervals) -> npt.NDArray[np.bool_]:
    """Steps from the start of load on that none of the intervals touches."""
    grid = facts.grid
    kept = np.ones(grid.steps, np.bool_)
    kept[: int(grid.step(np.array([grid.zero_ns]))[0])] = False
    for start_ns, end_ns in without:
        first, last = grid.step(np.array([start_ns, max(end_ns - 1, start_ns)]))
        kept[first : last + 1] = False
    return kept
