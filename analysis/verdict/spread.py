"""Adds up when, where and near which fault the messages of a class were, over all buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.capture.context import Context
from analysis.findings import FaultCount, StreamCount
from analysis.kernels.changes import Because
from analysis.kernels.partial import Episode
from analysis.verdict.attribution import attributed
from analysis.verdict.causes import CauseWords
from harness.faultlog import FaultRecord

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
    return StreamCount(
        stream=name, count=windows.total(), windows=sorted(windows.items()), streams=streams
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """Messages of an episode near one fault; ``episodes``: 0 unless it is the largest of its
    shares."""

    fault: int
    count: int
    first_ns: int
    last_ns: int
    episodes: int = 0


def by_fault(
    episodes: Sequence[Episode],
    faults: Sequence[FaultRecord],
    context: Context,
    wording: CauseWords,
) -> tuple[FaultCount, ...]:
    """One row a fault, in order of time: messages whose cause is named belong to the fault that it
    followed, the others to that in whose window their episode began; without a time they are in
    none."""
    own: dict[int, list[_Share]] = {}
    begun_ns = np.array([episode.first_ns for episode in episodes], np.int64)
    for episode, near in zip(episodes, attributed(begun_ns, faults).tolist(), strict=True):
        shares = sorted(_shares(episode, near, wording), key=lambda share: share.count)
        shares[-1:] = [replace(share, episodes=episode.episodes) for share in shares[-1:]]
        for share in shares:
            own.setdefault(share.fault, []).append(share)
    rows = [
        FaultCount(
            fault=fault,
            count=sum(share.count for share in met),
            episodes=sum(share.episodes for share in met),
            first_s=round(context.seconds(min(share.first_ns for share in met)), 6),
            last_s=round(context.seconds(max(share.last_ns for share in met)), 6),
        )
        for fault, met in own.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.first_s, row.fault)))


def _shares(episode: Episode, near: int, wording: CauseWords) -> list[_Share]:
    """One a named cause, and one for all other messages, of the fault ``near`` its begin."""
    if not episode.first_ns:
        return []
    shares = [
        _Share(wording.fault_of(raw), raw.count, raw.first_ns, raw.last_ns)
        for raw in episode.causes
        if raw.because is Because.CHANGE
    ]
    if rest := episode.count - sum(share.count for share in shares):
        shares.append(_Share(near, rest, episode.first_ns, episode.last_ns))
    return shares
