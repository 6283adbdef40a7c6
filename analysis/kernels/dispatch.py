"""Finds deliveries of log-based groups that are repeated, out of order or missing.

Per consumer group; a position is matched with the log first (`kernels.matching`). While every
stream's positions were handed out once and in journal order there is nothing to do but notice that,
in one pass; streams where something came twice or went back are looked at with their assignments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.capture.bucket import Array, chunks
from analysis.kernels import dropping, keyed, settling, unlogged
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.labels import place_of
from analysis.kernels.lookup import distinct
from analysis.kernels.matching import Assignments, Given, Matching
from harness.records import Event


def judge(
    history: BucketHistory, matching: Matching, groups: Sequence[Given], never_visible: Array
) -> list[Hits]:
    """Every class about deliveries except stall.

    ``never_visible``: as `transactions.never_visible` returns them.
    """
    found = unlogged.judge(history, matching, never_visible)
    for given in groups:
        found += [*_repeats(given), *_not_dispatched(given)]
    return found


# -- twice, or out of order


def _repeats(given: Given) -> list[Hits]:
    """delivery-duplicate, rewind-past-commit, delivery-reorder; of messages settled one by one,
    their own."""
    reading = given.history.context.reading(given.group)
    again = _given_again(given)
    twice = distinct(given.history.bucket.log["stream"][again])
    back = _streams_going_back(given)
    # the second time round may be out of order where the first was not
    streams = np.union1d(twice, back)
    if reading.is_individual:
        found = settling.judge(given, twice) if len(twice) else []
        if reading.order == "key":
            found += keyed.judge(given, twice)
        elif reading.order == "stream" and len(streams):
            found += _reordered(given, given.matching.assignments(given.of_streams(streams)))
        return found
    if not len(streams):
        return []
    assignments = given.matching.assignments(given.of_streams(streams))
    return [*_duplicates(given, assignments, again), *_reordered(given, assignments)]


def most_redelivered(given: Given) -> int:
    """How often one message was handed to the group again, the most of all messages; a second copy
    in the log counts as another message. What the log does not hold (a queue's messages) is counted
    by its identity."""
    _, again = np.unique(_given_again(given), return_counts=True)
    outside = given.matching.not_in_log
    if not isinstance(given.rows, slice):
        outside = np.intersect1d(given.rows, outside)
    _, handed = np.unique(given.history.delivery_slot[outside], return_counts=True)
    return max(int(again.max(initial=0)), int(handed.max(initial=1)) - 1)


def _given_again(given: Given) -> Array:
    """Log rows that were given out more than once, in any order and as often as they were
    repeated."""
    found = [np.empty(0, np.int32)]
    for part in chunks(len(given.matched) if len(given.first) else 0):
        row = given.matched[part]
        found.append(row[(row >= 0) & (given.first[row] != given.numbers(part))])
    return np.concatenate(found)


def _streams_going_back(given: Given) -> Array:
    """Streams where the journal does not follow the log."""
    stream = given.history.bucket.log["stream"]
    found = [np.empty(0, stream.dtype)]
    last = np.empty(0, np.int64)  # log row of the last delivery seen before the part
    for part in chunks(len(given.first)):
        order = np.append(given.first[last], given.first[part])
        if (order[1:] > order[:-1]).all() and order[
            0
        ] >= 0:  # mostly; else what was never given is in between
            last = np.array([part.stop - 1])
            continue
        seen = np.append(last, np.flatnonzero(given.first[part] >= 0) + part.start)
        order, where = given.first[seen], stream[seen]
        found.append(where[1:][(order[1:] < order[:-1]) & (where[1:] == where[:-1])])
        last = seen[-1:]
    return distinct(np.concatenate(found))


@dataclass(frozen=True, slots=True)
class _Again:
    """Second and later deliveries of log rows, by (log row, time)."""

    delivery: Array
    row: Array
    assignment: Array
    earlier: Array  # delivery row of the first one in time
    same_assignment: Array


def _again(given: Given, assignments: Assignments, again: Array) -> _Again:
    matching, table = given.matching, given.history.bucket.deliveries
    row = matching.row[assignments.delivery]
    repeatedly = np.zeros(len(given.first), np.bool_)
    repeatedly[again] = True
    several = np.flatnonzero(repeatedly[row])
    delivery, row = assignments.delivery[several], row[several].astype(np.int64)
    assignment = assignments.assignment[several]
    order = np.lexsort((delivery, assignment, row))
    repeated = np.zeros(len(order), np.bool_)
    r, t = row[order], assignment[order]
    repeated[order[1:]] = (r[1:] == r[:-1]) & (t[1:] == t[:-1])
    order = np.lexsort((delivery, table["t_ns"][delivery], row))
    r = row[order]
    begin = np.append(True, r[1:] != r[:-1])[: len(r)]
    first = order[np.maximum.accumulate(np.where(begin, np.arange(len(r)), 0))] if len(r) else order
    later = ~begin
    chosen = order[later]
    return _Again(
        delivery[chosen], row[chosen], assignment[chosen], delivery[first[later]], repeated[chosen]
    )


def _duplicates(given: Given, assignments: Assignments, rows: Array) -> list[Hits]:
    again = _again(given, assignments, rows)
    if not len(again.delivery):
        return []
    committed = _committed_before(given, again, assignments)
    position = given.history.bucket.log["position"][again.row]
    seek = assignments.seek[again.assignment]
    rewound = ~again.same_assignment & ~seek & (committed > position)
    found = []
    at = np.flatnonzero(rewound)
    if len(at):
        words = _rewind_words(given, again, committed, at)
        found.append(_delivered(given, "rewind-past-commit", again.delivery[at], note=words))
    at = np.flatnonzero(~rewound)
    if len(at):
        names = ("same assignment", "after seek", "after rebalance")
        same, sought, moved = (split_index("delivery-duplicate", name) for name in names)
        split = np.where(again.same_assignment[at], same, np.where(seek[at], sought, moved))
        words = _repeat_words(given, again, at)
        found.append(
            _delivered(given, "delivery-duplicate", again.delivery[at], split=split, note=words)
        )
    return found


def _committed_before(given: Given, again: _Again, assignments: Assignments) -> Array:
    """For each repeat, the group's last confirmed commit when its assignment began; -1 = none."""
    commits = _commits(given)
    stream = given.history.bucket.log["stream"][again.row]
    begun_ns = assignments.start_ns - given.history.context.clock_bound_ns
    out = np.full(len(again.row), -1, np.int64)
    for number, (times, positions) in commits.items():
        own = np.flatnonzero(stream == number)
        at = np.searchsorted(times, begun_ns[again.assignment[own]], side="right") - 1
        out[own] = np.where(at >= 0, positions[np.maximum(at, 0)], -1)
    return out


def _commits(given: Given) -> dict[int, tuple[Array, Array]]:
    """By stream, the group's commits by time. In a recreated topic, only commits after its first
    message count: earlier ones may be of positions in the topic before."""
    context, table = given.history.context, given.history.bucket.deliveries
    found = given.matching.committed(given.group)
    for stream, (times, positions) in found.items() if context.remade.any() else ():
        if context.remade[context.stream_topic[stream]]:
            own = given.of_streams(np.array([stream]))
            late = times >= (table["t_ns"][own].min() if len(own) else times[-1] + 1)
            found[stream] = times[late], positions[late]
    return {stream: commits for stream, commits in found.items() if len(commits[0])}


def _reordered(given: Given, assignments: Assignments) -> list[Hits]:
    """Deliveries that come after a later message of their assignment, each for the first time in
    it."""
    assignments = _with_descents(given, assignments)
    row = given.matching.row[assignments.delivery].astype(np.int64)
    reach = given.history.bucket.log.rows + 1
    running = (
        np.maximum.accumulate(row + assignments.assignment * reach) - assignments.assignment * reach
    )
    behind = np.flatnonzero(row < running)
    if not len(behind):
        return []
    at = behind[_first_in_assignment(assignments, row, behind, reach)]
    if not len(at):
        return []
    ahead = running[at]

    def note(i: int) -> Note:
        history = given.history
        return Note(
            detail=f"position {place_of(history, int(row[at[i]]))} after {place_of(history, int(ahead[i]))}"
        )

    return [_delivered(given, "delivery-reorder", assignments.delivery[at], note=note)]


def _with_descents(given: Given, assignments: Assignments) -> Assignments:
    """Only those assignments in which some delivery lies before the one that came before it."""
    row, assignment = given.matching.row[assignments.delivery], assignments.assignment
    down = np.flatnonzero(row[1:] < row[:-1])
    down = down[assignment[down] == assignment[down + 1]]
    descends = np.zeros(len(assignments.start_ns), np.bool_)
    descends[assignment[down]] = True
    kept = np.flatnonzero(descends[assignment])
    return replace(assignments, delivery=assignments.delivery[kept], assignment=assignment[kept])


def _first_in_assignment(assignments: Assignments, row: Array, asked: Array, n_rows: int) -> Array:
    """For some of the deliveries: is it the first of its log row in its assignment?"""
    wanted = np.zeros(n_rows, np.bool_)
    wanted[row[asked]] = True
    same = np.flatnonzero(wanted[row])
    assignment, row = assignments.assignment[same], row[same]
    order = np.lexsort((assignments.delivery[same], row, assignment))
    r, t = row[order], assignment[order]
    first = np.ones(len(order), np.bool_)
    first[order[1:]] = (r[1:] != r[:-1]) | (t[1:] != t[:-1])
    return np.asarray(first[np.searchsorted(same, asked)])


def _rewind_words(
    given: Given, again: _Again, committed: Array, at: Array
) -> Callable[[int], Note]:
    def note(i: int) -> Note:
        words = _repeat_words(given, again, at)(i)
        return Note(
            detail=f"{words.detail}; committed up to {int(committed[at[i]])} before the assignment"
        )

    return note


def _repeat_words(given: Given, again: _Again, at: Array) -> Callable[[int], Note]:
    table, context = given.history.bucket.deliveries, given.history.context

    def note(i: int) -> Note:
        now, before = int(again.delivery[at[i]]), int(again.earlier[at[i]])
        first_s = context.seconds(int(table["t_ns"][before]))
        sessions = [int(table["session"][d]) for d in (before, now)]
        who = "the same session" if sessions[0] == sessions[1] else f"session {sessions[0]}"
        place = place_of(given.history, int(again.row[at[i]]))
        return Note(detail=f"position {place}, first given to {who} at {first_s:.3f} s")

    return note


def _delivered(
    given: Given,
    cls: str,
    delivery: Array,
    *,
    split: str | Array = "",
    note: Callable[[int], Note] | None = None,
) -> Hits:
    table, row = given.history.bucket.deliveries, given.matching.row[delivery]
    return hits(
        cls,
        slot=given.history.log_slot[row],
        t_ns=table["t_ns"][delivery],
        split=split,
        stream=table["stream"][delivery].astype(np.int64),
        row=row.astype(np.int64),
        delivery=delivery.astype(np.int64),
        session=table["session"][delivery].astype(np.int64),
        note=note,
    )


# -- never


def _not_dispatched(given: Given) -> list[Hits]:
    """Stored messages of the group's topics of which no copy was given to it."""
    history = given.history
    sessions = history.context.group_sessions().get(given.group, [])
    topics = {topic for session in sessions for topic in session.topics}
    wanted = np.array([s.rpartition("-")[0] in topics for s in ("", *history.context.streams)])
    rows = _undelivered(given, wanted)
    if not len(rows):
        return []
    slots = history.log_slot[rows]
    slots, at = np.unique(slots, return_index=True)
    rows = rows[at]
    index, copies = history.copies(slots)
    seen = np.zeros(len(slots), np.bool_)
    seen[index[given.first[copies] >= 0]] = True
    seen |= np.isin(slots, history.delivery_slot[given.matching.unmatched])
    if history.taken is not None:
        seen |= history.taken[slots]
    slots, rows = slots[~seen], rows[~seen]
    if not len(slots):
        return []

    permitted, is_open = dropping.dropped(given, rows)
    unmet = _dispatch_evidence(given, rows, all(s.complete for s in sessions))
    unmet[is_open] |= BITS["settings-known"]
    allowed, not_given, before = (
        split_index("not-dispatched", name) for name in ("dropped", "not given", "before the start")
    )
    split = np.where(permitted, allowed, not_given)
    if history.context.reading(given.group).starts_latest:
        skipped, is_open = _before_latest(given, rows)
        split[skipped] = before
        unmet[is_open] |= BITS["start-known"]

    def note(i: int) -> Note:
        said = f"group {given.group} was not given position {place_of(history, int(rows[i]))}"
        dropping = history.context.reading(given.group).may_drop
        return Note(detail=f"{said}; {dropping} lets the broker drop it" if dropping else said)

    return [
        hits(
            "not-dispatched",
            slot=slots,
            t_ns=history.times(slots),
            split=split,
            unmet=unmet,
            stream=history.bucket.log["stream"][rows].astype(np.int64),
            row=rows,
            note=note,
        )
    ]


def _undelivered(given: Given, wanted: Array) -> Array:
    """Log rows of messages, in the wanted streams, that were not delivered. If the log was
    read while it grew, rows that a fault removed on purpose are left out."""
    history = given.history
    stream, position = history.bucket.log["stream"], history.bucket.log["position"]
    cut = np.append(history.context.cut, 0)
    found = []
    for part in chunks(len(given.first)):
        slot = history.log_slot[part]
        missing = np.flatnonzero(given.first[part] < 0)
        missing = missing[slot[missing] >= 0]
        missing = missing[history.sent[slot[missing]] >= 0] + part.start
        if cut.any():
            missing = missing[position[missing] >= cut[np.minimum(stream[missing], len(cut) - 1)]]
        found.append(missing[wanted[np.minimum(stream[missing], len(wanted) - 1)]])
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _dispatch_evidence(given: Given, rows: Array, complete: bool) -> Array:
    context, log = given.history.context, given.history.bucket.log
    base = (0 if context.drained else BITS["drained"]) | (
        0 if complete else BITS["delivery-capture"]
    )
    unmet = np.full(len(rows), base, np.uint32)
    starts, streams = _starts(given), log["stream"][rows]
    for stream, position in starts.items():
        early = (streams == stream) & (log["position"][rows] < position)
        unmet[early] |= BITS["start-known"]
    for stream, first in _firsts_of_remade(given).items():
        unmet[(streams == stream) & (rows < first)] |= BITS["start-known"]
    reading = context.reading(given.group)
    if not reading.is_start_known and not reading.starts_latest:
        unmet[~np.isin(streams, list(starts))] |= BITS["start-known"]
    return unmet


def _before_latest(given: Given, rows: Array) -> tuple[Array, Array]:
    """For log rows that a group was not given which begins at the latest message: whether each lies
    before the group's first position in its stream, and whether that is not known.

    Clients do not say where they began. So the first position that the group was given counts as
    its start, and a stream of which it was given nothing stays open. So does what lies between the
    last delivery before a later assignment without a committed position and the first one after it:
    the client may have restarted from another position.
    """
    log, table = given.history.bucket.log, given.history.bucket.deliveries
    stream, position = log["stream"][rows], log["position"][rows]
    skipped, is_open = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    committed = _starts(given)
    anew = _begun_anew(given)
    for number in np.unique(stream).tolist():
        here = stream == number
        own = np.flatnonzero((log["stream"] == number) & (given.first >= 0))
        if number in committed:
            continue
        if not len(own):
            is_open |= here
            continue
        places, times = log["position"][own], table["t_ns"][given.first[own]]
        skipped |= here & (position < places.min())
        for begun_ns in anew.get(number, []):
            last = places[times < begun_ns].max(initial=-1)
            following = places[times >= begun_ns].min(initial=np.iinfo(np.int64).max)
            is_open |= here & (position > last) & (position < following) & ~skipped
    return skipped, is_open


def _begun_anew(given: Given) -> dict[int, list[int]]:
    """By stream, when assignments without a committed position began, the group's first one left
    out."""
    told: dict[int, list[int]] = defaultdict(list)
    for change in given.matching.changes:
        own = given.matching.group_of_session.get(change.session) == given.group
        if own and change.event == Event.ASSIGN and change.position < 0:
            told[change.stream].append(change.t_ns)
    return {stream: sorted(times)[1:] for stream, times in told.items()}


def _firsts_of_remade(given: Given) -> dict[int, int]:
    """By stream of a recreated topic, the first log row that was given: no client promises where a
    consumer that was reading the previous topic continues."""
    context, log = given.history.context, given.history.bucket.log
    remade = np.flatnonzero(context.remade[context.stream_topic] > 0)
    found = {}
    for stream in remade.tolist():
        own = np.flatnonzero((log["stream"] == stream) & (given.first >= 0))
        if len(own):
            found[stream] = int(own[0])
    return found


def _starts(given: Given) -> dict[int, int]:
    """Lowest position at which an assignment of each stream is known to have begun.

    The group's first assignment of a stream without a position began at the log's start: with
    nothing committed yet, workers read from the earliest message. Such a stream is left out if the
    group may have begun anywhere.
    """
    is_known = given.history.context.reading(given.group).is_start_known
    told: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for change in given.matching.changes:
        own = given.matching.group_of_session.get(change.session) == given.group
        if own and change.event == Event.ASSIGN:
            told[change.stream].append((change.t_ns, change.position))
    starts = {}
    for stream, assigns in told.items():
        first = min(assigns, key=lambda pair: pair[0])[1]
        if first >= 0:
            starts[stream] = min(position for _, position in assigns if position >= 0)
        elif is_known:
            starts[stream] = 0
    return starts
