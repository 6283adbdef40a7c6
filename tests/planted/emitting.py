"""Columns of a planted run, chunk by chunk, for all streams or for one bucket's, in the order of
sealing.

The order is a function of the row alone (``slot``), so the rows of one bucket are the same, in the
same order, whether they are made directly or made for the whole run and routed by
`harness.seal.seal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from harness.records import SEALED, Check, Event, Kind
from tests.planted.scripts import BATCH, PAD, Stream

Columns = dict[str, npt.NDArray[Any]]
Int64 = npt.NDArray[np.int64]
EPOCH_NS: Final = 1_000_000_000_000
WALL_MS: Final = 1_795_176_000_000  # broker time at the start of load
#: Deliveries follow the sends by this much.
DELIVERY_LAG_NS: Final = 1_000_000_000
CHUNK_ROWS: Final = 1 << 19


@dataclass(frozen=True, slots=True)
class Stray:
    """A row of a stream's log or script that belongs, by its header's lane, to another stream."""

    stream: int  # index into World.streams
    row: int
    home: int  # index of the lane's own stream


class World:
    """Everything settled: the streams of the run and what the rows have in common.

    ``lanes_of``: stream indexes that an instance sends to, in turn. ``strays``: log rows whose
    header names a lane of another stream.
    """

    def __init__(
        self, streams: Sequence[Stream], instances: Sequence[int], rate_per_s: float, batches: int
    ) -> None:
        self.streams = streams
        self.batches = batches
        self.step_ns = round(1e9 * len(instances) / rate_per_s)
        self.lanes_of = {
            i: [n for n, s in enumerate(streams) if i in s.instances.tolist()] for i in instances
        }
        self.by_lane = {s.lane: n for n, s in enumerate(streams)}
        self.lane_rank = {
            (i, n): rank for i, numbers in self.lanes_of.items() for rank, n in enumerate(numbers)
        }
        self.acks = self._acknowledged_specials()
        self.strays = [
            Stray(n, row, self.by_lane[s.special_at(row)["lane"]])
            for n, s in enumerate(streams)
            for row in np.flatnonzero(s.log < 0).tolist()
            if s.special_at(row).get("lane", s.lane) != s.lane
        ]
        self.load_ns = max(
            self.step_ns * streams[numbers[0]].messages * len(numbers)
            for numbers in self.lanes_of.values()
            if numbers
        )
        self._delivery_step = max(self.load_ns // (batches * len(streams) * BATCH), 1)
        sessions = streams[0].sessions
        self._script_counts(sessions)

    def _acknowledged_specials(self) -> dict[tuple[int, int, int], tuple[int, int]]:
        """(lane, clean index, attempt) of a send -> (stream id, position) of the special row it
        became."""
        found = {}
        for stream in self.streams:
            for row in np.flatnonzero(stream.log < 0).tolist():
                special = stream.special_at(row)
                if "ack_index" in special:
                    key = (special["ack_lane"], special["ack_index"], special.get("attempt", 0))
                    found[key] = (stream.number, row)
        return found

    def _script_counts(self, sessions: int) -> None:
        """First ordinal of every (session, batch, stream) and the slots of later assignments."""
        counts = np.zeros((sessions + 1, self.batches, len(self.streams)), np.int64)
        later: list[list[Int64]] = [[] for _ in range(sessions + 1)]
        for n, stream in enumerate(self.streams):
            by_batch = stream.script_session.reshape(self.batches, BATCH)
            real = stream.script_event.reshape(self.batches, BATCH) != PAD
            assigned = np.flatnonzero(stream.script_event == Event.ASSIGN)[1:]
            for session in range(1, sessions + 1):
                counts[session, :, n] = ((by_batch == session) & real).sum(axis=1)
                mine = assigned[stream.script_session[assigned] == session]
                later[session].append(self.slots(np.full(len(mine), n), mine))
        flat = counts.reshape(sessions + 1, -1)
        self.first_ordinal = (np.cumsum(flat, axis=1) - flat).reshape(counts.shape)
        self.session_rows = flat.sum(axis=1)
        self.assign_slots = [
            np.sort(np.concatenate(s)) if s else np.zeros(0, np.int64) for s in later
        ]

    def slots(self, stream: npt.NDArray[Any], row: npt.NDArray[Any]) -> Int64:
        """Place of a log or script row in the order of the run: batch, stream, row."""
        batch, rest = np.divmod(row.astype(np.int64), BATCH)
        return np.asarray((batch * len(self.streams) + stream) * BATCH + rest)

    # -- times

    def intended(self, instance: int, stream: int, seq: Int64) -> Int64:
        count = len(self.lanes_of.get(instance, ())) or 1
        rank = self.lane_rank.get((instance, stream), 0)
        return np.asarray(EPOCH_NS + (seq * count + rank) * self.step_ns)

    def delivered(self, slot: Int64) -> Int64:
        """Grows strictly with ``slot``, by uneven steps."""
        even = EPOCH_NS + DELIVERY_LAG_NS + slot * self._delivery_step
        return np.asarray(even + noise(slot, self._delivery_step))


def noise(values: Int64, below: int) -> Int64:
    """Reproducible noise in 0 .. below-1: a hash of the value (splitmix64's mixer)."""
    x = values.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(below)).astype(np.int64)


