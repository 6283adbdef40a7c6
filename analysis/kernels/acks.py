"""Looks up acknowledgements by message and by batch: when each was called, confirmed or refused.

Asked for the few messages that came twice or whose order is in doubt, never for a whole log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array, is_constant
from analysis.kernels.history import BucketHistory
from analysis.kernels.lookup import Ints, ragged
from analysis.kernels.matching import Given
from harness.records import Event

#: Later than every time.
NEVER = int(np.iinfo(np.int64).max)
_EVENTS = (Event.ACK_CALLED, Event.ACK_CONFIRMED, Event.NACK)


@dataclass(frozen=True, slots=True)
class Entries:
    """The batches that some log rows belong to; a message outside a batch is one alone.

    ``of``: entry of each asked row. ``rows``: log rows of all these entries, and ``number`` the
    entry of each. ``sizes``: messages of each entry.
    """

    of: Ints
    rows: Ints
    number: Ints
    sizes: Ints

    @classmethod
    def around(cls, history: BucketHistory, asked: Array) -> Entries:
        """Entries of log rows, asked in any order and any number of times."""
        log = history.bucket.log
        batch = log["batch"]
        if not len(batch) or is_constant(batch) or int(batch.max()) <= 0:
            rows, of = np.unique(asked, return_inverse=True)
            return cls(of, rows, np.arange(len(rows)), np.ones(len(rows), np.int64))
        new = np.ones(log.rows, np.bool_)
        new[1:] = False
        for name in ("stream", "ledger", "position"):
            new[1:] |= log[name][1:] != log[name][:-1]
        starts = np.append(np.flatnonzero(new), log.rows)
        entry, of = np.unique(np.searchsorted(starts, asked, side="right") - 1, return_inverse=True)
        sizes = starts[entry + 1] - starts[entry]
        number, offset = ragged(sizes)
        return cls(of, starts[entry][number] + offset, number, sizes)

    def latest(self, by_row: Array) -> Ints:
        """For each asked row, the latest value of its entry's messages."""
        out = np.full(len(self.sizes), -1, np.int64)
        np.maximum.at(out, self.number, by_row)
        return out[self.of]

    def earliest(self, by_row: Array) -> Ints:
        """For each asked row, the earliest value of its entry's messages."""
        out = np.full(len(self.sizes), NEVER)
        np.minimum.at(out, self.number, by_row)
        return out[self.of]

    @property
    def alone(self) -> Array:
        """Whether each asked row is alone in its entry, that is, not in a batch of several
        messages."""
        return np.asarray(self.sizes[self.of] == 1)


class Times:
    """Times of one kind of event by log row."""

    def __init__(self, row: Array, t_ns: Array) -> None:
        order = np.lexsort((t_ns, row))
        self._row, self._t_ns = row[order], t_ns[order]

    @property
    def rows(self) -> Array:
        """Log rows that have such an event, ascending, each once."""
        return np.unique(self._row)

    def first(self, rows: Array, since: Array | int = 0) -> Ints:
        """The first event of each row at or after a time; `NEVER` where there is none."""
        at = np.searchsorted(self._row, rows, side="left")
        end = np.searchsorted(self._row, rows, side="right")
        since = np.broadcast_to(since, len(rows))
        while True:  # as often as a message was acknowledged, which is once or twice
            early = np.flatnonzero(at < end)
            early = early[self._t_ns[at[early]] < since[early]]
            if not len(early):
                break
            at[early] += 1
        out = np.full(len(rows), NEVER)
        found = at < end
        out[found] = self._t_ns[at[found]]
        return out


class CumulativeTimes:
    """The same where an event covers all messages of the stream up to its own."""

    def __init__(self, row: Array, t_ns: Array, stream: Array, log_stream: Array) -> None:
        self._log_stream = log_stream
        self._of: dict[int, tuple[Ints, Ints]] = {}
        for number in np.unique(stream).tolist():
            own = np.flatnonzero(stream == number)
            own = own[np.argsort(t_ns[own], kind="stable")]
            self._of[number] = t_ns[own], np.maximum.accumulate(row[own])

    def first(self, rows: Array, since: Array | int = 0) -> Ints:
        """The first event that covers each row at or after a time."""
        out = np.full(len(rows), NEVER)
        since = np.broadcast_to(since, len(rows))
        stream = self._log_stream[rows]
        for number, (t_ns, reach) in self._of.items():
            own = np.flatnonzero(stream == number)
            at = np.maximum(np.searchsorted(reach, rows[own]), np.searchsorted(t_ns, since[own]))
            found = at < len(t_ns)
            out[own[found]] = t_ns[at[found]]
        return out


@dataclass(frozen=True, slots=True)
class GroupAcks:
    """The acknowledgements of one group: called, confirmed and refused."""

    called: Times | CumulativeTimes
    confirmed: Times | CumulativeTimes
    nacked: Times

    @classmethod
    def from_given(cls, given: Given, streams: Array) -> GroupAcks:
        """Acknowledgements in some streams."""
        history = given.history
        table, log_stream = history.bucket.deliveries, history.bucket.log["stream"]
        rows = given.rows
        chosen = np.flatnonzero(
            np.isin(table["event"][rows], _EVENTS) & np.isin(table["stream"][rows], streams)
        )
        delivery = chosen if isinstance(rows, slice) else rows[chosen]
        place = history.places.rows(
            *(table[n][delivery] for n in ("stream", "position", "ledger", "batch"))
        )
        delivery, place = delivery[place >= 0], place[place >= 0]
        event, t_ns = table["event"][delivery], table["t_ns"][delivery]

        def times(kind: Event) -> Times | CumulativeTimes:
            own = event == kind
            if history.context.reading(given.group).settle == "cumulative":
                return CumulativeTimes(
                    place[own], t_ns[own], table["stream"][delivery[own]], log_stream
                )
            return Times(place[own], t_ns[own])

        refused = event == Event.NACK
        return cls(
            times(Event.ACK_CALLED),
            times(Event.ACK_CONFIRMED),
            Times(place[refused], t_ns[refused]),
        )
