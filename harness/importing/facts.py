"""Gathers what the rows of an import say together: lanes and where they lie, who sent, who read,
when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from harness.errors import UsageError
from harness.importing.rows import Range, Read, refuse_row
from harness.importing.source import ImportSource
from harness.importing.values import Ints
from harness.records import Check, Event, Kind, Outcome, Txn
from harness.systems import system_of

#: Producers, and consumer sessions: each is an entry of the plan.
MAX_OWNERS: Final = 10_000
_DAY_NS: Final = 86_400 * 1_000_000_000
MAX_SPAN_NS: Final = 30 * _DAY_NS
_LANE_BITS: Final = 32


@dataclass(slots=True)
class SessionRows:
    """A consumer session while its rows are read. Ordinals are dense and times do not fall."""

    subscription: int
    first_ns: int
    last_ns: int = 0
    next: int = 0
    #: Rows that came out of order, looked at when all are there.
    held: list[tuple[Ints, Ints]] = field(default_factory=list)


class ImportFacts:
    """Gathered while the tables are read, in bounded memory."""

    def __init__(self, source: ImportSource, ranges: Mapping[int, Range]) -> None:
        self.rows = dict.fromkeys(("sends", "log", "deliveries"), 0)
        self.instances: set[int] = set()
        self.sessions: dict[int, SessionRows] = {}
        self.events: set[int] = set()
        self.named_positions = self.has_checks = self.has_epochs = False
        #: The log has a column for the states of transactions; some message was sent in one.
        self.has_states = self.has_transactions = False
        self.first_ns = self.last_ns = self.first_due_ns = 0
        #: Sends for which the time of the call is used, as the import has no intended time of
        #: theirs.
        self.without_due = 0
        self.has_resends = False
        #: Tables that cannot tell a re-send from what it repeats.
        self._without_attempt: list[str] = []
        #: By table, lane and stream of messages, as one number each.
        self._found: dict[str, set[int]] = defaultdict(set)
        self._source = source
        self._ranges = ranges
        self._system = system_of(source.description.system)

    def add(self, table: str, read: Read) -> None:
        """Take rows; gives sessions their ordinals.

        Raises:
            UsageError: a row that contradicts another one.
        """
        self.rows[table] += read.batch.rows
        {"sends": self._sends, "log": self._log, "deliveries": self._deliveries}[table](read)

    def has_columns(self, table: str, present: Collection[str]) -> None:
        """Which columns a table has."""
        self.has_checks |= "check" in present
        self.has_epochs |= "epoch" in present
        self.has_states |= table == "log" and "txn" in present
        if table != "sends" and self.rows[table] and "attempt" not in present:
            self._without_attempt.append(table)

    def finish(self) -> None:
        """Check what only all rows together show.

        Raises:
            UsageError: as `add`.
        """
        if not self.rows["sends"]:
            raise UsageError("sends holds no rows: there is nothing to judge")
        if self.has_resends and self._without_attempt:
            tables = " and ".join(self._without_attempt)
            raise UsageError(
                f"sends holds re-sends (attempt above 0), and there is no column attempt in {tables}: "
                "a re-send cannot be told from its original there",
                hint="write the attempt into the payload too, and into these tables; or give a re-send a seq "
                "of its own",
            )
        if self.last_ns - self.first_ns > MAX_SPAN_NS:
            raise UsageError(
                f"the times span {(self.last_ns - self.first_ns) / _DAY_NS:,.0f} days; at most 30",
                hint="all times must be of one clock, and in the unit of `times` in import.yaml",
            )
        for number, session in sorted(self.sessions.items()):
            _finish_session(number, session)

    def pairs(self, table: str) -> Iterator[tuple[int, int]]:
        """(lane, stream) wherever the table has a message of the lane; stream 0: nowhere."""
        return (
            (pair & (1 << _LANE_BITS) - 1, pair >> _LANE_BITS)
            for pair in sorted(self._found[table])
        )

    def _meet(self, table: str, lane: Ints, stream: Ints) -> None:
        self._found[table].update(np.unique(lane | stream << _LANE_BITS).tolist())

    def _seen(self, times: Ints) -> None:
        if len(times):
            first, last = int(times.min()), int(times.max())
            self.first_ns = min(self.first_ns or first, first)
            self.last_ns = max(self.last_ns, last)

    def _own(self, owners: set[int] | dict[int, SessionRows], what: str) -> None:
        if len(owners) > MAX_OWNERS:
            raise UsageError(
                f"more than {MAX_OWNERS:,} different {what}s",
                hint=f"a {what} is a process or a client",
            )

    def _sends(self, read: Read) -> None:
        rows = read.rows
        self.instances.update(np.unique(rows["instance"]).tolist())
        self._own(self.instances, "instance")
        self._meet("sends", rows["lane"], rows["stream"])
        self.without_due += int((rows["t_intended_ns"] == rows["t_start_ns"]).sum())
        self.named_positions |= bool((rows["position"] >= 0).any())
        self.has_resends |= bool((rows["attempt"] > 0).any())
        self.has_transactions |= bool((rows["outcome"] == Outcome.ABORTED).any())
        for name in ("t_intended_ns", "t_start_ns", "t_done_ns"):
            self._seen(rows[name][rows[name] > 0])
        due = rows["t_intended_ns"][rows["kind"] != Kind.PROBE]
        if len(due):
            self.first_due_ns = min(self.first_due_ns or int(due.min()), int(due.min()))

    def _log(self, read: Read) -> None:
        rows = read.rows
        intact = rows["check"] == Check.OK
        self._meet("log", rows["lane"][intact], rows["stream"][intact])
        self.has_transactions |= bool((rows["txn"] != Txn.NONE).any())
        if self._system.has_offsets and self._ranges:
            self._refuse_unread(read)

    def _refuse_unread(self, read: Read) -> None:
        """A row beyond what log_bounds says was read: one of the two is wrong."""
        names, position = self._source.description.streams(), read.rows["position"]
        for stream in np.unique(read.rows["stream"]).tolist():
            known = self._ranges.get(stream)
            if known is None:
                continue
            own = read.rows["stream"] == stream
            wrong = own & ((position < known.begin) | (position >= known.read_to))
            if wrong.any():
                index = int(np.argmax(wrong))
                span = (
                    f"positions {known.begin} to {known.read_to - 1}"
                    if known.read_to
                    else "nothing"
                )
                refuse_row(
                    read.batch,
                    index,
                    f"position is {int(position[index])}, but log_bounds says that {span} of "
                    f"{names[stream - 1]} was read",
                )

    def _deliveries(self, read: Read) -> None:
        rows = read.rows
        self.events.update(np.unique(rows["event"]).tolist())
        given = (rows["event"] == Event.DELIVER) & (rows["check"] == Check.OK)
        self._meet("deliveries", rows["lane"][given], rows["stream"][given])
        self._seen(rows["t_ns"])
        order = np.argsort(rows["session"], kind="stable")
        starts = np.flatnonzero(np.diff(rows["session"][order], prepend=-1))
        for own in np.split(order, starts[1:]):
            self._session(read, own)
        self._own(self.sessions, "session")

    def _session(self, read: Read, own: Ints) -> None:
        """``own``: places of one session's rows in the batch, ascending."""
        rows, number = read.rows, int(read.rows["session"][own[0]])
        subscription, times = rows["subscription"][own], rows["t_ns"][own]
        session = self.sessions.setdefault(number, SessionRows(int(subscription[0]), int(times[0])))
        other = subscription != session.subscription
        if other.any():
            index = int(own[np.argmax(other)])
            refuse_row(
                read.batch, index, f"session {number} has another subscription in a row before"
            )
        expected = np.arange(session.next, session.next + len(own), dtype=np.int64)
        if "ordinal" not in read.present:
            rows["ordinal"][own] = expected
        ordinal = rows["ordinal"][own]
        if (ordinal < 0).any():
            refuse_row(
                read.batch,
                int(own[np.argmax(ordinal < 0)]),
                "ordinal has no value, and other rows have one",
            )
        if session.held or not np.array_equal(ordinal, expected):
            session.held.append((ordinal, times))
            return
        falls = np.flatnonzero(np.diff(times, prepend=session.last_ns) < 0)
        if len(falls):
            _refuse_times(number, int(ordinal[falls[0]]))
        session.next += len(own)
        session.last_ns = int(times[-1])


