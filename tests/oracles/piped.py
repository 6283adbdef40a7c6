"""Oracles of pipelines: inputs made twice, not at all, or in another order; and writes past a
fence."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.capture.context import PipelineGroup
from harness.records import Txn
from tests.oracles.facts import Facts, Hit, Identity, Row, identity, place
from tests.oracles.logged import time_of
from tests.oracles.removed import cut_of, remade_ns, topic_of_stream
from tests.oracles.transacted import members, unread_markers


def outputs(facts: Facts, pipeline: PipelineGroup, stream: int) -> list[Row]:
    """Rows that name an input of the stream, in the order of the log; what nobody sees as well."""
    first = facts.context.topic_streams(pipeline.source).start
    own = facts.context.topic_streams(pipeline.to)
    rows = [
        r
        for r in facts.log
        if facts.is_message(r) and r["stream"] in own and r["source_position"] >= 0
    ]
    rows = [r for r in rows if first + r["source_partition"] == stream]
    since_ns = remade_ns(facts, pipeline.source)
    return (
        [r for r in rows if is_of_present_input(facts, pipeline, stream, r)] if since_ns else rows
    )


def is_of_present_input(facts: Facts, pipeline: PipelineGroup, stream: int, row: Row) -> bool:
    """Sent after the topic of its input was made again, and the pipeline was first handed that
    input."""
    sent = facts.sent.get(identity(row))
    if sent is None:
        return True
    there = [
        r for r in facts.log if r["stream"] == stream and r["position"] == row["source_position"]
    ]
    handed = [handed_ns(facts, pipeline, identity(r)) for r in there if facts.visible(r)]
    since_ns = [remade_ns(facts, pipeline.source), *(min(times) for times in handed if times)]
    return bool(sent["t_start_ns"] >= max(since_ns))


def handed_ns(facts: Facts, pipeline: PipelineGroup, name: Identity) -> list[int]:
    """When members of the pipeline were given a message."""
    own = [n for n, s in facts.context.sessions.items() if s.group == pipeline.group]
    return [r["t_ns"] for r in facts.given() if r["session"] in own and identity(r) == name]


def seen(facts: Facts, rows: list[Row]) -> list[Row]:
    """The first copies that readers of committed data see."""
    return [r for r in rows if facts.visible(r) and facts.copies[identity(r)][0] is r]


def works(facts: Facts) -> Iterator[tuple[PipelineGroup, int]]:
    for pipeline in facts.context.pipelines:
        for stream in facts.context.topic_streams(pipeline.source):
            yield pipeline, stream


def input_twice(facts: Facts) -> list[Hit]:
    hits = []
    for pipeline, stream in works(facts):
        of: dict[int, list[Row]] = {}
        for row in seen(facts, outputs(facts, pipeline, stream)):
            of.setdefault(row["source_position"], []).append(row)
        for rows in of.values():
            if len(rows) > 1:
                name = identity(rows[1])
                hits.append(Hit("input-twice", name, t_ns=time_of(facts, name)))
    return hits


def input_reordered(facts: Facts) -> list[Hit]:
    hits = []
    for pipeline, stream in works(facts):
        before: list[int] = []
        for row in seen(facts, outputs(facts, pipeline, stream)):
            position, name = row["source_position"], identity(row)
            if position not in before and before and position < max(before):
                hits.append(Hit("input-reordered", name, t_ns=time_of(facts, name)))
            before.append(position)
    return hits


def input_skipped(facts: Facts) -> list[Hit]:
    return [hit for pipeline, stream in works(facts) for hit in skipped_of(facts, pipeline, stream)]


def skipped_of(facts: Facts, pipeline: PipelineGroup, stream: int) -> Iterator[Hit]:
    context = facts.context
    made = outputs(facts, pipeline, stream)
    is_seen = {row["source_position"] for row in seen(facts, made)}
    hidden = [row for row in made if not facts.visible(row)]
    may_be_seen = {row["source_position"] for row in hidden if row["txn"] != Txn.ABORTED}
    aborted = {row["source_position"] for row in hidden if row["txn"] == Txn.ABORTED}
    committed = pipeline.committed.get(stream)
    end = max(is_seen, default=-1) if committed is None else committed
    to = context.topic_streams(pipeline.to)
    output = to[(stream - context.topic_streams(pipeline.source).start) % len(to)]
    bounds = context.stream_bounds(output)
    unmet = {
        "audit-complete": not bounds.is_complete,
        "log-kept": bounds.begin > cut_of(facts, output),
        "readiness-restored": not context.readiness_restored,
        "offsets-read": committed is None,
    }
    lacks = frozenset(name for name, is_missing in unmet.items() if is_missing)
    for row in facts.log:
        position = row["position"]
        is_input = row["stream"] == stream and facts.is_message(row)
        if not is_input or (pipeline.committed_only and not facts.visible(row)):
            continue
        if position >= min(end, context.stream_bounds(stream).read_to):
            continue
        if (
            position in is_seen
            or position in may_be_seen
            or facts.lane_stream(row["lane"]) not in (0, stream)
        ):
            continue
        last_ns = max(
            handed_ns(facts, pipeline, identity(row)), default=time_of(facts, identity(row))
        )
        split = (
            "removed" if is_removed_output(facts, made, output, position, last_ns) else "no output"
        )
        split = "aborted" if position in aborted else split
        if context.instance(pipeline.instance).promise.holds("delivery") is False:
            split = "not durable"
        yield Hit("input-skipped", identity(row), split, lacks, time_of(facts, identity(row)))


def is_removed_output(
    facts: Facts, made: list[Row], output: int, position: int, last_ns: int
) -> bool:
    """It would be in a topic that is another one now, or before what is left of the log: its input
    was handed out before the fault, and lies before those of all outputs behind the cut."""
    if last_ns < remade_ns(facts, topic_of_stream(facts, output)):
        return True
    own = [
        r
        for r in seen(facts, made)
        if r["stream"] == output and r["position"] >= cut_of(facts, output)
    ]
    name = facts.context.stream_name(output)
    cuts = [f for f in facts.context.faults if f.effective and name in f.details.cut]
    is_before = all(position < r["source_position"] for r in own)
    return is_before and any(last_ns < fault.over_ns for fault in cuts)


def late_rows(facts: Facts) -> list[tuple[Row, tuple[int, int]]]:
    """Rows of a life behind those of a later one, in one stream, and the transaction of each."""
    own, table, context = members(facts), facts.context.transactions, facts.context
    ids = {
        (int(table.instance[i]), int(table.number[i])): int(table.id[i]) for i in range(len(table))
    }
    late = []
    for number, row in enumerate(facts.log):
        if not facts.is_message(row) or identity(row) not in own:
            continue
        me, mine = context.instance(row["instance"]), own[identity(row)]
        for other in facts.log[:number]:
            if (
                other["stream"] != row["stream"]
                or not facts.is_message(other)
                or identity(other) not in own
            ):
                continue
            it, its = context.instance(other["instance"]), own[identity(other)]
            same = me.life_of and it.life_of == me.life_of and ids[its] == ids[mine]
            if same and (it.start_ns, it.number) > (me.start_ns, me.number):
                late.append((row, mine))
                break
    return late


def fence_breach(facts: Facts) -> list[Hit]:
    hits = []
    late = late_rows(facts)
    before = None
    for row, transaction in late:
        if (transaction, row["stream"]) != before:
            lacks = unread_markers(facts, row["stream"])
            hits.append(Hit("fence-breach", ("row", *place(row)), "older life", lacks))
        before = (transaction, row["stream"])
    for stream, bounds in facts.context.bounds.items():
        for write in bounds.stale:
            rows = [r for r in facts.log if r["stream"] == stream and r["position"] <= write.last]
            inside = [r for r in rows if r["position"] >= write.first]
            shown = inside[0] if inside else rows[-1] if rows else None
            if write.is_marker or all(shown is not row for row, _ in late):
                name = ("row", *place(shown)) if shown else ("stall", stream)
                hits.append(Hit("fence-breach", name, "older epoch", unread_markers(facts, stream)))
    return hits


ORACLES = (input_twice, input_reordered, input_skipped, fence_breach)
