"""Adds up when, where and beside which fault the messages of a class were, over all buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analysis.capture.context import Context, FaultWindow
from analysis.findings import FaultCount, StreamCount
from analysis.kernels.partial import Episode
from analysis.verdict.attribution import nearest, within

#: Streams with counts of their own; the rest are added up in one.
MAX_STREAMS = 24
_UNKNOWN = "unknown"


def by_stream(episodes: Sequence[Episode], context: Context) -> tuple[StreamCount, ...]:
    """One row a stream, most messages first, and one for all beyond `MAX_STREAMS`."""
    counts: dict[str, Counter[int]] = {}
    totals: Counter[str] = Counter()
    for episode in episodes:
        lane = context.lane_text(episode.lane) if episode.lane >= 0 else _UNKNOWN
        for stream, window, number in episode.windows:
            name = context.stream_name(stream) or lane
            counts.setdefault(name, Counter())[window * context.window_s] += number
            totals[name] += number
    ranked = sorted(counts, key=lambda name: (-totals[name], name))
    rows = [_row(name, counts[name]) for name in ranked[:MAX_STREAMS]]
    rest = ranked[MAX_STREAMS:]
    if rest:
        rows.append(_row("", sum((counts[name] for name in rest), Counter()), streams=len(rest)))
    return tuple(rows)


def _row(name: str, windows: Counter[int], streams: int = 1) -> StreamCount:
    return StreamCount(stream=name, count=windows.total(), windows=sorted(windows.items()), streams=streams)


def by_fault(
    episodes: Sequence[Episode], faults: Sequence[FaultWindow], context: Context
) -> tuple[FaultCount, ...]:
    """One row a fault in whose window episodes began, in order of time; without a time they are in none."""
    own: dict[int, list[Episode]] = {}
    windows = {fault.id: fault for fault in faults}
    for episode in episodes:
        if episode.first_ns:
            near = nearest(episode.first_ns, faults)
            met = near is not None and within(episode.first_ns, windows[near.fault])
            own.setdefault(near.fault if near and met else 0, []).append(episode)
    rows = [
        FaultCount(
            fault=fault,
            count=sum(e.count for e in met),
            episodes=sum(e.episodes for e in met),
            first_s=round(context.seconds(min(e.first_ns for e in met)), 6),
            last_s=round(context.seconds(max(e.last_ns for e in met)), 6),
        )
        for fault, met in own.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.first_s, row.fault)))