def blank(table: str, rows: int) -> Columns:
    columns = {c.name: np.zeros(rows, c.dtype) for c in SEALED[table]}
    return columns | {c.name: columns[c.name] + c.missing for c in SEALED[table] if c.missing}


# -- log


def log(
    world: World, view: Sequence[int], buckets: Mapping[int, int] | None, bucket: int
) -> Iterator[Columns]:
    """Log rows of ``view`` in the order the audit read them.

    ``buckets``: bucket by stream index, None for the whole run at once; then ``bucket`` is ignored.
    """
    lengths = [len(world.streams[n].log) for n in view]
    step = chunk_of(view)
    for start in range(0, max(len(s.log) for s in world.streams), step):
        stream, row = stacked(world, view, start, start + step, lengths)
        if buckets is not None:
            inside = [s for s in world.strays if start <= s.row < start + step]
            stream, row = exchanged(world, stream, row, inside, buckets, bucket)
        yield log_columns(world, stream, row)


def chunk_of(view: Sequence[int]) -> int:
    """Rows of each stream to make at a time, a multiple of the batch."""
    return max(CHUNK_ROWS // (BATCH * max(len(view), 1)), 1) * BATCH


def stacked(
    world: World, view: Sequence[int], start: int, end: int, lengths: Sequence[int]
) -> tuple[Int64, Int64]:
    """(stream index, row) of rows start .. end-1 of every stream, a batch of each stream in
    turn."""
    rows = np.arange(start, end, dtype=np.int64).reshape(-1, 1, BATCH)
    there = rows < np.array(lengths, np.int64)[None, :, None]
    stream = np.broadcast_to(np.array(view, np.int64)[None, :, None], there.shape)[there]
    return stream, np.broadcast_to(rows, there.shape)[there]


def exchanged(
    world: World,
    stream: Int64,
    row: Int64,
    strays: Sequence[Stray],
    buckets: Mapping[int, int],
    bucket: int,
) -> tuple[Int64, Int64]:
    """Rows go by their header's lane: take out those of other buckets, put in those of other
    streams."""
    away = [s for s in strays if buckets[s.stream] == bucket != buckets[s.home]]
    added = [s for s in strays if buckets[s.stream] != bucket == buckets[s.home]]
    if not away and not added:
        return stream, row
    kept = ~np.isin(world.slots(stream, row), world.slots(*_places(away)))
    more_stream, more_row = _places(added)
    stream = np.concatenate([stream[kept], more_stream])
    row = np.concatenate([row[kept], more_row])
    order = np.argsort(world.slots(stream, row), kind="stable")
    return stream[order], row[order]


def _places(strays: Sequence[Stray]) -> tuple[Int64, Int64]:
    return np.array([s.stream for s in strays], np.int64), np.array(
        [s.row for s in strays], np.int64
    )


def log_columns(world: World, stream: Int64, row: Int64) -> Columns:
    """Columns of log rows (stream index, position)."""
    out = blank("log", len(row))
    out["position"][:] = row
    identify(world, stream, row, out)
    out["broker_time_ms"][:] = (
        WALL_MS + (np.maximum(out["t_intended_ns"], EPOCH_NS) - EPOCH_NS) // 1_000_000
    )
    return out


def identify(world: World, stream: Int64, position: Int64, out: Columns) -> None:
    """Fill in who lies at a position of a stream's log: identity, stream, check, intended time."""
    for number in np.unique(stream).tolist():
        here = np.flatnonzero(stream == number)
        own = world.streams[number]
        ref = own.log[position[here]].astype(np.int64)
        count = len(own.instances)
        seq, i = np.divmod(np.maximum(ref, 0), count)
        out["stream"][here] = own.number
        out["instance"][here] = own.instances[i]
        out["lane"][here] = own.lane
        out["seq"][here] = seq
        out["kind"][here] = Kind.LOAD
        if "t_intended_ns" in out:
            times = np.stack([world.intended(int(x), number, seq) for x in own.instances])
            out["t_intended_ns"][here] = times[i, np.arange(len(i))]
        for place in np.flatnonzero(ref < 0).tolist():
            _identify_special(world, own.specials[-int(ref[place]) - 1], int(here[place]), out)


def _identify_special(world: World, special: Mapping[str, int], row: int, out: Columns) -> None:
    for name in ("instance", "lane", "seq", "attempt", "kind", "check"):
        out[name][row] = special.get(name, Check.OK if name == "check" else 0)
    if "t_intended_ns" not in out:
        return
    out["t_intended_ns"][row] = 0
    if special.get("check", Check.OK) == Check.OK:
        number = world.by_lane[special["lane"]]
        seq = np.array([special["seq"]], np.int64)
        out["t_intended_ns"][row] = world.intended(special["instance"], number, seq)[0]
