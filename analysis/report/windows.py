"""Shortens a timeline for drawing: neighbouring windows are merged, nothing is averaged away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.findings import TimeSeries


@dataclass(frozen=True, slots=True)
class Windows:
    """Equal lists, one entry a window ``step_s`` wide that starts at ``times[i]``. Counts are sums;
    quantiles are the worst of the windows put together, for a mean of quantiles means nothing."""

    step_s: float
    times: list[float]
    widths_s: list[float]  # step_s, but for a last one put together from fewer
    intended: list[int]
    ok: list[int]
    fail: list[int]
    info: list[int]
    delivered: list[int]
    p50_ms: list[float | None]
    p99_ms: list[float | None]
    delay_p99_ms: list[float | None]

    def rate(self, counts: Sequence[int]) -> list[float]:
        """Counts per window -> messages per second."""
        return [number / width for number, width in zip(counts, self.widths_s, strict=True)]

    def longest_silence(self) -> tuple[float, float]:
        """Start and length (s) of the longest stretch of the load without an ok while messages were
        due."""
        best, begin = (0.0, 0.0), None
        last_due = max((i for i, number in enumerate(self.intended) if number), default=-1)
        for i, t in enumerate(self.times):
            silent = t >= 0 and i <= last_due and self.ok[i] == 0
            if silent and begin is None:
                begin = t
            if begin is not None and (not silent or i == len(self.times) - 1):
                end = t + self.step_s if silent else t
                best = max(best, (begin, end - begin), key=lambda stretch: stretch[1])
                begin = None
        return best


def condensed(timeline: TimeSeries, most: int) -> Windows:
    """At most ``most`` windows; a series the capture did not have is filled with zeros or None."""
    count = max(
        (len(series) for series in (timeline.intended, timeline.ok, timeline.p99_ms)), default=0
    )
    size = max(1, -(-count // most))
    starts = range(0, count, size)

    def sums(series: Sequence[int]) -> list[int]:
        return [sum(series[i : i + size]) for i in starts]

    def worst(series: Sequence[float | None]) -> list[float | None]:
        return [
            max((v for v in series[i : i + size] if v is not None), default=None) for i in starts
        ]

    return Windows(
        step_s=timeline.step_s * size,
        times=[timeline.start_s + i * timeline.step_s for i in starts],
        widths_s=[min(size, count - i) * timeline.step_s for i in starts],
        intended=sums(timeline.intended),
        ok=sums(timeline.ok),
        fail=sums(timeline.fail),
        info=sums(timeline.info),
        delivered=sums(timeline.delivered),
        p50_ms=worst(timeline.p50_ms),
        p99_ms=worst(timeline.p99_ms),
        delay_p99_ms=worst(timeline.delay_p99_ms),
    )
