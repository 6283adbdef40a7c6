"""Achieved against intended rate, in all and outside outages.

While a stream is out, no load can hold the rate; that is an availability figure and has its own
place. Outside outages a shortfall means that the load was not the load that was asked for, and then
a clean result proves little. Counted is, of the messages *due* while no stream was out, the share
that was acknowledged, whenever that was: a message never offered, refused or unknown is missing
from it.

Of a hundred streams some one is out for most of a storm. Where that leaves too little time, what
was acknowledged in all is held against the target for the share of time that the streams, on
average, were up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.series import Grid, Series
from analysis.verdict.intended import Absence, Intended
from harness.contracts.plan import RateChoice

#: With less of the load outside outages than this, the rate cannot be judged.
MIN_CALM_SHARE = 0.1
#: With less of a measured target than this, the load fell short.
SHORT_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages per second over the load phase; ``ratio`` is None with nothing to compare with.

    ``target_per_s``: of a profile its mean; ``peak_per_s`` then is its highest, else 0.
    ``calm_target_per_s``: what was due outside outages.

    ``up_share``: of the time of all streams together, what lay outside their outages; ``up_ratio``:
    what was acknowledged, of the target for that share.
    """

    target_per_s: float
    offered_per_s: float
    achieved_per_s: float
    calm_per_s: float  # outside outages
    calm_s: float  # how long no stream was out
    load_s: float
    longest_outage_s: float
    ratio: float | None
    up_share: float = 1.0
    up_ratio: float | None = None
    # of a load that goes at what the machine keeps, which target_per_s then is
    at_most_per_s: float = 0.0
    at_least_per_s: float = 0.0
    calm_target_per_s: float = 0.0
    peak_per_s: float = 0.0

    @property
    def is_measured(self) -> bool:
        """The target is what the machine was measured to keep; the scenario claims no rate."""
        return self.at_most_per_s > 0

    @property
    def kept_per_s(self) -> float:
        """Acknowledged outside outages; in all, where some stream was nearly always out."""
        return self.achieved_per_s if self.is_without_calm else self.calm_per_s

    @property
    def kept_target_per_s(self) -> float:
        """Return the rate with which `kept_per_s` is compared."""
        return self.target_per_s if self.is_without_calm else self.calm_target_per_s

    @property
    def is_short(self) -> bool:
        """Less than the machine was measured to keep, of a load that claims no rate."""
        return self.is_measured and self.kept_per_s < SHORT_SHARE * self.kept_target_per_s

    @property
    def is_without_calm(self) -> bool:
        """Whether too little of the load was outside outages to judge the rate."""
        return self.calm_s < MIN_CALM_SHARE * self.load_s

    def document(self) -> dict[str, float]:
        """Return the form that ``Result.rate`` has."""
        document = {
            "target_per_s": self.target_per_s,
            "offered_per_s": round(self.offered_per_s, 1),
            "achieved_per_s": round(self.achieved_per_s, 1),
            "achieved_outside_outages_per_s": round(self.calm_per_s, 1),
            "outage_s": round(self.load_s - self.calm_s, 3),
            "longest_outage_s": round(self.longest_outage_s, 3),
        }
        if self.peak_per_s:
            document["peak_per_s"] = round(self.peak_per_s, 1)
        if self.is_measured:
            document |= {"at_most_per_s": self.at_most_per_s, "at_least_per_s": self.at_least_per_s}
        if self.ratio is not None:
            document["ratio_outside_outages"] = round(self.ratio, 5)
        return document


def rate_of(
    series: Series,
    grid: Grid,
    load_end_ns: int,
    target_per_s: float,
    *,
    streams: int = 1,
    choice: RateChoice | None = None,
    profile: Sequence[Sequence[float]] = (),
    absences: Sequence[Absence] = (),
) -> Rate:
    """Rates of the load phase, which runs from ``grid.zero_ns`` to ``load_end_ns``.

    Args:
        target_per_s: all producers together, of a profile the whole of it; 0 = unlimited.
        streams: how many the load went to.
        choice: ``rate_choice`` of the plan: the limits of a rate that was measured; None = it is
            claimed.
        profile: (seconds, share of the rate) of the plan; none = all of it.
        absences: of producers between their lives; nothing was due of them then.
    """
    wanted = Intended(
        target_per_s, profile, zero_ns=grid.zero_ns, end_ns=load_end_ns, absences=absences
    )
    load_s = max(load_end_ns - grid.zero_ns, 0) / 1e9
    borders = grid.start_ns + np.arange(grid.steps + 1, dtype=np.int64) * grid.step_ns
    borders = np.clip(borders, grid.zero_ns, max(load_end_ns, grid.zero_ns))
    calm = np.diff(borders) > 0
    for outage in series.outages:
        first, last = grid.step(
            np.array([outage.start_ns, max(outage.end_ns - 1, outage.start_ns)])
        )
        calm[first : last + 1] = False
    calm_s = float(np.diff(borders)[calm].sum()) / 1e9
    due = wanted.due_within(borders)
    calm_due = float(due[calm].sum())
    calm_ok = int(series.latency.per_step(grid.steps)[calm].sum())
    lengths = [min(o.end_ns, load_end_ns) - max(o.start_ns, grid.zero_ns) for o in series.outages]
    per_s = 1 / load_s if load_s else 0.0
    out_s = sum(max(length, 0) for length in lengths) / 1e9
    up_share = max(1.0 - out_s * per_s / max(streams, 1), 0.0)
    mean_per_s = float(due.sum()) * per_s
    up_target = mean_per_s * load_s * up_share
    load_ok = series.totals.get("load_ok", 0)
    return Rate(
        target_per_s=mean_per_s if profile or absences else target_per_s,
        offered_per_s=series.totals.get("load_attempted", 0) * per_s,
        achieved_per_s=load_ok * per_s,
        calm_per_s=calm_ok / calm_s if calm_s else 0.0,
        calm_s=calm_s,
        load_s=load_s,
        longest_outage_s=max([0, *lengths]) / 1e9,
        ratio=min(calm_ok / calm_due, 1.0) if calm_due else None,
        up_share=up_share,
        up_ratio=min(load_ok / up_target, 1.0) if up_target else None,
        at_most_per_s=choice.at_most_per_s * wanted.mean_share if choice else 0.0,
        at_least_per_s=choice.at_least_per_s * wanted.mean_share if choice else 0.0,
        calm_target_per_s=calm_due / calm_s if calm_s else 0.0,
        peak_per_s=wanted.peak_per_s if profile else 0.0,
    )
