"""Classifies deliveries that the log does not hold: rolled back, lost since, never sent,
corrupt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.capture.bucket import Array, is_constant
from analysis.kernels.evidence import LogEvidence
from analysis.kernels.history import BucketHistory, Hidden
from analysis.kernels.hits import Hits, Note, hits, split_index
from analysis.kernels.matching import Matching
from analysis.kernels.removal import Removal, removed_deliveries
from analysis.kernels.unrecorded import is_phantom, unknown_writers
from harness.records import Check, Event, Outcome


def judge(history: BucketHistory, matching: Matching, never_visible: Array) -> list[Hits]:
    """aborted-read, delivered-then-lost, phantom and corrupt in delivery.

    ``never_visible``: messages, ascending, whose transaction's end in the log was not read, and
    whose producer says that readers of committed data must not see them.
    """
    return [*_strangers(history, matching, never_visible), *_corrupt(history)]


def _strangers(history: BucketHistory, matching: Matching, never_visible: Array) -> list[Hits]:
    """aborted-read, delivered-then-lost, phantom in delivery."""
    delivery = matching.unmatched
    _, unknown = history.unsettled
    unknown = np.setdiff1d(unknown[unknown >= 0], never_visible)
    delivery = delivery[~np.isin(history.delivery_slot[delivery], unknown)]
    if not len(delivery):
        return []
    table = history.bucket.deliveries
    slot = history.delivery_slot[delivery].astype(np.int64)
    is_unread = np.isin(slot, never_visible)
    aborted = _is_copy(history, history.invisible, delivery, slot)
    aborted |= is_unread & _is_copy(history, history.unsettled, delivery, slot)
    known = aborted | ~is_unread
    delivery, slot, aborted = delivery[known], slot[known], aborted[known]
    absent = ~aborted & (history.first[slot] < 0)
    unsent = history.sent[slot] < 0
    found = []
    at = np.flatnonzero(aborted)
    if len(at):
        committed = split_index("aborted-read", "read committed")
        everything = split_index("aborted-read", "read uncommitted")
        split = np.where(
            np.isin(table["session"][delivery[at]], history.context.committed_sessions),
            committed,
            everything,
        )
        found.append(_given_out(history, "aborted-read", delivery[at], slot[at], split=split))
    for cls, split_name, flags in _absent_classes(history, slot, absent, unsent):
        at = np.flatnonzero(flags)
        which: str | Array = split_name
        if cls == "delivered-then-lost":
            at = at[_is_read(history, delivery[at], slot[at])]
            removal = removed_deliveries(history, slot[at], delivery[at])
            kept = ~np.isin(removal, (Removal.REMOVED, Removal.COMPACTED))
            at, removal = at[kept], removal[kept]
            seen, power = (split_index(cls, name) for name in ("seen", "power"))
            which = np.where(removal == Removal.POWER, power, seen)
        if len(at):
            found.append(_given_out(history, cls, delivery[at], slot[at], split=which))
    return found


def _is_read(history: BucketHistory, delivery: Array, slot: Array) -> Array:
    """Whether the places were read that deliveries came from: elsewhere nothing is known to be lost
    since."""
    table = history.bucket.deliveries
    place = table["stream"][delivery].astype(np.int64), table["position"][delivery]
    evidence = LogEvidence(history)
    return evidence.is_read(evidence.absent(slot, *place), *place)


def _absent_classes(
    history: BucketHistory, slot: Array, absent: Array, unsent: Array
) -> Sequence[tuple[str, str, Array]]:
    phantom = np.zeros(len(slot), np.bool_)
    stray = np.flatnonzero(absent & unsent)
    phantom[stray] = is_phantom(history, slot[stray])
    # An acknowledged one is acked-lost already; its delivery is reported there.
    lost = absent & ~unsent & (history.outcome[slot] != Outcome.OK)
    return (
        ("phantom", "in delivery", phantom),
        ("send-record-missing", "not stored", absent & unsent & ~phantom),
        ("delivered-then-lost", "seen", lost),
    )


def _is_copy(history: BucketHistory, hidden_copies: Hidden, delivery: Array, slot: Array) -> Array:
    """Deliveries from the place of such a copy of their own message."""
    rows, hidden = hidden_copies
    if not len(rows):
        return np.zeros(len(delivery), np.bool_)
    table = history.bucket.deliveries
    place = history.places.rows(
        *(table[n][delivery] for n in ("stream", "position", "ledger", "batch"))
    )
    at = np.minimum(np.searchsorted(rows, place), len(rows) - 1)
    return np.asarray((rows[at] == place) & (hidden[at] == slot))


def _given_out(
    history: BucketHistory, cls: str, delivery: Array, slot: Array, *, split: str | Array
) -> Hits:
    table = history.bucket.deliveries
    stream = table["stream"][delivery].astype(np.int64)
    position = table["position"][delivery]
    unmet: Array | int = 0
    if cls == "delivered-then-lost":
        unmet = LogEvidence(history).absent(slot, stream, position)
    elif cls == "phantom":
        unmet = unknown_writers(history)

    def note(i: int) -> Note:
        session = int(table["session"][delivery[i]])
        return Note(detail=f"given to session {session} at position {int(position[i])}")

    return hits(
        cls,
        slot=slot,
        t_ns=table["t_ns"][delivery],
        split=split,
        unmet=unmet,
        stream=stream,
        delivery=delivery,
        session=table["session"][delivery].astype(np.int64),
        note=note,
    )


def _corrupt(history: BucketHistory) -> list[Hits]:
    """Damaged payloads given out where the log has a whole one.

    Damage may also be in the mark or the run of a header: such a payload counts if the log has a
    message of this run at its place.
    """
    table = history.bucket.deliveries
    check, event = table["check"], table["event"]
    if not table.rows or (is_constant(check) and check[0] == Check.OK):
        return []
    delivery = np.flatnonzero((check != Check.OK) & (event == Event.DELIVER))
    place = history.places.rows(
        *(table[n][delivery] for n in ("stream", "position", "ledger", "batch"))
    )
    is_corrupt = check[delivery] == Check.CORRUPT
    is_whole = (place >= 0) & ~np.isin(place, history.odd_rows)
    stored_so = np.isin(place, history.odd_rows[history.odd_checks == Check.CORRUPT])
    damaged = np.where(is_corrupt, ~stored_so, is_whole)
    delivery, place = delivery[damaged], place[damaged]
    if not len(delivery):
        return []
    slot = np.where(place >= 0, history.log_slot[place] if history.bucket.log.rows else -1, -1)
    return [_given_out(history, "corrupt", delivery, slot, split="in delivery")]
