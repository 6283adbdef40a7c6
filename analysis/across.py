"""The second pass: questions about a whole stream whose rows ended up in more than one bucket.

Rows go to buckets by the lane in their header, and a stream's lanes share a bucket. A message stored in
another partition than its lane's is the exception: its rows stay with its lane. Each bucket is then judged
right for its own lanes, but nobody has seen the stream as a whole. For such streams, and only for them, the
rows of all buckets are put together and asked two things:

* was any of them delivered after a later position, with the later one in another bucket?
* does one position hold two messages? Then the record of the log contradicts itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.bucket import Bucket, load_bucket
from analysis.context import Context
from analysis.kernels.words import place_text
from analysis.partial import GAP_NS, WITNESSES_AN_EPISODE, Episode, RawWitness
from harness.records import Check, Event

Array = npt.NDArray[np.int64]
Table = Mapping[str, Array]

_PLACE = ("ledger", "position", "batch")
_IDENTITY = ("instance", "lane", "seq", "attempt")
_BREAKS = (Event.ASSIGN, Event.REVOKE, Event.SEEK)
_NEEDED = {
    "log": ("stream", "check", *_PLACE, *_IDENTITY),
    "deliveries": ("stream", "check", *_PLACE, *_IDENTITY, "session", "ordinal", "event", "epoch", "t_ns"),
}


@dataclass(frozen=True, slots=True)
class Split:
    """A stream with rows in several buckets."""

    stream: int
    buckets: tuple[int, ...]


def streams_in(bucket: Bucket) -> tuple[int, ...]:
    """Streams of which the bucket holds log rows or deliveries."""
    found: set[int] = set()
    for table in (bucket.log, bucket.deliveries):
        stream = table["stream"]
        chosen = stream if table is bucket.log else stream[table["event"] == Event.DELIVER]
        if len(chosen):
            found.update(np.flatnonzero(np.bincount(np.maximum(chosen, 0))).tolist())
    return tuple(sorted(found - {0}))


def split_streams(streams_by_bucket: Iterable[tuple[int, Sequence[int]]]) -> list[Split]:
    """The streams that more than one bucket reported."""
    where: dict[int, list[int]] = {}
    for bucket, streams in streams_by_bucket:
        for stream in streams:
            where.setdefault(stream, []).append(bucket)
    return [Split(s, tuple(sorted(buckets))) for s, buckets in sorted(where.items()) if len(buckets) > 1]


def judge_stream(root_uri: str, split: Split, context: Context) -> tuple[list[Episode], list[str]]:
    """Reordered deliveries across buckets, and a sentence for each position that holds two messages."""
    buckets = [load_bucket(root_uri, number, context) for number in split.buckets]
    log = _rows(buckets, "log", split.stream)
    deliveries = _rows(buckets, "deliveries", split.stream)
    name = context.stream_name(split.stream)
    return list(_reordered(deliveries, split.stream, name)), list(_contradictions(log, name))


def _rows(buckets: Sequence[Bucket], table: str, stream: int) -> Table:
    """Rows of the stream (of a journal also those of no stream: they concern all), each with its bucket."""
    parts: list[dict[str, Array]] = []
    for bucket in buckets:
        columns = getattr(bucket, table)
        where = columns["stream"]
        own = np.flatnonzero((where == stream) | ((where == 0) & (table == "deliveries")))
        part = {name: columns[name][own].astype(np.int64) for name in _NEEDED[table]}
        parts.append(part | {"bucket": np.full(len(own), bucket.number, np.int64)})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _contradictions(log: Table, name: str) -> Iterator[str]:
    order = np.lexsort([log[key] for key in reversed(_PLACE)])
    at = {key: log[key][order] for key in (*_PLACE, *_IDENTITY)}
    same_place = np.logical_and.reduce([at[key][1:] == at[key][:-1] for key in _PLACE])
    differs = np.logical_or.reduce([at[key][1:] != at[key][:-1] for key in _IDENTITY])
    for i in np.flatnonzero(same_place & differs)[:WITNESSES_AN_EPISODE].tolist():
        place = place_text(int(at["position"][i]), int(at["ledger"][i]), int(at["batch"][i]))
        yield f"{name} holds both {_name(at, i)} and {_name(at, i + 1)} at position {place}"


def _name(rows: Table, i: int) -> str:
    attempt = int(rows["attempt"][i])
    return "/".join(str(int(rows[k][i])) for k in _IDENTITY[:3]) + (f".{attempt}" if attempt else "")


def _reordered(rows: Table, stream: int, name: str) -> Iterator[Episode]:
    order = np.lexsort((rows["ordinal"], rows["session"]))
    rows = {key: column[order] for key, column in rows.items()}
    given = (rows["event"] == Event.DELIVER) & (rows["check"] == Check.OK) & (rows["stream"] == stream)
    tenure = _tenures(rows)[given]
    rows = {key: column[given] for key, column in rows.items()}
    if not len(tenure):
        return
    rank = np.unique(np.column_stack([rows[key] for key in _PLACE]), axis=0, return_inverse=True)[1].ravel()
    late, behind = _late(tenure, rank)
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


def _late(tenure: Array, rank: Array) -> tuple[npt.NDArray[np.bool_], Array]:
    """Rows, in journal order, that come first in their tenure after a higher rank; and that row."""
    late, behind = np.zeros(len(rank), np.bool_), np.full(len(rank), -1, np.int64)
    order = np.argsort(tenure, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(tenure[order])) + 1):
        highest = np.maximum.accumulate(rank[own])
        first = np.zeros(len(own), np.bool_)
        first[np.unique(rank[own], return_index=True)[1]] = True
        late[own] = first & (rank[own] < highest)
        # the row that set the highest rank so far
        behind[own] = own[np.maximum.accumulate(np.where(rank[own] == highest, np.arange(len(own)), 0))]
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
