"""The script of a planted run by stream: who is in its log in which order, who was given what.

A stream without anomalies holds the messages of its topic's producer instances in turn: clean index
``seq * instances + i``. Anomalies are edits of that order, each within a block of `SPAN`
consecutive messages of every instance that no other anomaly touches, so each has exactly the effect
its name says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.records import Event

#: Messages of each instance that one anomaly has to itself.
SPAN = 16
#: Script rows of one stream before the journal turns to the next stream.
BATCH = 512
PAD = 0  # no row; no Event has this number
_NOT_STORED = -1

Int32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
#: A log row: >= 0 the clean index of a message of this stream, < 0 one of `specials`, from -1 down.
Ref = int


@dataclass
class Stream:
    """Edits of one stream and, after `settle`, its log and its delivery script."""

    number: int  # name id, from 1
    lane: int
    instances: npt.NDArray[np.uint32]
    messages: int  # of each instance
    first_session: int
    sessions: int
    specials: list[dict[str, int]] = field(default_factory=list)
    sends: dict[int, dict[str, int]] = field(default_factory=dict)  # clean index -> changed columns
    # (after, of): attempt 1 of clean index
    resends: list[tuple[int, int]] = field(default_factory=list)
    unrecorded: set[int] = field(default_factory=set)
    log: Int32 = field(init=False)
    first: Int32 = field(init=False)  # position of the first copy by clean index, -1 not stored
    script_position: Int32 = field(init=False)
    script_event: Bytes = field(init=False)
    script_session: Bytes = field(init=False)

    def __post_init__(self) -> None:
        self._dropped: list[int] = []
        self._inserted: list[tuple[int, Ref]] = []
        self._deliveries: list[tuple[str, int]] = []

    @property
    def size(self) -> int:
        """Messages of all instances."""
        return self.messages * len(self.instances)

    def index(self, seq: int, i: int) -> int:
        return seq * len(self.instances) + i

    def identity(self, index: int) -> tuple[int, int, int, int]:
        """(instance, lane, seq, attempt) of a clean index."""
        seq, i = divmod(index, len(self.instances))
        return int(self.instances[i]), self.lane, seq, 0

    # -- edits of the log

    def drop(self, index: int) -> None:
        """It is not stored (at its place)."""
        self._dropped.append(index)

    def insert(self, before: int, ref: Ref) -> None:
        """A copy, or a special row, is stored before the place of clean index ``before``."""
        self._inserted.append((before, ref))

    def special(self, **columns: int) -> Ref:
        """A log row that is none of this stream's messages, or not plainly so.

        With ``ack_lane`` and ``ack_index`` (and ``attempt``) it is where that send was
        acknowledged.
        """
        self.specials.append(columns)
        return -len(self.specials)

    # -- edits of what was delivered

    def disturb(self, what: str, index: int) -> None:
        """skip, repeat, swap, rebalance or rewind at the first copy of ``index``."""
        self._deliveries.append((what, index))

    # -- outcome

    def settle(self) -> None:
        """Make the log and the delivery script from the edits."""
        self.log = self._log()
        self.first = np.full(self.size, _NOT_STORED, np.int32)
        own = np.flatnonzero(self.log >= 0)[::-1]
        self.first[self.log[own]] = own  # the last assignment wins: the first copy
        keys, events, positions = self._script()
        order = np.argsort(keys, kind="stable")
        event, position = events[order], positions[order]
        session = (self.first_session + np.cumsum(event == Event.ASSIGN) - 1) % self.sessions + 1
        self.script_event = _opened(event, PAD)
        self.script_position = _opened(position, -1)
        self.script_session = _opened(session.astype(np.uint8), 0)

    def special_at(self, position: int) -> dict[str, int]:
        """The special row at a position of the log."""
        return self.specials[-int(self.log[position]) - 1]

    def acknowledged_position(self, index: int) -> int:
        """Where the broker said it put a message that its log lacks: right after the one before
        it."""
        before = index - len(self.instances)
        return int(self.first[before]) + 1 if before >= 0 else 0

    def pad(self, rows: int) -> None:
        """Lengthen the script with rows that are none."""
        missing = rows - len(self.script_event)
        self.script_event = np.pad(self.script_event, (0, missing), constant_values=PAD)
        self.script_position = np.pad(self.script_position, (0, missing))
        self.script_session = np.pad(self.script_session, (0, missing))

    def _log(self) -> Int32:
        clean = np.delete(np.arange(self.size, dtype=np.int64), self._dropped)
        if not self._inserted:
            return clean.astype(np.int32)
        before, refs = np.array(self._inserted, np.int64).T
        keys = np.concatenate([2 * clean + 1, 2 * before])
        order = np.argsort(keys, kind="stable")
        return np.concatenate([clean, refs])[order].astype(np.int32)

    def _script(self) -> tuple[npt.NDArray[np.int64], Bytes, Int32]:
        """Keys (4 x position + rank), events and positions, unsorted."""
        end = len(self.log)
        skipped: list[int] = []
        extra: list[tuple[int, int, int]] = [(-1, Event.ASSIGN, 0), (4 * end, Event.COMMIT, end)]
        for what, index in self._deliveries:
            self._disturbance(what, index, skipped, extra)
        for block in range(1, self.messages // SPAN, 64):
            place = int(self.first[self.index(block * SPAN, 0)])
            extra.append((4 * place, Event.COMMIT, place))
        given = np.delete(np.arange(end, dtype=np.int64), skipped)
        keys, events, positions = np.array(extra, np.int64).T
        return (
            np.concatenate([4 * given + 2, keys]),
            np.concatenate([np.full(len(given), Event.DELIVER), events]).astype(np.uint8),
            np.concatenate([given, positions]).astype(np.int32),
        )

    def _disturbance(
        self, what: str, index: int, skipped: list[int], extra: list[tuple[int, int, int]]
    ) -> None:
        here = int(self.first[index])
        if what == "skip":
            skipped.append(here)
        elif what == "repeat":
            extra.append((4 * here + 3, Event.DELIVER, here))
        elif what == "swap":
            skipped.append(here)
            extra.append((4 * (here + 1) + 3, Event.DELIVER, here))
        else:
            # here: the commit; up to given_to was delivered, uncommitted
            given_to = here + REDELIVERED - 1
            start = here if what == "rebalance" else here - REWOUND
            extra.append((4 * here + 1, Event.COMMIT, here))
            extra.append((4 * given_to + 3, Event.REVOKE, -1))
            extra.append((4 * given_to + 3, Event.ASSIGN, start))
            extra += [
                (4 * given_to + 3, Event.DELIVER, place) for place in range(start, given_to + 1)
            ]


#: Rows delivered but not committed when a planted rebalance happens, and committed ones a rewind
#: repeats.
REDELIVERED = 3
REWOUND = 2


def _opened(array: npt.NDArray[Any], filler: int) -> npt.NDArray[Any]:
    """The first row (the initial assignment) alone in its batch, before everything else."""
    return np.concatenate([array[:1], np.full(BATCH - 1, filler, array.dtype), array[1:]])


def settle_all(streams: Iterable[Stream]) -> int:
    """Settle every stream and give all scripts one length; batches of that length."""
    streams = list(streams)
    for stream in streams:
        stream.settle()
    batches = max(-(-len(s.script_event) // BATCH) for s in streams)
    for stream in streams:
        stream.pad(batches * BATCH)
    return batches