def _finish_session(number: int, session: SessionRows) -> None:
    if not session.held:
        return
    ordinal = np.concatenate([part for part, _ in session.held])
    times = np.concatenate([part for _, part in session.held])
    order = np.argsort(ordinal, kind="stable")
    ordinal, times = ordinal[order], times[order]
    wrong = np.flatnonzero(ordinal != np.arange(session.next, session.next + len(ordinal)))
    if len(wrong):
        due, found = session.next + int(wrong[0]), int(ordinal[wrong[0]])
        problem = f"ordinal {due} is missing" if found > due else f"ordinal {found} is there twice"
        raise UsageError(
            f"deliveries: session {number}: {problem}",
            hint="ordinals count 0, 1, 2 ... in each session; leave the column out if the rows are in order",
        )
    falls = np.flatnonzero(np.diff(times, prepend=session.last_ns) < 0)
    if len(falls):
        _refuse_times(number, int(ordinal[falls[0]]))
    session.first_ns = min(session.first_ns, int(times[0]))
    session.last_ns = int(times[-1])


def _refuse_times(session: int, ordinal: int) -> None:
    raise UsageError(
        f"deliveries: session {session}: t_ns of ordinal {ordinal} is earlier than the one of the row before",
        hint="rows of a session are in the order in which the application saw them",
    )


