"""The second pass: judges streams whose rows ended up in more than one bucket.

Rows go to buckets by the lane in their header, and a stream's lanes share a bucket. A message
stored in another partition than its lane's is the exception: its rows stay with its lane. Each
bucket is then judged right for its own lanes, but no bucket sees the stream as a whole. For such
streams, and only for them, the rows of all buckets are put together and asked two things:

* was any of them delivered after a later position, with the later one in another bucket?
* does one position hold two messages? Then the record of the log contradicts itself.

The strays are few, so the first pass brings them along (`stream_rows`); the second one reads, once
for all its streams, the bucket that holds the rest of them (`judge_split`). Where a stream is
spread so that more than `FEW_ROWS` lie outside its home, those are read from their buckets too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analysis.capture.bucket import Bucket, Columns, chunks, narrow, open_tables
from analysis.capture.context import Context
from analysis.kernels.class_hits import ClassHits
from analysis.kernels.labels import place_text
from analysis.kernels.lookup import distinct
from analysis.kernels.partial import GAP_NS, WITNESSES_AN_EPISODE, Episode, RawWitness
from analysis.kernels.windows import counts_by_window
from harness.contracts.message import MessageId
from harness.records import Check, Event

Array = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Table = Mapping[str, Array]

#: Rows of a stream, in either table, that a bucket sends along unasked.
FEW_ROWS = 256

_PLACE = ("ledger", "position", "batch")
_IDENTITY = ("instance", "lane", "seq", "attempt")
_BREAKS = (Event.ASSIGN, Event.REVOKE, Event.SEEK)
_NO_STREAM = 0
#: Columns that every row is judged by.
_JUDGED = {
    "log": ("stream", *_PLACE),
    "deliveries": ("stream", "check", *_PLACE, "session", "ordinal", "event", "epoch"),
}
#: Columns that only what was found is described with.
_DESCRIBED = {"log": _IDENTITY, "deliveries": (*_IDENTITY, "t_ns")}


@dataclass(frozen=True, slots=True)
class StreamRows:
    """The streams of a bucket. ``rows``: log rows and deliveries by stream. ``few``: by table, the
    rows of the streams that have at most `FEW_ROWS` in this bucket.
    """

    bucket: int
    rows: Mapping[int, int] = field(default_factory=dict)
    few: Mapping[str, Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SplitStreams:
    """Streams that have rows outside their home, the bucket with most of their rows.

    ``carried``: (bucket, those rows by table). ``unread``: buckets with too many of a stream to
    carry.
    """

    home: int
    streams: tuple[int, ...]
    carried: tuple[tuple[int, Mapping[str, Table]], ...] = ()
    unread: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


# -- the first pass


def stream_rows(bucket: Bucket, *, few_rows: int = FEW_ROWS) -> StreamRows:
    """Streams of which the bucket holds log rows or deliveries, with the rows of small ones."""
    log = _rows_by_stream(bucket.log)
    given = _rows_by_stream(bucket.deliveries, only=Event.DELIVER)
    total = np.zeros(max(len(log), len(given)), np.int64)
    for counts in (log, given):
        total[: len(counts)] += counts
    total[:1] = 0
    streams = np.flatnonzero(total)
    small = tuple(s for s in streams.tolist() if 0 < total[s] <= few_rows)
    tables = {"log": bucket.log, "deliveries": bucket.deliveries}
    few = (
        {table: _carried(columns, table, small) for table, columns in tables.items()}
        if small
        else {}
    )
    return StreamRows(
        bucket.number, dict(zip(streams.tolist(), total[streams].tolist(), strict=True)), few
    )


def _carried(columns: Columns, table: str, streams: Sequence[int]) -> Table:
    own = _rows_of(columns, table, streams)
    return {name: columns[name][own] for name in (*_JUDGED[table], *_DESCRIBED[table])}


def _rows_by_stream(table: Columns, only: int | None = None) -> Array:
    """Number of rows by stream id; negative ids count as none."""
    counted = np.zeros(int(table["stream"].max(initial=_NO_STREAM)) + 1, np.int64)
    for part in chunks(table.rows):
        stream = np.maximum(table["stream"][part], _NO_STREAM)
        if only is not None:
            stream[table["event"][part] != only] = _NO_STREAM
        counted += np.bincount(stream, minlength=len(counted))
    return counted


# -- between them


def splits_of(parts: Sequence[StreamRows]) -> list[SplitStreams]:
    """The streams that more than one bucket has rows of, by the bucket that has most."""
    where: dict[int, list[StreamRows]] = defaultdict(list)
    for part in sorted(parts, key=lambda p: p.bucket):
        for stream in part.rows:
            where[stream].append(part)
    by_home: dict[int, list[int]] = defaultdict(list)
    for stream, holders in sorted(where.items()):
        if len(holders) > 1:
            by_home[max(holders, key=lambda p: p.rows[stream]).bucket].append(stream)
    return [_split(home, streams, where) for home, streams in sorted(by_home.items())]


def _split(
    home: int, streams: Sequence[int], where: Mapping[int, Sequence[StreamRows]]
) -> SplitStreams:
    carried: list[tuple[int, Mapping[str, Table]]] = []
    unread: dict[int, tuple[int, ...]] = {}
    for part in {p.bucket: p for s in streams for p in where[s] if p.bucket != home}.values():
        own = {s for s in streams if s in part.rows}
        has = {s for s in own if any((rows["stream"] == s).any() for rows in part.few.values())}
        if own - has:
            unread[part.bucket] = tuple(sorted(own - has))
        if has:
            carried.append(
                (part.bucket, {table: _only(rows, has) for table, rows in part.few.items()})
            )
    return SplitStreams(home, tuple(streams), tuple(carried), unread)


def _only(rows: Table, streams: Iterable[int]) -> Table:
    kept = np.isin(rows["stream"], [_NO_STREAM, *streams])
    return {name: column[kept] for name, column in rows.items()}


# -- the second pass


@dataclass(frozen=True, slots=True)
class Across:
    """Reordered deliveries, all of them if asked for, and a sentence for each position with two
    messages."""

    episodes: list[Episode] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    hits: list[ClassHits] = field(default_factory=list)


def judge_split(
    root_uri: str, split: SplitStreams, context: Context, *, every_hit: bool = False
) -> Across:
    """Judge what the first pass could not see: streams whose rows lie in several buckets."""
    opened = {n: open_tables(root_uri, n) for n in (split.home, *split.unread)}
    whole = {}
    for table in _JUDGED:
        read = [
            (n, opened[n][table], streams)
            for n, streams in [(split.home, split.streams), *split.unread.items()]
        ]
        parts = [
            _TablePart(n, columns, _rows_of(columns, table, streams))
            for n, columns, streams in read
        ]
        parts += [
            _TablePart(n, rows[table], np.arange(len(rows[table]["stream"])))
            for n, rows in split.carried
        ]
        whole[table] = _Whole(table, parts)
    log, deliveries = (whole[table].by_stream() for table in _JUDGED)
    out = Across()
    everywhere = deliveries.get(_NO_STREAM, np.empty(0, np.int64))
    for stream in split.streams:
        name = context.stream_name(stream)
        # For a stream that was reread, the order in which rows of several buckets were recorded is
        # unknown.
        if stream in log and context.stream_bounds(stream).again < 0:
            out.contradictions.extend(_contradictions(whole["log"], log[stream], name))
        if stream in deliveries:
            own = np.concatenate([deliveries[stream], everywhere])
            own = own[_promised_in_order(whole["deliveries"]["session"][own], context)]
            for found in _reordered(whole["deliveries"], own, stream, context):
                out.episodes.extend(found.episodes())
                out.hits.extend([found.every_hit()] if every_hit else [])
    return out


def _rows_of(columns: Columns, table: str, streams: Sequence[int]) -> Array:
    """Rows of the streams, in a journal also events of no stream: they concern all."""
    stream = columns["stream"]
    # the last covers all higher ids, the first all lower
    wanted = np.zeros(max(streams) + 2, np.bool_)
    wanted[list(streams)] = True
    rows = np.flatnonzero(np.take(wanted, stream, mode="clip"))
    if table == "deliveries":
        of_all = np.flatnonzero(stream == _NO_STREAM)
        of_all = of_all[np.isin(columns["event"][of_all], _BREAKS)]
        rows = np.union1d(rows, of_all) if len(of_all) else rows
    return rows


@dataclass(frozen=True, slots=True)
class _TablePart:
    """Some rows of a bucket's table."""

    bucket: int
    columns: Table
    rows: Array


