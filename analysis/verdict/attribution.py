"""Attributes findings to faults: the nearest fault, and whether nearness is more than chance.

With a fault every few seconds, *every* anomaly is near some fault. So, for episodes whose cause the
brokers' own records do not name (`analysis.verdict.causes`), the share of episodes inside a fault
kind's windows is compared with the share that the same schedule reaches when it is turned round the
run by a random amount, 1,000 times: what the kind would collect by chance. The windows are fixed
here, before any run is seen, not fitted to it. The unit is the episode (one instance and lane, one
disturbance), never the message: ten thousand messages lost in one kill are one observation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analysis.capture.context import SETTLE_NS
from analysis.findings import Attribution, FaultNear
from analysis.verdict.statistics import holm
from harness.faultlog import FaultRecord

#: A message acknowledged just before a kill is lost by it: followers fetch every 0.5 s at the
#: latest.
LEAD_NS = 1_000_000_000
SHIFTS = 1_000
#: Windows over more of the run than this would be hit by anything.
MAX_COVER = 0.5
#: One window, turned round the run, is met as often as it is wide: p says nothing but that.
LEAST_FAULTS = 2


@dataclass(frozen=True, slots=True)
class RunSpan:
    """The part of the run that the schedule is turned round in."""

    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """The length of the span, at least 1."""
        return max(self.end_ns - self.start_ns, 1)


Intervals = list[tuple[int, int]]


def windows(faults: Iterable[FaultRecord], span: RunSpan) -> Intervals:
    """Union of ``[inject - lead, healed + settle)`` over the faults, within the span, ascending."""
    raw = sorted((f.start_ns - LEAD_NS, f.over_ns + SETTLE_NS) for f in faults)
    merged: list[list[int]] = []
    for start, end in raw:
        start, end = max(start, span.start_ns), min(end, span.end_ns)
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return [(start, end) for start, end in merged]


def inside(
    times_ns: npt.NDArray[np.int64],
    intervals: Intervals,
    span: RunSpan,
    shifts_ns: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """How many of the times lie in the intervals, for each turn of the intervals round the span.

    Args:
        times_ns: within the span.
        intervals: disjoint, within the span.
        shifts_ns: 0 <= shift < length of the span.

    Returns:
        A count for each shift. Cost does not grow with the number of times but by its logarithm.
    """
    position = np.sort(times_ns - span.start_ns)
    if not intervals or not len(position):
        return np.zeros(len(shifts_ns), np.int64)
    edges = np.asarray(intervals, np.int64) - span.start_ns
    turned = edges[None, :, :] + shifts_ns[:, None, None]
    laps, rest = np.divmod(turned, span.length_ns)
    before = laps * len(position) + np.searchsorted(position, rest)
    return np.asarray((before[:, :, 1] - before[:, :, 0]).sum(axis=1))


def attribute(
    times_ns: Sequence[int], faults: Sequence[FaultRecord], span: RunSpan, seed: int
) -> tuple[Attribution, ...]:
    """One row for all faults together, then one a kind, for episodes (by their first time) of one
    class.

    Faults of one kind get separate rows if the scenario gives them different targets: killing a
    client is not killing a broker.

    The p value is the share of `SHIFTS` turned schedules, the real one counted among them, with at
    least as many episodes inside, so it is never 0. There is none for windows over more than
    `MAX_COVER` of the run, nor for what fired less than `LEAST_FAULTS` times. Those of the kinds
    are adjusted by Holm: together they are one question asked several times. Of a single kind
    nothing is asked twice: it has one row.
    """
    if not times_ns or not faults:
        return ()
    times = np.asarray(times_ns, np.int64)
    span = RunSpan(min(span.start_ns, int(times.min())), max(span.end_ns, int(times.max()) + 1))
    shifts = np.random.default_rng(seed).integers(0, span.length_ns, SHIFTS - 1)
    kinds = _by_kind(faults)
    rows = [_share(kind, own, times, span, shifts) for kind, own in sorted(kinds.items())]
    if len(kinds) < 2:
        return tuple(rows)
    adjusted = iter(holm([row.p_value for row in rows if row.p_value is not None]))
    each = [row if row.p_value is None else replace(row, p_adjusted=next(adjusted)) for row in rows]
    return (_share("", faults, times, span, shifts), *each)


def _by_kind(faults: Sequence[FaultRecord]) -> dict[str, list[FaultRecord]]:
    """Faults by ``kill``, or by ``kill of kafka-1`` where the kind has several targets in the
    scenario."""
    selectors: dict[str, set[str]] = {}
    for fault in faults:
        selectors.setdefault(fault.kind, set()).add(fault.selector)
    found: dict[str, list[FaultRecord]] = {}
    for fault in faults:
        several = len(selectors[fault.kind]) > 1
        name = f"{fault.kind} of {fault.selector}" if several and fault.selector else fault.kind
        found.setdefault(name, []).append(fault)
    return found


def _share(
    kind: str,
    faults: Sequence[FaultRecord],
    times: npt.NDArray[np.int64],
    span: RunSpan,
    shifts: npt.NDArray[np.int64],
) -> Attribution:
    intervals = windows(faults, span)
    here = int(inside(times, intervals, span, np.zeros(1, np.int64))[0])
    turned = inside(times, intervals, span, shifts)
    why_not = ""
    if sum(end - start for start, end in intervals) > MAX_COVER * span.length_ns:
        why_not = f"{'its' if kind else 'their'} windows cover more than half of the run"
    elif len(faults) < LEAST_FAULTS:
        why_not = "it fired once"
    return Attribution(
        kind=kind,
        inside=here,
        episodes=len(times),
        chance_share=round(float(turned.mean()) / len(times), 4),
        p_value=None if why_not else (1 + int((turned >= here).sum())) / SHIFTS,
        not_attributable=bool(why_not),
        why_not=why_not,
    )


def attributed(t_ns: npt.NDArray[np.int64], faults: Sequence[FaultRecord]) -> npt.NDArray[np.int64]:
    """Id of the fault that is `nearest` to each time, if that lies in the window of it, else 0."""
    least = np.full(len(t_ns), np.iinfo(np.int64).max)
    found = np.zeros(len(t_ns), np.int64)
    for fault in sorted(reversed(faults), key=lambda fault: fault.start_ns):
        outside = np.maximum(np.maximum(fault.start_ns - t_ns, t_ns - fault.over_ns), 0)
        nearer = outside <= least  # of several that are as near, the latest
        least = np.where(nearer, outside, least)
        inside = (t_ns >= fault.start_ns - LEAD_NS) & (t_ns < fault.over_ns + SETTLE_NS)
        found = np.where(nearer, np.where(inside, fault.id, 0), found)
    return found


def nearest(t_ns: int, faults: Sequence[FaultRecord]) -> FaultNear | None:
    """The fault that was applied at the time, or the one least far away; of several, the latest.

    ``after_s`` counts from its inject, whether the fault is over or not.
    """
    if not faults:
        return None

    def distance(fault: FaultRecord) -> tuple[int, int]:
        outside = max(fault.start_ns - t_ns, t_ns - fault.over_ns, 0)
        return outside, -fault.start_ns

    best = min(faults, key=distance)
    return FaultNear(
        fault=best.id,
        kind=best.kind,
        target=best.hit,
        after_s=round((t_ns - best.start_ns) / 1e9, 6),
    )
