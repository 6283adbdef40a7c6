"""Counts and latency over time, and the spans without an acknowledgement: one pass a bucket,
mergeable.

A bucket is reduced to a `Series` (fixed-size arrays and sparse histograms); `Series.merged` adds
them up, so the driver never sees a row. Latency is counted from the *intended* time, as an
open-loop load must: a message that waited in a blocked client was late for its user. Only
load-phase messages enter latency and rate; warm-up shows up in the counts of the timeline. What
pipelines make was due at no time: it is in the totals alone.

**Outage.** A stream is out from its last ok to its next one, counted from when a message began to
wait for the client: one offered in between, or the oldest one that the next ok brings. What the
generator itself was late with is not waiting. Shorter than `OUTAGE_NS` it is none; it is known to a
tick of the grid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import as_constant, is_constant, short
from analysis.histogram import Dense, Histogram
from harness.records import Event, Kind, Outcome

Ints = npt.NDArray[np.int64]
Table = Mapping[str, npt.NDArray[Any]]

MAX_STEPS = 600  # points of a timeline: what a screen can show
_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
MAX_TICKS_A_STEP = 333  # bounds the memory of the grids: streams x 600 x 333 x 5 bytes
MIN_TICK_NS = 10_000_000  # a client's linger: finer would see gaps between its batches
#: Above the p99 of a healthy, loaded cluster (91 ms measured) and above a leader move (0.3 s),
#: below the shortest loss of a leader (0.5 s for a graceful stop).
OUTAGE_NS = 400_000_000
#: Rows worked on at a time, so that temporaries stay in the processor's cache.
CHUNK_ROWS = 1 << 17

_TICKS_A_STEP = range(1, MAX_TICKS_A_STEP + 1)
_COUNTED = ("due", "ok", "fail", "info", "delivered")
_TOTALS = (
    "attempted",
    "ok",
    "fail",
    "info",
    "aborted",
    "open",
    "warm_up",
    "load_ok",
    "load_attempted",
)
#: Columns of the sends.
NEEDED = ("kind", "outcome", "lane", "stream", "t_intended_ns", "t_start_ns", "t_done_ns")
_NO_STREAM = 0
_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Grid:
    """The time axis that every bucket of a run shares. ``start_ns`` is a step border at or before
    the first message; ``zero_ns`` (start of load) is a border too."""

    zero_ns: int
    start_ns: int
    step_ns: int
    steps: int
    ticks_a_step: int

    @property
    def end_ns(self) -> int:
        """The end of the last step."""
        return self.start_ns + self.steps * self.step_ns

    @property
    def tick_ns(self) -> int:
        """The length of a tick, the finest part of a step."""
        return self.step_ns // self.ticks_a_step

    @property
    def ticks(self) -> int:
        """The number of ticks of all steps."""
        return self.steps * self.ticks_a_step

    @classmethod
    def over(cls, first_ns: int, last_ns: int, zero_ns: int) -> Grid:
        """The finest grid of at most `MAX_STEPS` steps that covers ``first_ns .. last_ns``."""
        span = max(last_ns - first_ns, 1)
        sizes = [round(s * 1e9) for s in _STEPS_S]
        hours = -(-span // (sizes[-1] * (MAX_STEPS - 2))) * sizes[-1]
        step = next((s for s in sizes if span // s + 2 <= MAX_STEPS), hours)
        start = zero_ns - -(-(zero_ns - first_ns) // step) * step
        steps = (last_ns - start) // step + 1
        finest = step // MIN_TICK_NS
        return cls(zero_ns, start, step, steps, max(n for n in _TICKS_A_STEP if finest % n == 0))

    def tick(self, t_ns: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Tick of each time, clipped into the grid."""
        return self._place(t_ns, self.tick_ns, self.ticks)

    def step(self, t_ns: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Step of each time, clipped into the grid; a view of one element where all are in one."""
        if len(t_ns):
            ends = self._place(np.array([t_ns.min(), t_ns.max()]), self.step_ns, self.steps)
            if ends[0] == ends[1]:
                return np.broadcast_to(ends[:1], len(t_ns))
        return self._place(t_ns, self.step_ns, self.steps)

    def _place(self, t_ns: npt.NDArray[Any], width_ns: int, count: int) -> npt.NDArray[np.int32]:
        places = t_ns.astype(np.int64, copy=False) - self.start_ns
        places //= width_ns
        return np.clip(places, 0, count - 1, out=places).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Outage:
    """A stream without an ok from ``start_ns`` to ``end_ns``, though the client held messages for
    it.

    ``open``: no ok followed before the capture ended.
    """

    stream: int
    start_ns: int
    end_ns: int
    open: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One bucket, or several merged, reduced to what the timeline, rate and latency need.

    Counts a step: ``due`` by intended time, ``ok`` and ``fail`` when they were reported, ``info``
    when reported or, never reported, when sent, ``delivered`` when handed to the application.
    Messages of aborted transactions were acknowledged: they count as ``ok`` here, as in latency and
    rate, and apart in ``totals``.
    """

    due: Ints
    ok: Ints
    fail: Ints
    info: Ints
    delivered: Ints
    latency: Histogram  # ok, load phase; step of the intended time
    delay: Histogram  # t_start - t_intended, load phase; step of the intended time
    outages: tuple[Outage, ...] = ()
    totals: dict[str, int] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Sequence[Series], grid: Grid) -> Series:
        """Order of ``parts`` does not matter."""
        if not parts:
            parts = [empty(grid)]
        totals: dict[str, int] = {}
        for part in parts:
            for name, value in part.totals.items():
                totals[name] = totals.get(name, 0) + value
        return cls(
            due=_sum(p.due for p in parts),
            ok=_sum(p.ok for p in parts),
            fail=_sum(p.fail for p in parts),
            info=_sum(p.info for p in parts),
            delivered=_sum(p.delivered for p in parts),
            latency=Histogram.merged([p.latency for p in parts]),
            delay=Histogram.merged([p.delay for p in parts]),
            outages=tuple(
                sorted((o for p in parts for o in p.outages), key=lambda o: (o.start_ns, o.stream))
            ),
            totals=totals,
        )