class _Whole:
    """Rows of several buckets as one table. Columns to judge by are there at once; the others are
    looked up when they are asked for."""

    def __init__(self, table: str, parts: Sequence[_TablePart]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part.rows) for part in parts)])
        self.judged: Table = {
            name: np.concatenate([part.columns[name][part.rows].astype(np.int64) for part in parts])
            for name in _JUDGED[table]
        }

    def __getitem__(self, name: str) -> Array:
        return self.judged[name]

    def bucket(self, rows: Array) -> Array:
        """Where rows come from."""
        return np.array([part.bucket for part in self._parts])[self._part(rows)]

    def described(self, name: str, rows: Array) -> Array:
        """Another column, for a few rows."""
        out, part = np.empty(len(rows), np.int64), self._part(rows)
        for number in np.unique(part).tolist():
            own = np.flatnonzero(part == number)
            found = self._parts[number]
            out[own] = found.columns[name][found.rows[rows[own] - self._starts[number]]]
        return out

    def _part(self, rows: Array) -> Array:
        return np.searchsorted(self._starts, rows, side="right") - 1

    def message(self, row: int) -> str:
        """Name of a row's message."""
        return MessageId.witness(*(int(self.described(n, np.array([row]))[0]) for n in _IDENTITY))

    def place(self, row: int) -> str:
        """Where a row lies in its stream."""
        return place_text(*(int(self[key][row]) for key in ("position", "ledger", "batch")))

    def by_stream(self) -> dict[int, Array]:
        """Row numbers of each stream, in the order of the rows."""
        stream = self["stream"]
        order = np.argsort(narrow(stream), kind="stable")
        numbers, starts = np.unique(stream[order], return_index=True)
        return (
            dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True))
            if len(order)
            else {}
        )


