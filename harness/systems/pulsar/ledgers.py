"""Who wrote which ledger of a topic: its metadata, and the owners that were seen.

A broker that takes a topic over fences the last ledger, closes it with the entries that it finds,
and opens one of its own. So ledgers follow each other, and each has one owner. The metadata have
the time at which each was closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.contracts.rows import Leadership
from harness.rundir import Document
from harness.wall_clock import WallClock

Seen = Sequence[tuple[int, int, str | None]]


def ledgers_of(stream: str, info: Document, seen: Seen) -> Iterator[Leadership]:
    """The ledgers of a topic in order.

    Args:
        info: what the brokers answer to ``internal-info`` (ManagedLedgerInfo).
        seen: (since when, how late at most, owner), as `harness.protocols.cluster.SeenLeaders`.
    """
    rows = sorted(info.get("ledgers") or (), key=lambda row: int(row["ledgerId"]))
    clock = WallClock.now()
    closed = [clock.t_ns_of_ms(int(row.get("timestamp") or 0)) for row in rows]
    for i, row in enumerate(rows):
        is_open = i == len(rows) - 1
        begin, end = (closed[i - 1] if i else 0), (0 if is_open else closed[i])
        yield Leadership(
            stream=stream,
            term=int(row["ledgerId"]),
            leader=_owner(seen, begin, end),
            t_ns=begin,
            entries=None if is_open or row.get("entries") is None else int(row["entries"]),
        )


def _owner(seen: Seen, begin_ns: int, end_ns: int) -> str:
    """The broker that owned the topic when a ledger began; "" when that was not seen.

    Args:
        begin_ns, end_ns: of the ledger, 0 = not known, or not yet.
    """
    if not seen or (end_ns and seen[0][0] >= end_ns):
        return ""
    before = [owner for since, _, owner in seen if since <= begin_ns] or [seen[0][2]]
    # Between two looks either of the two may have opened it.
    then = [owner for since, late, owner in seen if since - late <= begin_ns < since]
    found = {owner for owner in (before[-1], *then) if owner}
    return found.pop() if len(found) == 1 else ""
