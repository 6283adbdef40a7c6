"""A bucket as plain rows, with the few look-ups that the definitions speak of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.capture.context import Context
from harness.records import Check, Event, Txn

Row = dict[str, Any]
Identity = tuple[int, int, int, int]  # instance, lane, seq, attempt
#: An identity; ("row", *place) for log rows and deliveries without one; ("stall", stream).
Name = tuple[Any, ...]
Place = tuple[int, int, int, int]  # stream, ledger, position, batch index (none: 0)


@dataclass(frozen=True)
class Hit:
    cls: str
    name: Name
    split: str = ""
    unmet: frozenset[str] = frozenset()
    t_ns: int = 0


def rows_of(columns: Mapping[str, Any]) -> list[Row]:
    names = list(columns)
    lists = [columns[name].tolist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]


def identity(row: Row) -> Identity:
    return row["instance"], row["lane"], row["seq"], row["attempt"]


def place(row: Row) -> Place:
    return row["stream"], row["ledger"], row["position"], max(row["batch"], 0)


def once(log: list[Row]) -> list[Row]:
    """Without rows that a reader saw again: one place holds a message once."""
    seen: set[Name] = set()
    kept = []
    for row in log:
        name = (*place(row), *identity(row), row["kind"], row["check"])
        if not kept or name not in seen:
            kept.append(row)
        seen.add(name)
    return kept


class Facts:
    """``sent``: identity -> send row. ``copies``: identity -> its visible log rows, in log
    order."""

    def __init__(self, context: Context, tables: Mapping[str, Mapping[str, Any]]) -> None:
        self.context = context
        self.sends = [row for row in rows_of(tables["sends"]) if row["kind"] != 0]
        self.log = once(sorted(rows_of(tables["log"]), key=place))
        self.deliveries = sorted(
            rows_of(tables["deliveries"]), key=lambda r: (r["session"], r["ordinal"])
        )
        self.sent: dict[Identity, Row] = {}
        for row in self.sends:
            self.sent.setdefault(identity(row), row)
        self.copies: dict[Identity, list[Row]] = {}
        for row in self.log:
            if self.is_message(row) and row["txn"] <= Txn.COMMITTED:
                self.copies.setdefault(identity(row), []).append(row)
        self.withheld = {
            identity(r) for r in self.log if self.is_message(r) and not self.visible(r)
        }
        hidden = [r for r in self.log if self.is_message(r) and r["txn"] in (Txn.OPEN, Txn.UNKNOWN)]
        self.undecided = {identity(r) for r in hidden} - set(self.copies)
        self.at = {place(row): row for row in self.log}
        self.taken = {identity(r) for r in self.given() if context.is_queue[r["stream"]]}

    @staticmethod
    def is_message(row: Row) -> bool:
        return row["check"] == Check.OK and row["kind"] != 0

    def given(self) -> list[Row]:
        """Deliveries of messages, in journal order."""
        return [r for r in self.deliveries if r["event"] == Event.DELIVER and self.is_message(r)]

    def visible(self, row: Row | None) -> bool:
        return row is not None and self.is_message(row) and row["txn"] <= Txn.COMMITTED

    def matches(self, delivery: Row) -> bool:
        """The log holds the delivered message at that place."""
        row = self.at.get(place(delivery))
        return self.visible(row) and row is not None and identity(row) == identity(delivery)

    def top(self, instance: int, lane: int) -> int:
        """Highest sequence that the journal has of first attempts; -1 = none."""
        return max(
            (s for i, ln, s, a in self.sent if (i, ln, a) == (instance, lane, 0)), default=-1
        )

    def present(self, name: Identity) -> bool:
        """It was certainly stored: the log holds it, or a queue gave it out."""
        return name in self.copies or name in self.taken

    def from_log(self) -> list[Row]:
        """Deliveries of messages from where there is a log."""
        return [r for r in self.given() if not self.context.is_queue[r["stream"]]]

    def acked_place(self, name: Identity) -> Place | None:
        row = self.sent[name]
        return place(row) if row["stream"] > 0 and row["position"] >= 0 else None

    def lane_stream(self, lane: int) -> int:
        return int(self.context.lane_stream[lane]) if lane < self.context.n_lanes else 0

    def read_whole(self, stream: int) -> bool:
        """It was read to its end, and so was the stream that its messages may be moved to."""
        moved = self.context.moves.get(self.context.stream_name(stream), "")
        others = [self.context.streams.index(moved) + 1] if moved in self.context.streams else []
        if others and not self.context.drained:
            return False  # messages may be on the way
        return all(self.context.stream_bounds(one).is_complete for one in (stream, *others))

    def topic_streams(self, lane: int) -> list[int]:
        if lane >= self.context.n_lanes:
            return []
        topic = self.context.topics[self.context.lane_topic[lane]]
        return [n for n, s in enumerate(self.context.streams, 1) if s.rpartition("-")[0] == topic]
