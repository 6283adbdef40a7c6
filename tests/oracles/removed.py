"""Oracle of what an operator took away: logs cut at their begin, topics deleted and made again."""

from __future__ import annotations

from dataclasses import replace

from analysis.classes import CLASSES
from tests.oracles.facts import Facts, Hit, Identity, Place, Row, place


def cut_of(facts: Facts, stream: int) -> int:
    name = facts.context.stream_name(stream)
    return max(
        (fault.details.cut.get(name, 0) for fault in facts.context.faults if fault.effective),
        default=0,
    )


def remade_ns(facts: Facts, topic: str) -> int:
    """Since when it is the second of its name; 0 = it is the first."""
    times = [
        fault.heal_ns or fault.over_ns
        for fault in facts.context.faults
        if fault.effective and topic in fault.details.remade
    ]
    return max(times, default=0)


def topic_of_lane(facts: Facts, lane: int) -> str:
    context = facts.context
    return context.topics[context.lane_topic[lane]] if lane < context.n_lanes else ""


def topic_of_stream(facts: Facts, stream: int) -> str:
    return facts.context.stream_name(stream).rpartition("-")[0] if stream else ""


def before_remade(facts: Facts, name: Identity) -> bool:
    row = facts.sent.get(name)
    return row is not None and row["t_start_ns"] < remade_ns(facts, topic_of_lane(facts, name[1]))


def is_removed(facts: Facts, name: Identity, where: Place | None) -> bool:
    """It lay before a cut; or the first topic of the name acknowledged it: before the second was
    there, or at a position that the second had not come to."""
    done_ns = facts.sent[name]["t_done_ns"]
    known = where is not None and 0 < where[0] <= len(facts.context.streams)
    if known and where and where[2] < cut_of(facts, where[0]):
        return True
    if 0 < done_ns < remade_ns(facts, topic_of_lane(facts, name[1])):
        return True
    return bool(known and where and before_remade(facts, name) and is_above(facts, where, done_ns))


def is_above(facts: Facts, where: Place, done_ns: int) -> bool:
    stream, _, position, _ = where
    terms = facts.context.terms.get(stream, ())
    if (
        not facts.context.has_offsets
        or not terms
        or any(term.first is None or 0 < term.first <= position for term in terms)
    ):
        return False
    behind = [row for row in facts.log if row["stream"] == stream and row["position"] >= position]
    return not behind or behind[0]["t_intended_ns"] > done_ns


def between_topics(facts: Facts, hits: list[Hit]) -> list[Hit]:
    """Of what was sent before its topic was made again nobody knows to which of the two it came."""
    return [
        replace(hit, unmet=hit.unmet | {"topic-kept"})
        if "topic-kept" in CLASSES[hit.cls].needs
        and len(hit.name) == 4
        and before_remade(facts, hit.name)
        else hit
        for hit in hits
    ]


def is_before_first_given(facts: Facts, rows: list[Row], row: Row) -> bool:
    """Whether a log row of a topic that was made again lies before the first that a group was given
    of it."""
    if not remade_ns(facts, topic_of_stream(facts, row["stream"])):
        return False
    given = [place(r) for r in rows if r["stream"] == row["stream"] and facts.matches(r)]
    return bool(given) and place(row) < min(given)
