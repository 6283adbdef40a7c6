"""The second pass: questions about a whole stream whose rows ended up in more than one bucket.

Rows go to buckets by the lane in their header, and a stream's lanes share a bucket. A message stored in
another partition than its lane's is the exception: its rows stay with its lane. Each bucket is then judged
right for its own lanes, but nobody has seen the stream as a whole. For such streams, and only for them, the
rows of all buckets are put together and asked two things:

* was any of them delivered after a later position, with the later one in another bucket?
* does one position hold two messages? Then the record of the log contradicts itself.

The strays are few, so the first pass brings them along (`sighted`); the second one reads, once for all
its streams, the bucket that holds the rest of them (`judge_split`). Where a stream is spread so that more
than `FEW_ROWS` lie outside its home, those are read from their buckets too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analysis.bucket import Bucket, Columns, open_tables
from analysis.context import Context
from analysis.kernels.words import place_text
from analysis.partial import GAP_NS, WITNESSES_AN_EPISODE, Episode, RawWitness
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
_NEEDED = {
    "log": ("stream", *_PLACE, *_IDENTITY),
    "deliveries": ("stream", "check", *_PLACE, *_IDENTITY, "session", "ordinal", "event", "epoch", "t_ns"),
}


@dataclass(frozen=True, slots=True)
class Sighted:
    """What a bucket knows of streams. ``rows``: log rows and deliveries by stream. ``few``: by table, the
    rows themselves of the streams that have at most `FEW_ROWS` here."""

    bucket: int
    rows: Mapping[int, int] = field(default_factory=dict)
    few: Mapping[str, Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Split:
    """Streams that have rows outside their home, the bucket with most of their rows.

    ``carried``: those rows, by table. ``unread``: buckets with too many of a stream to carry.
    """

    home: int
    streams: tuple[int, ...]
    carried: Mapping[str, Table]
    unread: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


# -- the first pass


def sighted(bucket: Bucket, *, few_rows: int = FEW_ROWS) -> Sighted:
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
    few = {t: _rows(columns, t, small, bucket.number) for t, columns in tables.items()} if small else {}
    return Sighted(bucket.number, dict(zip(streams.tolist(), total[streams].tolist(), strict=True)), few)


def _rows_by_stream(table: Columns, only: int | None = None) -> Array:
    """Number of rows by stream id; negative ids count as none."""
    stream = table["stream"]
    if only is not None and table.rows:
        event = table["event"]
        stream = stream if (event == only).all() else stream[event == only]
    return np.bincount(np.maximum(stream, _NO_STREAM)) if len(stream) else np.zeros(1, np.int64)


# -- between them


def splits_of(parts: Sequence[Sighted]) -> list[Split]:
    """The streams that more than one bucket has rows of, by the bucket that has most."""
    where: dict[int, list[Sighted]] = defaultdict(list)
    for part in sorted(parts, key=lambda p: p.bucket):
        for stream in part.rows:
            where[stream].append(part)
    by_home: dict[int, list[int]] = defaultdict(list)
    for stream, holders in sorted(where.items()):
        if len(holders) > 1:
            by_home[max(holders, key=lambda p: p.rows[stream]).bucket].append(stream)
    return [_split(home, streams, where) for home, streams in sorted(by_home.items())]


def _split(home: int, streams: Sequence[int], where: Mapping[int, Sequence[Sighted]]) -> Split:
    carried: dict[str, list[Table]] = {table: [] for table in _NEEDED}
    unread: dict[int, list[int]] = defaultdict(list)
    for part in {p.bucket: p for s in streams for p in where[s] if p.bucket != home}.values():
        own = [s for s in streams if s in part.rows]
        has = {s for s in own if any((rows["stream"] == s).any() for rows in part.few.values())}
        for s in own:
            if s not in has:
                unread[part.bucket].append(s)
        for table, rows in part.few.items():
            kept = np.isin(rows["stream"], [_NO_STREAM, *has])
            carried[table].append({name: column[kept] for name, column in rows.items()})
    return Split(
        home,
        tuple(streams),
        {table: _together(table, rows) for table, rows in carried.items()},
        {bucket: tuple(missing) for bucket, missing in unread.items()},
    )


# -- the second pass


def judge_split(root_uri: str, split: Split, context: Context) -> tuple[list[Episode], list[str]]:
    """Reordered deliveries across buckets, and a sentence for each position that holds two messages."""
    parts: dict[str, list[Table]] = {table: [] for table in _NEEDED}
    for bucket, streams in [(split.home, split.streams), *split.unread.items()]:
        tables = open_tables(root_uri, bucket)
        for table in _NEEDED:
            parts[table].append(_rows(tables[table], table, streams, bucket))
    for table, rows in split.carried.items():
        parts[table].append(rows)
    log, deliveries = (_by_stream(_together(table, parts[table])) for table in _NEEDED)
    episodes: list[Episode] = []
    contradictions: list[str] = []
    everywhere = deliveries.get(_NO_STREAM)
    for stream in split.streams:
        name = context.stream_name(stream)
        if stream in log:
            contradictions += _contradictions(log[stream], name)
        if stream in deliveries:
            own = [deliveries[stream], *([everywhere] if everywhere else [])]
            episodes += _reordered(_together("deliveries", own), stream, name)
    return episodes, contradictions


def _rows(columns: Columns, table: str, streams: Sequence[int], bucket: int) -> Table:
    """Rows of the streams, in a journal also events of no stream (they concern all), with the bucket."""
    stream = columns["stream"]
    wanted = np.zeros(max(int(stream.max(initial=0)), *streams) + 1, np.bool_)
    wanted[list(streams)] = True
    kept = wanted[np.maximum(stream, _NO_STREAM)]
    if table == "deliveries" and (nowhere := stream == _NO_STREAM).any():
        kept |= nowhere & np.isin(columns["event"], _BREAKS)
    own = np.flatnonzero(kept)
    part = {name: columns[name][own].astype(np.int64) for name in _NEEDED[table]}
    return part | {"bucket": np.full(len(own), bucket, np.int64)}


def _together(table: str, parts: Sequence[Table]) -> Table:
    if len(parts) == 1:
        return parts[0]
    empty = np.empty(0, np.int64)
    return {
        name: np.concatenate([part[name] for part in parts]) if parts else empty
        for name in (*_NEEDED[table], "bucket")
    }


def _by_stream(rows: Table) -> dict[int, Table]:
    stream = rows["stream"]
    order = np.argsort(stream, kind="stable")
    numbers, starts = np.unique(stream[order], return_index=True)
    cuts = np.split(order, starts[1:])
    own = zip(numbers.tolist(), cuts, strict=True) if len(numbers) else ()
    return {number: {name: column[cut] for name, column in rows.items()} for number, cut in own}


def _contradictions(log: Table, name: str) -> Iterator[str]:
    order = _order_of(log, _PLACE)
    same_place = np.ones(max(len(order) - 1, 0), np.bool_)
    for key in _PLACE:
        at = log[key][order]
        same_place &= at[1:] == at[:-1]
    twice = np.flatnonzero(same_place)
    first, second = order[twice], order[twice + 1]
    differs = np.zeros(len(twice), np.bool_)
    for key in _IDENTITY:
        differs |= log[key][first] != log[key][second]
    for i, j in zip(first[differs][:WITNESSES_AN_EPISODE], second[differs], strict=False):
        place = place_text(*(int(log[key][i]) for key in ("position", "ledger", "batch")))
        yield f"{name} holds both {_name(log, int(i))} and {_name(log, int(j))} at position {place}"


def _order_of(rows: Table, keys: Sequence[str]) -> npt.NDArray[np.intp]:
    """Row numbers by the keys; a key of one value costs nothing."""
    columns = [rows[key] for key in reversed(keys)]
    varied = [column for column in columns if len(column) and (column != column[0]).any()]
    return np.lexsort(varied) if varied else np.arange(len(columns[0]))


def _name(rows: Table, i: int) -> str:
    attempt = int(rows["attempt"][i])
    return "/".join(str(int(rows[k][i])) for k in _IDENTITY[:3]) + (f".{attempt}" if attempt else "")


def _reordered(rows: Table, stream: int, name: str) -> Iterator[Episode]:
    order = _order_of(rows, ("session", "ordinal"))
    rows = {key: column[order] for key, column in rows.items()}
    given = (rows["event"] == Event.DELIVER) & (rows["check"] == Check.OK) & (rows["stream"] == stream)
    tenure = _tenures(rows)[given]
    rows = {key: column[given] for key, column in rows.items()}
    if not len(tenure):
        return
    rank = _ranks(rows)
    late, behind = _late(tenure, rank)
    if not late.any():
        return
    seen_in_bucket, _ = _late(tenure * (int(rows["bucket"].max()) + 1) + rows["bucket"], rank)
    hits = np.flatnonzero(late & ~seen_in_bucket)
    key = np.column_stack([rows["session"], rows["instance"], rows["lane"]])[hits]
    by_owner = np.lexsort((rows["t_ns"][hits], *key.T))
    hits, key = hits[by_owner], key[by_owner]
    times = rows["t_ns"][hits]
    new = np.ones(len(hits), np.bool_)
    new[1:] = (key[1:] != key[:-1]).any(axis=1) | (np.diff(times) >= GAP_NS)
    for own in np.split(hits, np.flatnonzero(new)[1:]) if len(hits) else ():
        yield _episode(rows, own, behind, stream, name)


def _tenures(rows: Table) -> Array:
    """A number for each row, by (session, ordinal): grows with sessions, epochs, assigns, revokes, seeks."""
    new = np.isin(rows["event"], _BREAKS)
    if len(new):
        new[0] = True
        changed = (rows["session"][1:] != rows["session"][:-1]) | (rows["epoch"][1:] != rows["epoch"][:-1])
        new[1:] |= changed
    return np.cumsum(new)


def _ranks(rows: Table) -> Array:
    """Numbers that compare as the places do: the position itself where nothing else differs."""
    varied = [key for key in _PLACE if (rows[key] != rows[key][0]).any()]
    if varied in ([], ["position"]):
        return rows["position"]
    order = _order_of(rows, varied)
    higher = np.zeros(len(order), np.bool_)
    for key in varied:
        at = rows[key][order]
        higher[1:] |= at[1:] != at[:-1]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.cumsum(higher)
    return rank


def _late(tenure: Array, rank: Array) -> tuple[Flags, Array]:
    """Rows, in journal order, that come first in their tenure after a higher rank; and the row that had
    set the highest rank until then (only where late)."""
    late, behind = np.zeros(len(rank), np.bool_), np.full(len(rank), -1, np.int64)
    order = np.argsort(tenure, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(tenure[order])) + 1):
        mine = rank[own]
        if not (mine[1:] < mine[:-1]).any():
            continue
        highest = np.maximum.accumulate(mine)
        first = np.zeros(len(own), np.bool_)
        first[np.unique(mine, return_index=True)[1]] = True
        late[own] = first & (mine < highest)
        behind[own] = own[np.maximum.accumulate(np.where(mine == highest, np.arange(len(own)), 0))]
    return late, behind


def _episode(rows: Table, own: Array, behind: Array, stream: int, name: str) -> Episode:
    def witness(i: int) -> RawWitness:
        before = int(behind[i])
        place = place_text(*(int(rows[key][before]) for key in ("position", "ledger", "batch")))
        return RawWitness(
            message=_name(rows, i),
            where=name,
            t_ns=int(rows["t_ns"][i]),
            detail=f"after {_name(rows, before)} at position {place}",
        )

    first = int(own[0])
    return Episode(
        cls="delivery-reorder",
        split="",
        unmet=(),
        instance=int(rows["instance"][first]),
        lane=int(rows["lane"][first]),
        stream=stream,
        session=int(rows["session"][first]),
        first_ns=int(rows["t_ns"][own].min()),
        last_ns=int(rows["t_ns"][own].max()),
        count=len(own),
        witnesses=tuple(witness(int(i)) for i in own[:WITNESSES_AN_EPISODE]),
    )