def _sum(arrays: Iterable[Ints]) -> Ints:
    return np.asarray(np.sum(np.stack(list(arrays)), axis=0))


def empty(grid: Grid) -> Series:
    """Return the series of a run without rows."""
    nothing = np.zeros(grid.steps, np.int64)
    hist = Histogram(np.empty(0, np.int64), np.empty(0, np.int64))
    return Series(nothing, nothing, nothing, nothing, nothing, hist, hist)


def series_of(
    sends: Iterable[Table],
    deliveries: Table,
    grid: Grid,
    lane_streams: Mapping[int, int],
    piped: Collection[int] = (),
) -> Series:
    """Reduce one bucket, a chunk of rows at a time.

    Args:
        sends: `NEEDED` columns of a chunk of rows at a time, any order.
        deliveries: sealed columns, any order; may be without rows.
        grid: the run's time axis.
        lane_streams: stream of every lane whose partition was fixed before the send.
        piped: lanes that pipelines write.
    """
    builder = _Builder(grid, lane_streams)
    builder.add_deliveries(deliveries)
    for chunk in sends:
        judged = chunk["kind"] != Kind.PROBE
        if not judged.all():
            chunk = {name: column[judged] for name, column in chunk.items()}
        if piped and (made := np.isin(chunk["lane"], list(piped))).any():
            builder.add_piped({name: column[made] for name, column in chunk.items()})
            chunk = {name: column[~made] for name, column in chunk.items()}
        if len(chunk["kind"]):
            builder.add_sends(chunk)
    return builder.finish()


