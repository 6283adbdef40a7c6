"""Sends of a planted run, chunk by chunk: paced, answered in batches, some sent again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from harness.records import Kind, Outcome
from tests.planted.emitting import CHUNK_ROWS, Columns, World, blank, noise
from tests.planted.scripts import SPAN, Stream

_TICK_NS: Final = 1_000_000  # a paced sender wakes up this often and sends what is due
_LINGER_NS: Final = 10_000_000  # messages of this long are acknowledged together


def sends(world: World, view: Sequence[int], instance: int) -> Iterator[Columns]:
    """Sends of one instance to the streams of ``view``, in send order."""
    numbers = [n for n in world.lanes_of[instance] if n in set(view)]
    if not numbers:
        return
    messages = world.streams[numbers[0]].messages
    step = max(CHUNK_ROWS // len(numbers) // SPAN, 1) * SPAN
    for start in range(0, messages, step):
        yield _sends(world, numbers, instance, start, min(start + step, messages))


def _sends(world: World, numbers: list[int], instance: int, start: int, end: int) -> Columns:
    rows, width = end - start, len(numbers)
    out = blank("sends", rows * width)
    out["instance"][:] = instance
    out["kind"][:] = Kind.LOAD
    out["outcome"][:] = Outcome.OK
    by_lane = {name: array.reshape(rows, width) for name, array in out.items()}
    seq = np.arange(start, end, dtype=np.int64)
    by_lane["seq"][:] = seq[:, None]
    for column, number in enumerate(numbers):
        stream = world.streams[number]
        i = stream.instances.tolist().index(instance)
        count = len(stream.instances)
        by_lane["lane"][:, column] = stream.lane
        by_lane["stream"][:, column] = stream.number
        by_lane["position"][:, column] = stream.first[start * count + i : end * count : count]
        by_lane["t_intended_ns"][:, column] = world.intended(instance, number, seq)
    _times(out)
    _exceptions(world, numbers, instance, start, end, by_lane)
    return _resends(world, numbers, instance, start, end, out)


def _times(out: Columns) -> None:
    """A paced sender wakes up, sends what is due; acknowledgements come batch by batch."""
    due = out["t_intended_ns"]
    wake = (due // _TICK_NS + 1) * _TICK_NS
    start = out["t_start_ns"]
    start[:] = wake + (due % _TICK_NS) // 8 + noise(due, 400)
    batch = start // _LINGER_NS
    answered = (batch + 1) * _LINGER_NS + noise(batch * 1000 + out["lane"], 6_000_000)
    out["t_done_ns"][:] = answered + (start % _LINGER_NS) // 32 + noise(start, 150)


def _exceptions(
    world: World, numbers: list[int], instance: int, start: int, end: int, by_lane: Columns
) -> None:
    """Sends whose outcome or acknowledged place is not the plain one."""
    for column, number in enumerate(numbers):
        stream = world.streams[number]
        i = stream.instances.tolist().index(instance)
        for index in _indexes(stream, i, start, end, np.flatnonzero(stream.first < 0).tolist()):
            row = index // len(stream.instances) - start
            acked = world.acks.get(
                (stream.lane, index, 0), (stream.number, stream.acknowledged_position(index))
            )
            by_lane["stream"][row, column], by_lane["position"][row, column] = acked
        for index in _indexes(stream, i, start, end, stream.sends):
            row = index // len(stream.instances) - start
            for name, value in stream.sends[index].items():
                by_lane[name][row, column] = value


def _indexes(stream: Stream, i: int, start: int, end: int, indexes: Any) -> list[int]:
    """Those clean indexes that belong to instance number ``i`` and sequences start .. end-1."""
    count = len(stream.instances)
    return [x for x in indexes if x % count == i and start <= x // count < end]


def _resends(
    world: World, numbers: list[int], instance: int, start: int, end: int, out: Columns
) -> Columns:
    """Put attempt 1 rows in and take unrecorded rows out."""
    width = len(numbers)
    drop: list[int] = []
    put: list[tuple[int, int, int]] = []
    for column, number in enumerate(numbers):
        stream = world.streams[number]
        i = stream.instances.tolist().index(instance)
        count = len(stream.instances)
        drop += [
            (x // count - start) * width + column
            for x in _indexes(stream, i, start, end, stream.unrecorded)
        ]
        of = dict(stream.resends)
        put += [
            ((x // count - start) * width + column, number, of[x])
            for x in _indexes(stream, i, start, end, of)
        ]
    if not drop and not put:
        return out
    order = np.delete(np.arange(len(out["seq"])), drop)
    copied = [after for after, _, _ in sorted(put)]
    at = np.searchsorted(order, copied, side="right")
    order = np.insert(order, at, copied)
    out = {name: array[order] for name, array in out.items()}
    for shift, (where, (_, number, index)) in enumerate(zip(at.tolist(), sorted(put), strict=True)):
        _resend(world, out, where + shift, number, index)
    return out


def _resend(world: World, out: Columns, row: int, number: int, index: int) -> None:
    stream = world.streams[number]
    out["seq"][row] = index // len(stream.instances)
    out["attempt"][row] = 1
    out["stream"][row], out["position"][row] = world.acks[stream.lane, index, 1]
    for name in ("t_start_ns", "t_done_ns"):
        out[name][row] += 1000
