"""Consumer journals of a planted run: the delivery scripts of its streams, session by session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from harness.records import Event
from tests.planted.emitting import (
    Columns,
    Int64,
    Stray,
    World,
    blank,
    chunk_of,
    exchanged,
    identify,
    stacked,
)
from tests.planted.scripts import BATCH, PAD


def deliveries(
    world: World,
    view: Sequence[int],
    session: int,
    subscription: int,
    buckets: Mapping[int, int] | None,
    bucket: int,
) -> Iterator[Columns]:
    """The session's journal as far as it concerns ``view``, in order."""
    total = world.batches * BATCH
    strays = _stray_deliveries(world) if buckets is not None else []
    step = chunk_of(view)
    for start in range(0, total, step):
        end = min(start + step, total)
        stream, row = stacked(world, view, start, end, [total] * len(view))
        if buckets is not None:
            inside = [stray for stray in strays if start <= stray.row < end]
            stream, row = exchanged(world, stream, row, inside, buckets, bucket)
        yield _journal(world, stream, row, session, subscription)


def _stray_deliveries(world: World) -> list[Stray]:
    """Script rows that hand out a stray log row."""
    found = []
    for stray in world.strays:
        script = world.streams[stray.stream]
        given = (script.script_event == Event.DELIVER) & (script.script_position == stray.row)
        found += [Stray(stray.stream, row, stray.home) for row in np.flatnonzero(given).tolist()]
    return found


def _journal(world: World, stream: Int64, row: Int64, session: int, subscription: int) -> Columns:
    """Columns of the script rows that are this session's."""
    event, position, ordinal = _script_rows(world, stream, row, session)
    mine = np.flatnonzero(ordinal >= 0)
    stream, row = stream[mine], row[mine]
    out = blank("deliveries", len(mine))
    slot = world.slots(stream, row)
    out["session"][:] = session
    out["subscription"][:] = subscription
    out["ordinal"][:] = ordinal[mine]
    out["t_ns"][:] = world.delivered(slot)
    out["epoch"][:] = 1 + np.searchsorted(world.assign_slots[session], slot, side="right")
    out["redelivery"][:] = -1
    event, position = event[mine], position[mine]
    given = np.flatnonzero(event == Event.DELIVER)
    part = {
        name: out[name][given]
        for name in ("stream", "instance", "lane", "seq", "attempt", "kind", "check")
    }
    identify(world, stream[given], position[given].astype(np.int64), part)
    for name, array in part.items():
        out[name][given] = array
    numbers = np.array([s.number for s in world.streams], np.int32)
    out["stream"][:] = numbers[stream]
    out["event"][:] = event
    out["position"][:] = position
    return out


def _script_rows(
    world: World, stream: Int64, row: Int64, session: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], Int64]:
    """Event, position and the session's ordinal (-1: not its row) of script rows."""
    event = np.zeros(len(row), np.uint8)
    position = np.zeros(len(row), np.int32)
    ordinal = np.full(len(row), -1, np.int64)
    for number in np.unique(stream).tolist():
        script = world.streams[number]
        here = np.flatnonzero(stream == number)
        rows = row[here]
        event[here], position[here] = script.script_event[rows], script.script_position[rows]
        low, high = int(rows[0]) // BATCH, int(rows[-1]) // BATCH + 1
        window = slice(low * BATCH, high * BATCH)
        mine = (script.script_session[window] == session) & (script.script_event[window] != PAD)
        by_batch = mine.reshape(-1, BATCH)
        ranks = (
            np.cumsum(by_batch, axis=1)
            - 1
            + world.first_ordinal[session, low:high, number][:, None]
        )
        ranks[~by_batch] = -1
        ordinal[here] = ranks.ravel()[rows - low * BATCH]
    return event, position, ordinal