class _Builder:
    """The arrays of a `Series` while rows are added."""

    def __init__(self, grid: Grid, lane_streams: Mapping[int, int]) -> None:
        self._grid = grid
        self._steps = {name: np.zeros(grid.steps, np.int64) for name in _COUNTED}
        self._latency = Dense(grid.steps)
        self._delay = Dense(grid.steps)
        self._totals = dict.fromkeys(_TOTALS, 0)
        # the last: any other lane
        self._lanes = np.zeros(max(lane_streams, default=-1) + 2, np.int64)
        for lane, stream in lane_streams.items():
            self._lanes[lane] = stream
        # Row of each stream id in the two grids below; -1 = none yet. The last covers all larger
        # ids.
        self._row = np.full(1, -1, np.int64)
        self._offered = np.zeros((0, grid.ticks), np.bool_)
        # when what was acked in a tick was offered
        self._oldest = np.zeros((0, grid.ticks), np.int32)

    def add_deliveries(self, deliveries: Table) -> None:
        """Add the deliveries of a bucket."""
        rows = len(deliveries["event"]) if "event" in deliveries else 0
        for start in range(0, rows, CHUNK_ROWS):
            event, kind, t_ns = (
                deliveries[n][start : start + CHUNK_ROWS] for n in ("event", "kind", "t_ns")
            )
            given = (event == Event.DELIVER) & (kind != Kind.PROBE)
            self._count("delivered", self._grid.step(_at(t_ns, given)))

    def add_sends(self, sends: Table) -> None:
        """Add the sends of a bucket."""
        grid, outcome = self._grid, sends["outcome"]
        t_due, t_start, t_done = (sends[n] for n in ("t_intended_ns", "t_start_ns", "t_done_ns"))
        aborted, fail, load = (
            outcome == Outcome.ABORTED,
            outcome == Outcome.FAIL,
            sends["kind"] == Kind.LOAD,
        )
        ok = (outcome == Outcome.OK) | aborted
        info, unfinished = ~(ok | fail), t_done == 0
        due_step, start, end = grid.step(t_due), grid.tick(t_start), grid.tick(t_done)
        if unfinished.any():
            end[unfinished] = start[unfinished]
        end_step = as_constant(end // grid.ticks_a_step)
        self._count("due", due_step)
        for name, mask in (("ok", ok), ("fail", fail), ("info", info)):
            self._count(name, _at(end_step, mask))
        ok_load = ok & load
        self._latency.add(_at(due_step, ok_load), _at(t_done, ok_load) - _at(t_due, ok_load))
        self._delay.add(_at(due_step, load), _at(t_start, load) - _at(t_due, load))
        self._mark(sends, start, end, ok)
        sums = (len(outcome), ok & ~aborted, fail, info, aborted, unfinished, ~load, ok_load, load)
        self._add(dict(zip(_TOTALS, sums, strict=True)))

    def add_piped(self, sends: Table) -> None:
        """Add the outputs of pipelines of a bucket."""
        outcome = sends["outcome"]
        found = {
            one.name.lower(): outcome == one for one in (Outcome.OK, Outcome.FAIL, Outcome.ABORTED)
        }
        unknown = ~np.isin(outcome, [Outcome.OK, Outcome.FAIL, Outcome.ABORTED])
        self._add(
            {**found, "attempted": len(outcome), "info": unknown, "open": sends["t_done_ns"] == 0}
        )

    def _add(self, sums: Mapping[str, Any]) -> None:
        for name, value in sums.items():
            self._totals[name] += value if isinstance(value, int) else int(np.count_nonzero(value))

    def _count(self, name: str, steps: npt.NDArray[np.int32]) -> None:
        if is_constant(steps):
            self._steps[name][steps[0]] += len(steps)
        else:
            self._steps[name] += np.bincount(steps, minlength=self._grid.steps)

    def _mark(
        self,
        sends: Table,
        start: npt.NDArray[np.int32],
        end: npt.NDArray[np.int32],
        ok: npt.NDArray[np.bool_],
    ) -> None:
        """Note in which tick each stream had a message offered, and an ok."""
        stream = self._lanes.take(short(sends["lane"]), mode="clip")
        routed = stream == _NO_STREAM
        if routed.any():  # the client chose: where it was acknowledged, if it was
            stream = np.where(routed, np.maximum(sends["stream"], _NO_STREAM), stream)
        cell = self._row.take(stream, mode="clip")
        if (cell < 0).any():
            self._make_room(stream)
            cell = self._row.take(stream, mode="clip")
        # one number a (stream, tick): marking is a scatter, in any order
        cell = cell * self._grid.ticks
        offered, acked, start = cell + start, _at(cell + end, ok), _at(start, ok)
        self._offered.reshape(-1)[offered[_heads(offered)]] = True
        if len(acked):
            heads = _heads(acked)  # many that follow each other were acknowledged in one tick
            oldest = np.minimum.reduceat(start, heads)
            np.minimum.at(self._oldest.reshape(-1), acked[heads], oldest)

    def _make_room(self, stream: Ints) -> None:
        seen = np.flatnonzero(np.bincount(stream))
        if seen[-1] >= len(self._row) - 1:
            self._row = np.append(
                self._row, np.full(int(seen[-1]) + 2 - len(self._row), -1, np.int64)
            )
        new = seen[self._row[seen] < 0]
        if len(new):
            self._row[new] = len(self._offered) + np.arange(len(new))
            shape = (len(new), self._grid.ticks)
            self._offered = np.concatenate([self._offered, np.zeros(shape, np.bool_)])
            self._oldest = np.concatenate([self._oldest, np.full(shape, _NEVER, np.int32)])

    def finish(self) -> Series:
        """Return the series of everything that was added."""
        return Series(
            **self._steps,
            latency=self._latency.sparse(),
            delay=self._delay.sparse(),
            outages=tuple(self._outages()),
            totals=self._totals if self._totals["attempted"] else {},
        )

    def _outages(self) -> Iterable[Outage]:
        streams = np.flatnonzero(self._row >= 0)
        anywhere = np.zeros(self._grid.ticks, np.bool_)
        # offered to some stream of the topic: to each
        if len(streams) and streams[0] == _NO_STREAM:
            anywhere = self._offered[self._row[_NO_STREAM]]
        for stream in streams[streams > _NO_STREAM].tolist():
            row = self._row[stream]
            yield from _gaps(stream, self._oldest[row], self._offered[row] | anywhere, self._grid)


def _heads(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Where each stretch of equal values begins."""
    new = np.empty(len(values), np.bool_)
    new[:1] = True
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return np.flatnonzero(new)


def _at(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Rows of the mask, without a copy where it is all of them (most chunks)."""
    return values if mask.all() else values[mask]


def _gaps(
    stream: int, oldest: npt.NDArray[np.int32], offered: npt.NDArray[np.bool_], grid: Grid
) -> Iterable[Outage]:
    """Outages of one stream.

    Args:
        oldest: by tick, the tick in which the oldest message acked in it was offered; `_NEVER` = no
            ok.
        offered: by tick, whether the client was given a message.
    """
    offered_ticks, ok_ticks = np.flatnonzero(offered), np.flatnonzero(oldest < _NEVER)
    # a gap runs from one ok tick to the next; before the first ok and after the last there is one
    # too
    starts = np.concatenate(([-1], ok_ticks))
    ends = np.concatenate((ok_ticks, [grid.ticks]))
    wide = np.flatnonzero((ends - starts) * grid.tick_ns >= OUTAGE_NS)
    following = np.searchsorted(offered_ticks, starts[wide], side="right")
    for gap, position in zip(wide.tolist(), following.tolist(), strict=True):
        start, end = int(starts[gap]), int(ends[gap])
        waits = [int(offered_ticks[position])] if position < len(offered_ticks) else []
        if gap < len(ok_ticks):
            waits.append(int(oldest[end]))
        began = max(min(waits, default=end), start)
        if (end - began) * grid.tick_ns >= OUTAGE_NS:
            yield Outage(
                stream,
                grid.start_ns + max(began, 0) * grid.tick_ns,
                grid.start_ns + end * grid.tick_ns,
                open=gap == len(ok_ticks),
            )
