"""Finds consumers that were given nothing although messages waited: stall and backlog-stuck.

A gap between two deliveries of a stream to a group is a stall when, for longer than the limit, an
acknowledged message lay above everything delivered so far, a member held the stream, no fault was
applied and the member's process ran. Readers of committed data also wait for the end of every
transaction that began before the message (`kernels.stable`). A stream that was given back, and that
no member was given again, is waited for by all that run. Gaps are looked for on a coarse grid
first, so that a stream whose messages keep coming costs one pass.

Where messages are settled one by one (Pulsar), a session holds the streams of its topics as long as
it runs, and a window that lasts to the end, with messages that no consumer was ever given, is a
stuck backlog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.capture.bucket import Array, chunks
from analysis.kernels.history import BucketHistory
from analysis.kernels.hits import BITS, Hits, Note, hits, split_index
from analysis.kernels.labels import count_of
from analysis.kernels.lies import lies_about
from analysis.kernels.lookup import Lookup, distinct
from analysis.kernels.matching import Given
from analysis.kernels.stable import HeldRows
from harness.records import Event, Outcome

_TICKS_A_LIMIT = 8
_NEVER = np.iinfo(np.int64).max

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Holding:
    """A session held the stream from ``start_ns`` to ``end_ns``; ``vacant``: it was there to be
    given it."""

    session: int
    start_ns: int
    end_ns: int
    vacant: bool = False


@dataclass(frozen=True, slots=True)
class QuietStretch:
    """Nothing was delivered from ``start_ns`` to ``end_ns``, and ``waiting`` messages lay there.

    ``is_permitted``: the group may have waited for a member that a false error let join again.
    """

    stream: int
    session: int
    start_ns: int
    end_ns: int
    waiting: int
    split: str
    is_permitted: bool


def judge(history: BucketHistory, groups: Sequence[Given], held: HeldRows) -> list[Hits]:
    """stall and backlog-stuck: one hit a window. Queues have a judge of their own.

    ``held``: what groups of readers of committed data wait for.
    """
    if history.context.stall_ns <= 0 or not history.bucket.log.rows:
        return []
    found = []
    for given in groups:
        reading = history.context.reading(given.group)
        if reading.subscription == "queue":
            continue
        stalls = _stalls(given, held if _is_committed_only(given) else None)
        stuck = [s for s in stalls if reading.is_individual and s.split != "resumed"]
        found += _hits(history, given, "stall", [s for s in stalls if s not in stuck])
        found += _hits(history, given, "backlog-stuck", stuck)
    return found


def _is_committed_only(given: Given) -> bool:
    """Some member of the group is given committed data only."""
    members = given.history.context.group_sessions().get(given.group, [])
    return any(member.committed_only for member in members)


def _stalls(given: Given, held: HeldRows | None) -> list[QuietStretch]:
    streams = distinct(given.history.bucket.log["stream"])
    end_ns = group_end_ns(given)
    holdings = {s: holdings_of(given, s) for s in streams.tolist()}
    holdings = {stream: own for stream, own in holdings.items() if own}
    if not holdings:
        return []
    start_ns = min(h.start_ns for own in holdings.values() for h in own)
    quiet = _quiet(given, streams, start_ns, end_ns)
    found = []
    for stream, own in holdings.items():
        if quiet[int(np.searchsorted(streams, stream))]:
            found += _of_stream(given, stream, own, end_ns, held)
    return found


def group_end_ns(given: Given) -> int:
    """When the last member of the group stopped; without a record, the end of observation."""
    sessions = given.history.context.group_sessions().get(given.group, [])
    return max((s.end_ns for s in sessions), default=0) or given.history.context.end_ns


def holdings_of(given: Given, stream: int) -> list[Holding]:
    """Return which member held the stream at which time, from assigns and revokes; without any,
    whoever was subscribed.
    """
    context = given.history.context
    topic = context.stream_name(stream).rpartition("-")[0]
    since: dict[int, int] = {}
    found = []
    given_back: set[int] = set()
    for change in given.matching.changes:
        if (
            change.stream not in (stream, 0)
            or given.matching.group_of_session[change.session] != given.group
        ):
            continue
        known = context.sessions.get(change.session)
        if change.stream == 0 and known and topic not in known.topics:
            continue  # a change of everything that it reads, which this is not part of
        if change.event in (Event.ASSIGN, Event.REVOKE) and change.session in since:
            # What a client gives back that died before was held to no purpose.
            until = min(change.t_ns, (known.end_ns if known else 0) or _NEVER)
            found.append(Holding(change.session, since.pop(change.session), until))
            if change.event == Event.REVOKE and until == change.t_ns:
                given_back.add(until)
        if change.event == Event.ASSIGN:
            since[change.session] = change.t_ns
    if not found and not since and context.reading(given.group).is_individual:
        members = context.group_sessions().get(given.group, [])
        since = {
            s.number: s.start_ns or context.load_start_ns for s in members if topic in s.topics
        }
    for session, start in since.items():
        known = context.sessions.get(session)
        found.append(Holding(session, start, (known.end_ns if known else 0) or _NEVER))
    left_ns = max((h.end_ns for h in found), default=_NEVER)
    if left_ns in given_back:  # and not the end of its last holder
        found += _vacancies(given, topic, left_ns)
    return found


def _vacancies(given: Given, topic: str, since_ns: int) -> list[Holding]:
    """Return the times in which a member could have received a stream of the topic that no member
    holds.

    Until the last producer was closed: what a member gives back after that may be its last act.
    """
    context = given.history.context
    if context.reading(given.group).is_individual:
        return []
    members = [s for s in context.group_sessions().get(given.group, []) if topic in s.topics]
    spans = [
        (s.number, max(s.start_ns, since_ns), min(s.end_ns or _NEVER, context.end_ns))
        for s in members
    ]
    return [Holding(number, start, end, vacant=True) for number, start, end in spans if start < end]


def _quiet(given: Given, streams: Array, start_ns: int, end_ns: int) -> Array:
    """For each stream: is some stretch nearly as long as the limit without a delivery?"""
    table = given.history.bucket.deliveries
    # A session whose end is not known may have been given something later.
    end_ns = max(end_ns, int(table["t_ns"][given.rows].max(initial=0)))
    tick = max(given.history.context.stall_ns // _TICKS_A_LIMIT, 1)
    ticks = max((end_ns - start_ns) // tick + 1, 1)
    seen = np.zeros((len(streams), ticks), np.bool_)
    ranks = Lookup(streams)
    for part in chunks(len(given.matched)):
        matched = given.matched[part] >= 0
        whole = isinstance(given.rows, slice) and matched.all()
        own = part if whole else given.numbers(part)[matched]
        rank, at = ranks.index(table["stream"][own]), (table["t_ns"][own] - start_ns) // tick
        seen.reshape(-1)[rank * ticks + np.clip(at, 0, ticks - 1, out=at)] = True
    # Time before the stream was assigned counts here too; that only means a closer look.
    edges = [np.concatenate([[-1], np.flatnonzero(row), [ticks]]) for row in seen]
    return np.array([bool(np.diff(e).max() >= _TICKS_A_LIMIT) for e in edges])


def _of_stream(
    given: Given, stream: int, holdings: list[Holding], end_ns: int, held: HeldRows | None
) -> list[QuietStretch]:
    history, limit = given.history, given.history.context.stall_ns
    rows, available = _waiting_since(history, stream)
    delivery = given.of_streams(np.array([stream]))
    times = history.bucket.deliveries["t_ns"][delivery]
    if held is not None:
        given_row = given.matching.row[delivery].astype(np.int64)
        available = np.maximum(available, held.available_ns(rows, given_row, times))
    order = np.argsort(times, kind="stable")
    begin = min(h.start_ns for h in holdings)
    starts = np.append(begin, times[order])
    ends = np.append(times[order], max(end_ns, int(starts[-1])))
    highest = np.append(-1, np.maximum.accumulate(given.matching.row[delivery][order]))
    found = []
    never_given = given.first[rows] < 0
    for gap in np.flatnonzero(ends - starts > limit).tolist():
        left = available[int(np.searchsorted(rows, highest[gap], side="right")) :]
        if gap == len(times) and history.context.reading(given.group).is_individual:
            left = available[never_given]
        start, end = int(starts[gap]), int(ends[gap])
        start = max(start, int(left.min(initial=_NEVER)))
        if end - start <= limit or _idle_ns(given, holdings, start, end) <= limit:
            continue
        waiting = int(np.count_nonzero(left < end))
        holder = next((h.session for h in holdings if h.start_ns < end and h.end_ns > start), 0)
        split = "held by nobody" if any(h.vacant for h in holdings) else "to the end"
        split = "resumed" if gap < len(times) else split
        permitted = _is_permitted(given, holdings, start, end)
        found.append(QuietStretch(stream, holder, start, end, waiting, split, permitted))
    return found


def _is_permitted(given: Given, holdings: list[Holding], start: int, end: int) -> bool:
    """Whether a false error came before the stretch alone was longer than the limit."""
    context = given.history.context
    told_ns = min((lie.since_ns for lie in lies_about(context, "stall")), default=_NEVER)
    return told_ns < end and _idle_ns(given, holdings, start, told_ns) <= context.stall_ns


def _waiting_since(history: BucketHistory, stream: int) -> tuple[Array, Array]:
    """Log rows of the stream, and when each was acknowledged (never: a very late time)."""
    rows = np.flatnonzero(history.bucket.log["stream"] == stream)
    slots = history.log_slot[rows]
    acked = slots >= 0
    acked[acked] = history.outcome[slots[acked]] == Outcome.OK
    available = np.full(len(rows), _NEVER)
    available[acked] = history.of_send("t_done_ns", slots[acked])
    return rows, available


def _idle_ns(given: Given, holdings: list[Holding], start: int, end: int) -> int:
    """Time of the window that lies in `idle_spans`."""
    clipped = [(max(a, start), min(b, end)) for a, b in idle_spans(given, holdings)]
    return sum(b - a for a, b in union(clipped))


def idle_spans(given: Given, holdings: Iterable[Holding]) -> list[Span]:
    """Disjoint, ascending spans in which a running member held the stream, no fault was applied,
    and the group knew which of its members were gone."""
    context = given.history.context
    faults = [(f.start_ns, f.over_ns) for f in context.faults if f.effective]
    members = context.group_sessions().get(given.group, [])
    faults += [(s.end_ns, s.missed_ns) for s in members if s.missed_ns]
    held = []
    for h in holdings:
        session = context.sessions.get(h.session)
        held += without([(h.start_ns, h.end_ns)], [*faults, *(session.frozen if session else ())])
    return union(held)


def union(spans: Iterable[Span]) -> list[Span]:
    """Disjoint, ascending spans that cover the same."""
    out: list[Span] = []
    for a, b in sorted(s for s in spans if s[0] < s[1]):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], b))
        else:
            out.append((a, b))
    return out


def without(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """Return the parts of the spans that lie in none of the holes."""
    out: list[Span] = []
    cuts = union(holes)
    for a, b in union(spans):
        for low, high in cuts:
            if high > a and low < b:
                out.append((a, low))
                a = max(a, high)
        out.append((a, b))
    return union(out)


def _hits(history: BucketHistory, given: Given, cls: str, stalls: list[QuietStretch]) -> list[Hits]:
    if not stalls:
        return []
    context = history.context
    splits = np.zeros(len(stalls), np.int8)
    unmet = np.full(len(stalls), 0 if context.readiness_restored else BITS["readiness-restored"])
    if cls == "stall":
        splits = np.array([split_index("stall", s.split) for s in stalls])
        unmet[[s.is_permitted for s in stalls]] |= BITS["answers-kept"]

    def note(i: int) -> Note:
        s = stalls[i]
        waiting = f"{count_of(s.waiting, 'message')} waiting"
        length_s, until_s = (s.end_ns - s.start_ns) / 1e9, context.seconds(s.end_ns)
        span = f"nothing for {length_s:.1f} s until {until_s:.1f} s"
        return Note(detail=f"group {given.group}: {waiting}, {span}")

    return [
        hits(
            cls,
            slot=np.full(len(stalls), -1),
            t_ns=np.array([s.start_ns for s in stalls]),
            split=splits,
            unmet=unmet,
            stream=np.array([s.stream for s in stalls]),
            session=np.array([s.session for s in stalls]),
            note=note,
        )
    ]