def _promised_in_order(session: Array, context: Context) -> Flags:
    """Rows of sessions that are promised the order of a stream."""
    ordered = []
    for number in distinct(session).tolist():
        known = context.sessions.get(number)
        reading = known.reading if known else context.reading("")
        if reading.order == "stream":
            ordered.append(number)
    return np.isin(session, ordered)


def _contradictions(log: _Whole, rows: Array, name: str) -> Iterator[str]:
    order = rows[_order_of([log[key][rows] for key in _PLACE])]
    same_place = np.ones(max(len(order) - 1, 0), np.bool_)
    for key in _PLACE:
        at = log[key][order]
        same_place &= at[1:] == at[:-1]
    twice = np.flatnonzero(same_place)
    first, second = order[twice], order[twice + 1]
    differs = np.zeros(len(twice), np.bool_)
    for key in _IDENTITY if len(twice) else ():
        differs |= log.described(key, first) != log.described(key, second)
    for i, j in zip(first[differs][:WITNESSES_AN_EPISODE], second[differs], strict=False):
        yield f"{name} holds both {log.message(i)} and {log.message(j)} at position {log.place(i)}"


def _order_of(keys: Sequence[Array]) -> npt.NDArray[np.intp]:
    """Row numbers by the keys; a key of one value costs nothing, nor do rows in order."""
    varied = [key for key in keys if len(key) and (key != key[0]).any()]
    return np.lexsort(varied[::-1]) if varied else np.arange(len(keys[0]))


def _reordered(table: _Whole, rows: Array, stream: int, context: Context) -> Iterator[_Found]:
    rows = rows[_order_of([table[key][rows] for key in ("session", "ordinal")])]
    event = table["event"][rows]
    assignment = _assignments(event, table["session"][rows], table["epoch"][rows])
    given = (
        (event == Event.DELIVER)
        & (table["check"][rows] == Check.OK)
        & (table["stream"][rows] == stream)
    )
    rows, assignment = rows[given], assignment[given]
    rank = _ranks([table[key][rows] for key in _PLACE])
    late, behind = _late(assignment, rank)
    if not late.any():
        return
    bucket = table.bucket(rows)
    seen_in_bucket, _ = _late(assignment * (int(bucket.max()) + 1) + bucket, rank)
    hits = np.flatnonzero(late & ~seen_in_bucket)
    if len(hits):
        yield _Found(table, rows[hits], rows[behind[hits]], stream, context)


