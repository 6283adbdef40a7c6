"""Traces one message through all tables: when it was due and sent, where it is stored, who was
given it.

A message is named as everywhere: ``instance/lane/seq`` (optionally ``.attempt``), or by the place
where somebody found it, ``topic-partition@offset`` (Pulsar: ``@ledger:entry`` or
``@ledger:entry:index``). Only the files of its bucket are opened, filtered while they are read, so
a trace in a run of many millions of messages takes a moment.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import pyarrow.compute as pc

from analysis.capture.context import SessionFacts
from analysis.findings import FaultRow
from analysis.kernels.labels import place_text
from analysis.report import words
from analysis.report.trace_cause import cause_of
from analysis.report.trace_logs import LOG_LINES, with_witnesses
from analysis.report.trace_model import (
    AckedPlace,
    Delivered,
    Neighbour,
    NotGiven,
    Output,
    SendAttempt,
    Stored,
    Trace,
)
from analysis.report.trace_tables import EXAMPLES, SealedRow, SealedTables
from analysis.verdict.fault_rows import fault_row
from harness.contracts.message import MessageId
from harness.contracts.rows import Bounds
from harness.errors import UsageError
from harness.records import Check, Event, Kind, Outcome, Txn
from harness.rundir import RunDir, reading

#: Log rows shown on either side of each place where the message is stored.
NEIGHBOURS = 5
#: Faults this close to the message's send are part of its story.
NEAR_S = 5.0
_PLACE = re.compile(r"^(.+-\d+)@(\d+(?::\d+){0,2})$")
#: What ends a stretch of deliveries in a session of a queue; the first two settle it.
_ENDS = (Event.COMMIT, Event.ACK_CONFIRMED, Event.ROLLBACK_END, Event.RECOVER)
_MAX_NUMBER = 2**63 - 1


def trace(run: RunDir, message: str, *, log_lines: int = LOG_LINES) -> Trace:
    """Look one message up, with at most that many lines of the logs around it.

    Raises:
        UsageError: not the form of a message, unknown in this run, or the run has no sealed
            capture, or one that its documents do not fit.
    """
    # parts that were sealed during the load are not the whole capture
    if not run.seal_report.exists():
        raise UsageError(
            f"{run.root} has no sealed capture",
            hint=f"`brokerstorm analyze {run.root}` seals and judges a run that has ended",
        )
    with reading(run):
        found = _look_up(_Tracer(SealedTables(run)), message)
    return with_witnesses(run, found, log_lines)


def _look_up(tracer: _Tracer, message: str) -> Trace:
    if place := _PLACE.match(message.strip()):
        return tracer.at_place(place[1], [_number(part) for part in place[2].split(":")], message)
    if identity := MessageId.parse(message.strip()):
        for number in filter(None, identity):
            _number(str(number))
        return tracer.by_identity(identity, message)
    raise UsageError(f"{words.plain(message)!r} does not name a message", hint=EXAMPLES)


def _number(text: str) -> int:
    value = int(text)
    if value > _MAX_NUMBER:
        raise UsageError(f"{text} is larger than any id", hint=EXAMPLES)
    return value


class _Tracer:
    """Puts the rows of one message into words."""

    def __init__(self, tables: SealedTables) -> None:
        self._tables = tables
        self._context = tables.context
        self._read_ends: dict[tuple[int, int], list[SealedRow]] = {}

    def at_place(self, stream_text: str, place: Sequence[int], asked: str) -> Trace:
        """``place``: offset; or ledger, entry and, in a batch, index."""
        stream = self._tables.stream_id(stream_text)
        where = (pc.field("stream") == stream) & (
            pc.field("position") == place[min(len(place) - 1, 1)]
        )
        if len(place) > 1:
            where = where & (pc.field("ledger") == place[0])
        if len(place) > 2:
            where = where & (pc.field("batch") == place[2])
        rows = self._tables.read_first("log", self._tables.buckets_of_stream(stream), where)
        if not rows:
            bounds = self._context.stream_bounds(stream)
            raise UsageError(
                f"{stream_text} has no row at {':'.join(map(str, place))}: {self._range(bounds)}",
                hint="positions of control records hold no message; on Pulsar name ledger and entry",
            )
        row = rows[0]
        if row.check != Check.OK:
            return self._unreadable(row, asked)
        return self.by_identity(MessageId(row.instance, row.lane, row.seq), asked)

    def by_identity(self, name: MessageId, asked: str) -> Trace:
        """Return the trace of one attempt to send. Raises UsageError if there is none."""
        instance, lane, seq, attempt = name
        if lane >= 2**32 or instance >= 2**32:
            raise UsageError(f"{asked!r}: instance and lane are below {2**32}", hint=EXAMPLES)
        bucket = self._tables.bucket_of_lane(lane)
        own = (
            (pc.field("instance") == instance)
            & (pc.field("lane") == lane)
            & (pc.field("seq") == seq)
        )
        if attempt is not None:
            own = own & (pc.field("attempt") == attempt)
        sends = self._tables.read("sends", bucket, own)
        log = self._tables.read("log", bucket, own & (pc.field("check") == int(Check.OK)))
        events = self._tables.read(
            "deliveries", bucket, own & (pc.field("event") == int(Event.DELIVER))
        )
        events += [row for place in log for row in self._damaged(place)]
        if not sends and not log and not events:
            raise self._not_found(name, bucket, asked)
        made_sends = tuple(self._send(row) for row in sorted(sends, key=lambda r: r.attempt))
        return Trace(
            run_id=self._context.run_id,
            message=str(name),
            asked=words.plain(asked),
            lane=self._context.lane_text(lane),
            producer=self._producer(instance),
            sends=made_sends,
            log=tuple(self._stored(row, bucket) for row in sorted(log, key=_in_log_order)),
            log_text=self._log_text(lane, sends),
            acked_places=()
            if log
            else tuple(self._acked_place(row) for row in sends if self._place(row)),
            deliveries=tuple(
                self._delivered(row, bucket) for row in sorted(events, key=lambda r: r.t_ns)
            ),
            not_given=tuple(self._not_given(log, events)),
            faults=self._faults(made_sends),
            classes=tuple(self._tables.classes.get(name.whole, ())),
            client_names=self._client_names([*sends, *log]),
            cause=cause_of(
                self._context,
                sends,
                sorted(log, key=_in_log_order),
                self._tables.written,
                was_taken=bool(events),
            ),
        )

    # -- rows to words

    def _place(self, row: SealedRow) -> str:
        if not row.stream or row.position < 0:
            return ""
        return f"{self._context.stream_name(row.stream)}@{_position(row)}"

    def _producer(self, instance: int) -> str:
        known = self._context.instance(instance)
        return " ".join(filter(None, (known.name, f"({known.client})" if known.client else "")))

    def _client_names(self, rows: Sequence[SealedRow]) -> tuple[str, ...]:
        named = (self._context.names.get(row.client_name, "") for row in rows)
        return tuple(dict.fromkeys(words.plain(name) for name in named if name))

    def _send(self, row: SealedRow) -> SendAttempt:
        seconds = self._context.seconds
        late = Outcome(row.late_outcome)
        is_unknown = (
            "intended-times" in self._context.unstated and row.t_intended_ns == row.t_start_ns
        )
        return SendAttempt(
            attempt=row.attempt,
            kind=Kind(row.kind).name.lower().replace("_", "-"),
            t_intended_s=None if is_unknown else seconds(row.t_intended_ns),
            t_start_s=seconds(row.t_start_ns),
            t_done_s=seconds(row.t_done_ns) if row.t_done_ns else None,
            outcome=Outcome(row.outcome).name.lower(),
            late_outcome="" if late is Outcome.NONE else late.name.lower(),
            error=words.plain(self._context.names.get(row.error, "")),
            acked_at=self._place(row),
        )

    def _stored(self, row: SealedRow, bucket: int) -> Stored:
        t_broker_s = None
        if row.broker_time_ms >= 0 and self._tables.wall_ms is not None:
            t_broker_s = (row.broker_time_ms - self._tables.wall_ms) / 1000
        return Stored(
            place=self._place(row),
            attempt=row.attempt,
            check=Check(row.check).name.lower().replace("_", " "),
            txn=_txn(row),
            t_broker_s=t_broker_s,
            around=self._around(row, bucket),
            made_of=self._made_of(row, bucket),
            made_into=tuple(self._made_into(row, bucket)),
        )

    def _made_of(self, row: SealedRow, bucket: int) -> str:
        """Place and name of the input of an output; empty for any other row."""
        first = self._context.first_source
        is_output = row.source_position >= 0 and row.stream < len(first) and first[row.stream]
        if not is_output:
            return ""
        stream = int(first[row.stream]) + row.source_partition
        where = (pc.field("stream") == stream) & (pc.field("position") == row.source_position)
        held = self._tables.read("log", bucket, where)
        place = f"{self._context.stream_name(stream)}@{row.source_position}"
        return f"{place} ({_name(held[0])})" if held else place

    def _made_into(self, row: SealedRow, bucket: int) -> Iterator[Output]:
        for pipeline in self._context.pipelines:
            sources = self._context.topic_streams(pipeline.source)
            if row.stream not in sources:
                continue
            where = pc.field("stream").isin(list(self._context.topic_streams(pipeline.to)))
            where = where & (pc.field("source_partition") == row.stream - sources.start)
            where = where & (pc.field("source_position") == row.position)
            for made in sorted(self._tables.read("log", bucket, where), key=_in_log_order):
                yield Output(
                    group=pipeline.group,
                    message=_name(made),
                    place=self._place(made),
                    txn=_txn(made),
                )
        own = pc.field("event") == int(Event.OUTPUT)
        for name in ("instance", "lane", "seq", "attempt"):
            own = own & (pc.field(name) == getattr(row, name))
        names = {each.session: each.name for each in self._context.applications}
        for made in self._tables.read("deliveries", bucket, own) if names else ():
            when = f"at {words.clock(self._context.seconds(made.t_ns))}" if made.t_ns else ""
            yield Output(
                group=names.get(made.session, ""),
                message="an output",
                place=self._place(made),
                txn=when,
            )

    def _acked_place(self, send: SealedRow) -> AckedPlace:
        around = self._around(send, self._tables.buckets_of_stream(send.stream)[0])
        holder = next((beside.message for beside in around if beside.mark), "")
        return AckedPlace(place=self._place(send), holder=holder, around=around)

    def _around(self, row: SealedRow, bucket: int) -> tuple[Neighbour, ...]:
        """The log about the place that ``row`` names; the row at that place, if there is one, is
        marked."""
        position = pc.field("position")
        near = (position >= row.position - NEIGHBOURS) & (position <= row.position + NEIGHBOURS)
        near = near & (pc.field("stream") == row.stream) & (pc.field("ledger") == row.ledger)
        rows = sorted(self._tables.read("log", bucket, near), key=_in_log_order)
        here = bisect_left(rows, _in_log_order(row), key=_in_log_order)
        made = []
        for i, other in enumerate(rows):
            is_there = i == here and _in_log_order(other) == _in_log_order(row)
            mark = "!" if is_there else "+" if _same(other, row) else ""
            made.append(Neighbour(position=_position(other), message=_name(other), mark=mark))
        return tuple(made[max(here - NEIGHBOURS, 0) : here + NEIGHBOURS + 1])

    def _delivered(self, row: SealedRow, bucket: int) -> Delivered:
        commits = self._settled_ns(row, bucket)
        session = self._context.sessions.get(row.session)
        return Delivered(
            session=row.session,
            consumer=session.name if session else "",
            subscription=words.plain(self._context.names.get(row.subscription, "")),
            t_s=self._context.seconds(row.t_ns),
            epoch=row.epoch,
            place=self._place(row),
            redelivery=row.redelivery,
            check=Check(row.check).name.lower().replace("_", " "),
            t_committed_s=self._context.seconds(min(commits)) if commits else None,
        )

    def _damaged(self, stored: SealedRow) -> list[SealedRow]:
        """Return deliveries from the place of a stored message whose payload does not name it."""
        where = (pc.field("event") == int(Event.DELIVER)) & (pc.field("check") != int(Check.OK))
        for name in ("stream", "position", "ledger", "batch"):
            where = where & (pc.field(name) == getattr(stored, name))
        return self._tables.read_first(
            "deliveries", self._tables.buckets_of_stream(stored.stream), where
        )

    def _not_given(
        self, log: Sequence[SealedRow], events: Sequence[SealedRow]
    ) -> Iterator[NotGiven]:
        """Groups that read a topic where the message is stored, and have no delivery of it."""
        topics = {self._context.stream_name(row.stream).rpartition("-")[0] for row in log}
        sessions = self._context.sessions
        given = {sessions[row.session].group for row in events if row.session in sessions}
        groups: dict[str, list[SessionFacts]] = {}
        for session in sessions.values():
            if session.group not in given and topics.intersection(session.topics):
                groups.setdefault(session.group, []).append(session)
        for group, members in sorted(groups.items()):
            yield NotGiven(
                group=words.plain(group),
                members=tuple(words.plain(each.name) for each in members),
                incomplete=tuple(words.plain(each.name) for each in members if not each.complete),
            )

    def _settled_ns(self, row: SealedRow, bucket: int) -> list[int]:
        """When what the session did later settled this delivery."""
        if self._context.is_queue[row.stream]:
            ends = self._ends(row.session, bucket)
            at = bisect_right(ends, row.ordinal, key=_ordinal)
            return [ends[at].t_ns] if at < len(ends) and ends[at].event in _ENDS[:2] else []
        event, after = pc.field("event"), pc.field("ordinal") > row.ordinal
        own = after & (pc.field("session") == row.session) & (pc.field("stream") == row.stream)
        if self._context.has_offsets:
            own = own & (event == int(Event.COMMIT)) & (pc.field("position") > row.position)
        else:
            own = own & (event == int(Event.ACK_CONFIRMED)) & (pc.field("position") == row.position)
            own = own & (pc.field("ledger") == row.ledger) & (pc.field("batch") == row.batch)
        return [found.t_ns for found in self._tables.read("deliveries", bucket, own)]

    def _ends(self, session: int, bucket: int) -> list[SealedRow]:
        """Return what ended deliveries of a session of a queue, in its order. It is read once: a
        message may be delivered thousands of times."""
        if (session, bucket) not in self._read_ends:
            wanted = pc.field("event").isin([int(event) for event in _ENDS])
            wanted = wanted & (pc.field("session") == session)
            rows = self._tables.read("deliveries", bucket, wanted)
            self._read_ends[session, bucket] = sorted(rows, key=_ordinal)
        return self._read_ends[session, bucket]

    def _log_text(self, lane: int, sends: Sequence[SealedRow]) -> str:
        """How far the log was read where the message should be; of a queue, what was left in it."""
        acked = next((row.stream for row in sends if row.stream), 0)
        expected = int(self._context.lane_stream[lane]) if lane < self._context.n_lanes else 0
        stream = acked or expected
        if not stream:
            return "not in the log; the client chose the partition and named none"
        bounds = self._context.stream_bounds(stream)
        told = f"{self._context.stream_name(stream)}: {self._range(bounds)}"
        if self._context.is_queue[stream]:
            return told
        return f"not in {'' if bounds.is_complete else 'what was read of '}the log; {told}"

    def _range(self, bounds: Bounds) -> str:
        if bounds.remaining and not bounds.is_complete:
            return f"a queue, which keeps no log; what remained in it was not read ({bounds.why})"
        if bounds.remaining:
            left = words.plural(bounds.read_to, "message") if bounds.read_to else "no message"
            return f"a queue, which keeps no log; {left} remained in it after the drain"
        if self._context.has_offsets:
            return f"the audit read {_range(bounds)}"
        told = "its end" if bounds.is_complete else f"of {bounds.end:,} ({bounds.why})"
        return f"the audit read {bounds.read_to:,} messages, {told}"

    def _faults(self, sends: Sequence[SendAttempt]) -> tuple[FaultRow, ...]:
        if not sends:
            return ()
        begin = min(send.t_start_s for send in sends) - NEAR_S
        end = (
            max(send.t_done_s if send.t_done_s is not None else send.t_start_s for send in sends)
            + NEAR_S
        )
        zero_ns = self._context.epoch_ns
        made = [fault_row(f, None, zero_ns) for f in self._tables.faults if f.inject_ns is not None]
        return tuple(f for f in made if f.t_s <= end and (f.until_s is None or f.until_s >= begin))

    def _unreadable(self, row: SealedRow, asked: str) -> Trace:
        """A row whose header is not one of this run's: there is a place and nothing else."""
        bucket = self._tables.buckets_of_stream(row.stream)[0]
        return Trace(
            run_id=self._context.run_id,
            message="",
            asked=words.plain(asked),
            lane="",
            producer="",
            sends=(),
            log=(self._stored(row, bucket),),
            log_text="the payload does not carry an identity of this run",
            deliveries=(),
            faults=(),
        )

    def _not_found(self, name: MessageId, bucket: int, asked: str) -> UsageError:
        instance, lane, seq, _ = name
        own = (pc.field("instance") == instance) & (pc.field("lane") == lane)
        sent = [(row.seq, row.attempt) for row in self._tables.read("sends", bucket, own)]
        text = words.plain(asked)
        if attempts := [attempt for number, attempt in sent if number == seq]:
            return UsageError(
                f"{text} was never sent: of {name.whole} the last attempt was {max(attempts)}",
                hint=f"{name.whole} shows all of its attempts",
            )
        if sent:
            last, _ = max(sent)
            return UsageError(
                f"{text} was never sent: {instance}/{lane} sent seq 0..{last}",
                hint=f"the last one is {MessageId(instance, lane, last)}",
            )
        known = ", ".join(str(number) for number in sorted(self._context.instances)) or "none"
        where = f"lane {lane} ({self._context.lane_text(lane)})"
        return UsageError(
            f"{text}: producer instance {instance} sent nothing to {where}",
            hint=f"producer instances of this run: {known}; {EXAMPLES}",
        )


def _range(bounds: Bounds) -> str:
    text = f"{bounds.begin}..{bounds.read_to - 1}" if bounds.read_to > bounds.begin else "nothing"
    return f"{text}, its end" if bounds.is_complete else f"{text} of {bounds.end} ({bounds.why})"


def _txn(row: SealedRow) -> str:
    return "" if row.txn == Txn.NONE else Txn(row.txn).name.lower()


def _in_log_order(row: SealedRow) -> tuple[int, ...]:
    return row.stream, row.ledger, row.position, row.batch


def _ordinal(row: SealedRow) -> int:
    return row.ordinal


def _position(row: SealedRow) -> str:
    return place_text(row.position, row.ledger, row.batch)


def _same(a: SealedRow, b: SealedRow) -> bool:
    return a.check == Check.OK and (a.instance, a.lane, a.seq) == (b.instance, b.lane, b.seq)


def _name(row: SealedRow) -> str:
    if row.check != Check.OK:
        return Check(row.check).name.lower().replace("_", " ")
    if row.kind == Kind.PROBE:
        return "probe"
    resent = f".{row.attempt}" if row.attempt else ""
    return f"{row.instance}/{row.lane}/{row.seq}{resent}"
