"""Finds replicas that do not have what the others have. It looks at no message, so it runs once a
run, on the driver.

Only replicas that the brokers called in sync before and after they were read are compared: another
one may still be catching up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.capture.context import Context
from analysis.kernels.class_hits import NO_MESSAGE, ClassHits
from analysis.kernels.deaths import WHOLE_RUN
from analysis.kernels.hits import BITS
from analysis.kernels.labels import place_text
from analysis.kernels.partial import Episode, Partial, RawWitness
from harness.contracts.rows import ReplicaRow, ReplicaSpan

CLASS = "replica-divergence"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Positions ``first .. last`` of which a replica is wrong; ``split``: how."""

    replica: ReplicaRow
    first: int
    last: int
    split: str


def judge(context: Context, *, with_hits: bool = False) -> Partial:
    """replica-divergence, one episode a stretch."""
    unmet = () if context.readiness_restored else ("readiness-restored",)
    wiped = {node for fault in context.faults for node in fault.details.wiped}
    found = stretches(context.replicas, wiped)
    episodes = [_episode(one, _since_ns(context, one), unmet) for one in found]
    hits = (_hits(found, episodes),) if with_hits and found else ()
    return Partial(bucket=WHOLE_RUN, episodes=episodes, hits=hits)


def stretches(replicas: Sequence[ReplicaRow], wiped: Collection[str] = ()) -> list[Stretch]:
    """Return the stretches of all streams; neighbours of one replica and kind are merged.

    Args:
        wiped: nodes that lost all their data. Kafka copies it before it calls them in sync; a
            bookie has it again only where somebody sees to it.
    """
    by_stream: dict[tuple[str, int, int], list[ReplicaRow]] = {}
    for row in replicas:
        if row.in_sync:
            by_stream.setdefault((row.stream, row.ledger, row.part), []).append(row)
    found: list[Stretch] = []
    for rows in by_stream.values():
        edges = sorted({edge for row in rows for edge in _edges(row)})
        have = {row.node: _by_interval(row, edges) for row in rows}
        for row in rows:
            for at, (low, high) in enumerate(pairwise(edges)):
                if split := _split(
                    row, low, rows, {node: its.get(at) for node, its in have.items()}
                ):
                    if split == "missing" and row.ledger and row.node in wiped:
                        split = "not copied again"
                    _add(found, Stretch(row, low, high - 1, split))
    return found


def _edges(row: ReplicaRow) -> Iterator[int]:
    """Where what a replica has may change."""
    yield from (row.begin, row.read_to, row.end)
    for span in row.odd:
        yield from (span.first, span.last + 1)


def _by_interval(row: ReplicaRow, edges: Sequence[int]) -> dict[int, ReplicaSpan]:
    """Number of an interval between two edges -> the odd span that the replica has there."""
    return {
        at: span
        for span in row.odd
        for at in range(bisect_left(edges, span.first), bisect_left(edges, span.last + 1))
    }


def _split(
    row: ReplicaRow,
    position: int,
    rows: Sequence[ReplicaRow],
    have: Mapping[str, ReplicaSpan | None],
) -> str:
    """Return what is wrong with a replica from a position to the next edge; empty if no defect is
    known."""
    mine = have[row.node]
    if mine and not mine.intact:
        return "damaged"
    if position >= row.read_to:
        return "unreadable" if row.refused and position < row.end else ""
    log = _log(rows, have)
    if position < row.begin or log is None or log is mine:
        return ""
    if mine is None:
        return "missing"
    return "other" if mine.digest != log.digest else ""


def _log(rows: Sequence[ReplicaRow], have: Mapping[str, ReplicaSpan | None]) -> ReplicaSpan | None:
    """Return the span that counts as the log, among the intact ones: the leader's, otherwise the
    first by name.
    """
    spans = (
        (row, have[row.node]) for row in sorted(rows, key=lambda row: (not row.leads, row.node))
    )
    return next((span for _, span in spans if span and span.intact), None)


def _add(found: list[Stretch], one: Stretch) -> None:
    before = found[-1] if found else None
    if (
        before
        and before.replica is one.replica
        and (before.split, before.last + 1) == (one.split, one.first)
    ):
        found[-1] = Stretch(one.replica, before.first, one.last, one.split)
    else:
        found.append(one)


def _since_ns(context: Context, one: Stretch) -> int:
    """When its node had last come out of a fault; without one, the end: nothing tells when it
    happened."""
    own = [f.over_ns for f in context.faults if f.effective and one.replica.node in f.targets]
    return max(own, default=context.end_ns)


def _episode(one: Stretch, t_ns: int, unmet: tuple[str, ...]) -> Episode:
    row = one.replica
    why = f", the broker says {row.why}" if one.split == "unreadable" and row.why else ""
    first, last = (place_text(at, row.ledger) for at in (one.first, one.last))
    witness = RawWitness(
        message=f"{row.stream}@{place_text(one.first, row.ledger)}",
        where=f"{row.stream} on {row.node}",
        t_ns=t_ns,
        detail=f"{row.node} is in sync, and its positions {first} to {last} are {one.split}{why}",
    )
    return Episode(
        cls=CLASS,
        split=one.split,
        unmet=unmet,
        instance=0,
        lane=-1,
        stream=row.stream_id,
        session=0,
        first_ns=t_ns,
        last_ns=t_ns,
        count=1,
        witnesses=(witness,),
    )


def _hits(found: Sequence[Stretch], episodes: Sequence[Episode]) -> ClassHits:
    splits = sorted({each.split for each in episodes})
    own = {
        "stream": [each.stream for each in episodes],
        "position": [one.first for one in found],
        "ledger": [one.replica.ledger for one in found],
        "t_ns": [each.first_ns for each in episodes],
        "split": [splits.index(each.split) for each in episodes],
        "unmet": [sum(BITS[name] for name in each.unmet) for each in episodes],
    }
    columns = {
        name: np.array(own.get(name, [value] * len(episodes))) for name, value in NO_MESSAGE.items()
    }
    return ClassHits.from_columns(CLASS, splits, columns)