def _assignments(event: Array, session: Array, epoch: Array) -> Array:
    """A number for each row, by (session, ordinal): grows with sessions, epochs, assigns, revokes,
    seeks."""
    new = np.isin(event, _BREAKS)
    if len(new):
        new[0] = True
        new[1:] |= (session[1:] != session[:-1]) | (epoch[1:] != epoch[:-1])
    return np.cumsum(new)


def _ranks(place: Sequence[Array]) -> Array:
    """Numbers that compare as the places do: the position itself where nothing else differs."""
    varied = [key for key in place if len(key) and (key != key[0]).any()]
    if len(varied) <= 1:
        return varied[0] if varied else np.zeros(len(place[0]), np.int64)
    order = _order_of(varied)
    higher = np.zeros(len(order), np.bool_)
    for key in varied:
        at = key[order]
        higher[1:] |= at[1:] != at[:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.cumsum(higher)
    return rank


def _late(assignment: Array, rank: Array) -> tuple[Flags, Array]:
    """Rows, in journal order, that come first in their assignment after a higher rank; and the row
    that had set the highest rank until then (only where late)."""
    late, behind = np.zeros(len(rank), np.bool_), np.full(len(rank), -1, np.int64)
    order = np.argsort(assignment, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(assignment[order])) + 1):
        mine = rank[own]
        if not (mine[1:] < mine[:-1]).any():
            continue
        highest = np.maximum.accumulate(mine)
        first = np.zeros(len(own), np.bool_)
        first[np.unique(mine, return_index=True)[1]] = True
        late[own] = first & (mine < highest)
        behind[own] = own[np.maximum.accumulate(np.where(mine == highest, np.arange(len(own)), 0))]
    return late, behind


@dataclass(frozen=True, slots=True)
class _Found:
    """Late deliveries of a stream, and for each the one with the higher place that it came
    after."""

    table: _Whole
    late: Array
    behind: Array
    stream: int
    context: Context

    def episodes(self) -> Iterator[Episode]:
        """By (session, instance, lane), less than `GAP_NS` apart."""
        times = self.table.described("t_ns", self.late)
        owner = [
            self.table["session"][self.late],
            *(self.table.described(n, self.late) for n in _IDENTITY[:2]),
        ]
        order = np.lexsort((times, *owner))
        new = np.diff(times[order], prepend=times[order[0]]) >= GAP_NS
        for key in owner:
            new[1:] |= key[order][1:] != key[order][:-1]
        for own in np.split(order, np.flatnonzero(new)):
            if len(own):
                yield self._episode(own, times[own], *(int(key[own[0]]) for key in owner))

    def every_hit(self) -> ClassHits:
        columns = {n: self.table[n][self.late] for n in (*_PLACE, "session")}
        columns |= {name: self.table.described(name, self.late) for name in (*_IDENTITY, "t_ns")}
        same = {"stream": self.stream, "split": 0, "unmet": 0}
        columns |= {name: np.full(len(self.late), value) for name, value in same.items()}
        return ClassHits.from_columns("delivery-reorder", ("",), columns)

    def _episode(self, own: Array, times: Array, session: int, instance: int, lane: int) -> Episode:
        return Episode(
            cls="delivery-reorder",
            split="",
            unmet=(),
            instance=instance,
            lane=lane,
            stream=self.stream,
            session=session,
            first_ns=int(times.min()),
            last_ns=int(times.max()),
            count=len(own),
            windows=counts_by_window(self.context, np.full(len(own), self.stream), times),
            witnesses=tuple(map(self._witness, own[:WITNESSES_AN_EPISODE], times.tolist())),
        )

    def _witness(self, i: int, t_ns: int) -> RawWitness:
        before = int(self.behind[i])
        detail = f"after {self.table.message(before)} at position {self.table.place(before)}"
        return RawWitness(
            message=self.table.message(int(self.late[i])),
            where=self.context.stream_name(self.stream),
            t_ns=t_ns,
            detail=detail,
        )