@dataclass(frozen=True, slots=True)
class Routing:
    """Bucket and topic of every lane, bucket of every stream that has a lane, and how many
    buckets."""

    lanes: Mapping[int, int]
    topics: Mapping[int, str]
    streams: Mapping[int, int]
    buckets: int


def routing_of(source: ImportSource, facts: ImportFacts, most_buckets: int) -> Routing:
    """Lanes that share a stream share a bucket, and so do the streams of a lane.

    Raises:
        UsageError: it is not known which topic a lane belongs to.
    """
    said = source.description
    pairs = [pair for table in ("sends", "log", "deliveries") for pair in facts.pairs(table)]
    topics = _topics(source, pairs)
    number = {text: n for n, text in enumerate(said.streams(), start=1)}
    for lanes in said.lanes:
        if lanes.mode == "partition":
            count = lanes.count or said.topics[lanes.topic]
            pairs += [(lanes.first + i, number[f"{lanes.topic}-{i}"]) for i in range(count)]
    group = _Groups()
    for lane, stream in pairs:
        group.join(("lane", lane), ("stream", stream) if stream else ("lane", lane))
    roots = {root: n for n, root in enumerate(group.roots())}
    buckets = max(1, min(most_buckets, len(roots)))
    lanes_of = {
        lane: roots[group.root(("lane", lane))] % buckets
        for lane in topics
        if group.has(("lane", lane))
    }
    streams = {s: roots[group.root(("stream", s))] % buckets for _, s in pairs if s}
    return Routing({lane: lanes_of.get(lane, 0) for lane in topics}, topics, streams, buckets)


def _topics(source: ImportSource, pairs: Sequence[tuple[int, int]]) -> dict[int, str]:
    """Topic of every lane: as import.yaml says, else the one that all of its messages were found
    in."""
    said = source.description
    topic_of = [topic for topic, count in said.topics.items() for _ in range(count)]
    stated = {
        lane: lanes.topic
        for lanes in said.lanes
        for lane in range(lanes.first, lanes.first + (lanes.count or said.topics[lanes.topic]))
    }
    found: dict[int, set[str]] = defaultdict(set)
    for lane, stream in pairs:
        found[lane].update([topic_of[stream - 1]] if stream else [])
    for lane, topics in found.items():
        if lane in stated:
            continue
        if len(topics) > 1:
            raise UsageError(
                f"lane {lane} is found in topics {' and '.join(sorted(topics)[:2])}",
                hint=_SAY_LANES,
            )
        if not topics and len(said.topics) > 1:
            raise UsageError(
                f"lane {lane} is found in no stream: its topic is not known", hint=_SAY_LANES
            )
        stated[lane] = next(iter(topics or said.topics))
    return stated


_SAY_LANES: Final = "lanes of import.yaml says which topic a lane belongs to"

_Node = tuple[str, int]


class _Groups:
    """Nodes that were joined, directly or through others."""

    def __init__(self) -> None:
        self._parent: dict[_Node, _Node] = {}

    def root(self, node: _Node) -> _Node:
        """Return the first member of the node's group; a new node is a group of its own."""
        self._parent.setdefault(node, node)
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def has(self, node: _Node) -> bool:
        """Return whether the node was met before."""
        return node in self._parent

    def join(self, one: _Node, other: _Node) -> None:
        self._parent[self.root(one)] = self.root(other)

    def roots(self) -> list[_Node]:
        """Return one member of every group, in a fixed order."""
        return sorted({self.root(node) for node in tuple(self._parent)})
