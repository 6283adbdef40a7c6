"""Reads who led which stream: leaderships.jsonl, which a capture may lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Term:
    """A stretch of a stream under one leader: a leader epoch (Kafka), a ledger (Pulsar), a mastership (Qpid).

    Times: CLOCK_MONOTONIC ns, 0 = not known.

    Attributes:
        leader: name of the node; "" = not known, None = nobody.
        late_ns: how much earlier it may have begun than ``t_ns``, of a leader that was only watched.
        first: position at which the log as it is in the end has its first message; None = it has none of it.
        entries: of a ledger that is closed, what it was closed with; None = not known.
        over_ns: from then on the leader certainly acted as one no longer.
        unclean: it was elected although it was not in sync.
    """

    number: int
    leader: str | None = ""
    t_ns: int = 0
    late_ns: int = 0
    first: int | None = None
    entries: int | None = None
    over_ns: int = 0
    unclean: bool = False


Terms = tuple[Term, ...]


def terms_of(rows: Iterable[Mapping[str, Any]]) -> dict[int, Terms]:
    """Stream id -> its terms in order. Rows are those of the sealed file."""
    found: dict[int, list[Term]] = {}
    for row in rows:
        first, entries, leader = row.get("first"), row.get("entries"), row.get("leader", "")
        term = Term(
            number=int(row["term"]),
            leader=None if leader is None else str(leader),
            t_ns=int(row.get("t_ns") or 0),
            late_ns=int(row.get("late_ns") or 0),
            first=None if first is None else int(first),
            entries=None if entries is None else int(entries),
            over_ns=int(row.get("over_ns") or 0),
            unclean=bool(row.get("unclean", False)),
        )
        found.setdefault(int(row["stream_id"]), []).append(term)
    return {stream: tuple(sorted(terms, key=lambda t: t.number)) for stream, terms in found.items()}
