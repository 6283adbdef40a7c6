"""Traces one message through all tables: when it was due and sent, where it is stored, who was given it.

A message is named as everywhere: ``instance/lane/seq`` (optionally ``.attempt``), or by the place where
somebody found it, ``topic-partition@offset`` (Pulsar: ``@ledger:entry`` or ``@ledger:entry:index``). Only the
files of its bucket are opened, filtered while they are read, so a trace in a run of many millions of messages
takes a moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from analysis.capture.capture import Capture, damaged_files
from analysis.capture.context import Bounds, Context
from analysis.capture.context_files import load_context
from analysis.kernels.labels import place_text
from analysis.report import words
from analysis.report.trace_model import Delivered, FaultNear, Neighbour, SendAttempt, Stored, Trace
from harness.errors import UsageError
from harness.faultlog import FaultRecord, read_faults
from harness.records import Check, Event, Kind, Outcome, Txn
from harness.rundir import RunDir, read_json, reading

#: Log rows shown on either side of each place where the message is stored.
NEIGHBOURS = 5
#: Faults this close to the message's send are part of its story.
NEAR_S = 5.0
EXAMPLES = (
    "a message is INSTANCE/LANE/SEQ as in 1/3/88121, or a place TOPIC-PARTITION@OFFSET as in orders-3@41203, "
    "on Pulsar @LEDGER:ENTRY[:INDEX]"
)
_IDENTITY = re.compile(r"^(\d+)/(\d+)/(\d+)(?:\.(\d+))?$")
_PLACE = re.compile(r"^(.+-\d+)@(\d+(?::\d+){0,2})$")
#: What ends a stretch of deliveries in a session of a queue; the first two settle it.
_ENDS = (Event.COMMIT, Event.ACK_CONFIRMED, Event.ROLLBACK_END, Event.RECOVER)
_MAX_NUMBER = 2**63 - 1


def trace(run: RunDir, message: str) -> Trace:
    """Look one message up.

    Raises:
        UsageError: not the form of a message, unknown in this run, or the run has no sealed capture.
    """
    if not run.sealed.is_dir():
        raise UsageError(
            f"{run.root} has no sealed capture", hint="`brokerstorm analyze` seals and judges a run"
        )
    with reading(run):
        tables = _Tables(run)
        if place := _PLACE.match(message.strip()):
            return tables.at_place(place[1], [_number(part) for part in place[2].split(":")], message)
        if identity := _IDENTITY.match(message.strip()):
            instance, lane, seq = (_number(part) for part in identity.groups()[:3])
            attempt = None if identity[4] is None else _number(identity[4])
            return tables.by_identity(instance, lane, seq, attempt, message)
    raise UsageError(f"{words.plain(message)!r} does not name a message", hint=EXAMPLES)


def _number(text: str) -> int:
    value = int(text)
    if value > _MAX_NUMBER:
        raise UsageError(f"{text} is larger than any id", hint=EXAMPLES)
    return value


class _Tables:
    """The sealed tables of one run and what explains their numbers."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._context: Context = load_context(run)
        self._plan: Mapping[str, Any] = read_json(run.plan)
        self._wall_ms = _wall_ms(read_json(run.manifest))
        self._checksums = Capture.find(run).checksums if run.seal_report.exists() else {}
        self._whole: set[int] = set()

    def at_place(self, stream_text: str, place: Sequence[int], asked: str) -> Trace:
        """``place``: offset; or ledger, entry and, in a batch, index."""
        stream = self._stream_id(stream_text)
        where = (pc.field("stream") == stream) & (pc.field("position") == place[min(len(place) - 1, 1)])
        if len(place) > 1:
            where = where & (pc.field("ledger") == place[0])
        if len(place) > 2:
            where = where & (pc.field("batch") == place[2])
        rows = self._read_first("log", self._buckets_of_stream(stream_text), where)
        if not rows:
            bounds = self._context.stream_bounds(stream)
            raise UsageError(
                f"{stream_text} has no row at {':'.join(map(str, place))}: {self._range(bounds)}",
                hint="positions of control records hold no message; on Pulsar name ledger and entry",
            )
        row = rows[0]
        if row["check"] != Check.OK:
            return self._unreadable(row, asked)
        return self.by_identity(row["instance"], row["lane"], row["seq"], None, asked)

    def by_identity(self, instance: int, lane: int, seq: int, attempt: int | None, asked: str) -> Trace:
        if lane >= 2**32 or instance >= 2**32:
            raise UsageError(f"{asked!r}: instance and lane are below {2**32}", hint=EXAMPLES)
        bucket = self._bucket_of_lane(lane)
        own = (pc.field("instance") == instance) & (pc.field("lane") == lane) & (pc.field("seq") == seq)
        if attempt is not None:
            own = own & (pc.field("attempt") == attempt)
        sends = self._read("sends", bucket, own)
        log = self._read("log", bucket, own & (pc.field("check") == int(Check.OK)))
        events = self._read("deliveries", bucket, own & (pc.field("event") == int(Event.DELIVER)))
        if not sends and not log and not events:
            raise self._not_found(instance, lane, seq, bucket, asked)
        name = f"{instance}/{lane}/{seq}" + ("" if attempt is None else f".{attempt}")
        made_sends = tuple(self._send(row) for row in sorted(sends, key=lambda r: r["attempt"]))
        return Trace(
            run_id=self._context.run_id,
            message=name,
            asked=words.plain(asked),
            lane=self._context.lane_text(lane),
            producer=self._producer(instance),
            sends=made_sends,
            log=tuple(self._stored(row, bucket) for row in sorted(log, key=_in_log_order)),
            log_text=self._log_text(lane, sends),
            deliveries=tuple(self._delivered(row, bucket) for row in sorted(events, key=lambda r: r["t_ns"])),
            faults=self._faults(made_sends),
            classes=self._classes(f"{instance}/{lane}/{seq}"),
        )

    # -- reading

    def _read(self, table: str, bucket: int, where: Any) -> list[dict[str, Any]]:
        path = self._run.bucket_file(table, bucket)
        self._require_whole(bucket)
        if not path.exists():
            return []
        try:
            # partitioning=None: the folder's "bucket=NN" is no column
            found: list[dict[str, Any]] = pq.read_table(path, filters=where, partitioning=None).to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise UsageError(
                f"cannot read {path}: {words.plain(str(error))}", hint="`brokerstorm analyze` seals it again"
            ) from error
        return found

    def _require_whole(self, bucket: int) -> None:
        """Raise UsageError when a file of the bucket is not the one that was sealed; looked at once."""
        if bucket in self._whole:
            return
        if damage := damaged_files(str(self._run.root), bucket, self._checksums):
            raise UsageError(f"the capture is damaged: {damage[0]}", hint="bring the file back from a copy")
        self._whole.add(bucket)

    def _read_first(self, table: str, buckets: Sequence[int], where: Any) -> list[dict[str, Any]]:
        """Rows of the first bucket that has any."""
        return next((rows for bucket in buckets if (rows := self._read(table, bucket, where))), [])

    def _bucket_of_lane(self, lane: int) -> int:
        for group in self._plan["lane_groups"]:
            if group["first"] <= lane < group["first"] + group["count"]:
                return int(group["buckets"][(lane - group["first"]) % len(group["buckets"])])
        last = max((g["first"] + g["count"] for g in self._plan["lane_groups"]), default=0) - 1
        raise UsageError(f"this run has no lane {lane}: its lanes are 0..{last}", hint=EXAMPLES)

    def _buckets_of_stream(self, stream_text: str) -> list[int]:
        """Where its rows should be, first; then everywhere, for rows that went astray."""
        topic, _, partition = stream_text.rpartition("-")
        own = [
            int(group["buckets"][int(partition) % len(group["buckets"])])
            for group in self._plan["lane_groups"]
            if group["topic"] == topic
        ]
        return list(dict.fromkeys([*own, *range(int(self._plan["buckets"]))]))

    def _stream_id(self, text: str) -> int:
        if text in self._context.streams:
            return self._context.streams.index(text) + 1
        streams = self._context.streams
        raise UsageError(
            f"this run has no stream {words.plain(text)!r}: it has "
            + (f"{streams[0]} .. {streams[-1]}" if len(streams) > 1 else ", ".join(streams) or "none"),
            hint=EXAMPLES,
        )

    # -- rows to words

    def _place(self, row: Mapping[str, Any]) -> str:
        if not row["stream"] or row["position"] < 0:
            return ""
        return f"{self._context.stream_name(row['stream'])}@{_position(row)}"

    def _producer(self, instance: int) -> str:
        known = self._context.instance(instance)
        return " ".join(filter(None, (known.name, f"({known.client})" if known.client else "")))

    def _send(self, row: Mapping[str, Any]) -> SendAttempt:
        seconds = self._context.seconds
        late = Outcome(row["late_outcome"])
        return SendAttempt(
            attempt=row["attempt"],
            kind=Kind(row["kind"]).name.lower().replace("_", "-"),
            t_intended_s=seconds(row["t_intended_ns"]),
            t_start_s=seconds(row["t_start_ns"]),
            t_done_s=seconds(row["t_done_ns"]) if row["t_done_ns"] else None,
            outcome=Outcome(row["outcome"]).name.lower(),
            late_outcome="" if late is Outcome.NONE else late.name.lower(),
            error=words.plain(self._context.names.get(row["error"], "")),
            acked_at=self._place(row),
        )

    def _stored(self, row: Mapping[str, Any], bucket: int) -> Stored:
        t_broker_s = None
        if row["broker_time_ms"] >= 0 and self._wall_ms is not None:
            t_broker_s = (row["broker_time_ms"] - self._wall_ms) / 1000
        return Stored(
            place=self._place(row),
            attempt=row["attempt"],
            check=Check(row["check"]).name.lower().replace("_", " "),
            txn="" if row["txn"] == Txn.NONE else Txn(row["txn"]).name.lower(),
            t_broker_s=t_broker_s,
            around=self._around(row, bucket),
        )

    def _around(self, row: Mapping[str, Any], bucket: int) -> tuple[Neighbour, ...]:
        position = pc.field("position")
        near = (position >= row["position"] - NEIGHBOURS) & (position <= row["position"] + NEIGHBOURS)
        near = near & (pc.field("stream") == row["stream"]) & (pc.field("ledger") == row["ledger"])
        rows = sorted(self._read("log", bucket, near), key=_in_log_order)
        here = next((i for i, r in enumerate(rows) if _in_log_order(r) == _in_log_order(row)), 0)
        made = []
        for i, other in enumerate(rows):
            mark = "!" if i == here else "+" if _same(other, row) else ""
            made.append(Neighbour(position=_position(other), message=_name(other), mark=mark))
        return tuple(made[max(here - NEIGHBOURS, 0) : here + NEIGHBOURS + 1])

    def _delivered(self, row: Mapping[str, Any], bucket: int) -> Delivered:
        commits = self._settled_ns(row, bucket)
        session = self._context.sessions.get(row["session"])
        return Delivered(
            session=row["session"],
            consumer=session.name if session else "",
            subscription=words.plain(self._context.names.get(row["subscription"], "")),
            t_s=self._context.seconds(row["t_ns"]),
            epoch=row["epoch"],
            place=self._place(row),
            redelivery=row["redelivery"],
            check=Check(row["check"]).name.lower().replace("_", " "),
            t_committed_s=self._context.seconds(min(commits)) if commits else None,
        )

    def _settled_ns(self, row: Mapping[str, Any], bucket: int) -> list[int]:
        """When what the session did later settled this delivery."""
        event, after = pc.field("event"), pc.field("ordinal") > row["ordinal"]
        own = after & (pc.field("session") == row["session"])
        if self._context.is_queue[row["stream"]]:
            ends = self._read("deliveries", bucket, own & event.isin([int(e) for e in _ENDS]))
            first = min(ends, key=lambda r: int(r["ordinal"]), default=None)
            return [first["t_ns"]] if first and first["event"] in _ENDS[:2] else []
        own = own & (pc.field("stream") == row["stream"])
        if self._context.has_offsets:
            own = own & (event == int(Event.COMMIT)) & (pc.field("position") > row["position"])
        else:
            own = own & (event == int(Event.ACK_CONFIRMED)) & (pc.field("position") == row["position"])
            own = own & (pc.field("ledger") == row["ledger"]) & (pc.field("batch") == row["batch"])
        return [found["t_ns"] for found in self._read("deliveries", bucket, own)]

    def _log_text(self, lane: int, sends: Sequence[Mapping[str, Any]]) -> str:
        """How far the log was read where the message should be."""
        acked = next((row["stream"] for row in sends if row["stream"]), 0)
        expected = int(self._context.lane_stream[lane]) if lane < self._context.n_lanes else 0
        stream = acked or expected
        if not stream:
            return "the client chose the partition and named none"
        bounds = self._context.stream_bounds(stream)
        return f"{self._context.stream_name(stream)}: {self._range(bounds)}"

    def _range(self, bounds: Bounds) -> str:
        if bounds.remaining:
            return f"{bounds.read_to:,} messages remained in the queue, which keeps no log"
        if self._context.has_offsets:
            return f"the audit read {_range(bounds)}"
        told = "its end" if bounds.is_complete else f"of {bounds.end:,} ({bounds.why})"
        return f"the audit read {bounds.read_to:,} messages, {told}"

    def _faults(self, sends: Sequence[SendAttempt]) -> tuple[FaultNear, ...]:
        if not sends:
            return ()
        begin = min(send.t_start_s for send in sends) - NEAR_S
        end = max(send.t_done_s if send.t_done_s is not None else send.t_start_s for send in sends) + NEAR_S
        made = [self._fault(f) for f in read_faults(self._run.faults) if f.inject_ns is not None]
        return tuple(f for f in made if f.t_s <= end and (f.until_s is None or f.until_s >= begin))

    def _fault(self, record: FaultRecord) -> FaultNear:
        seconds = self._context.seconds
        return FaultNear(
            id=record.id,
            kind=record.kind,
            target=words.plain(record.target),
            t_s=seconds(record.inject_ns or 0),
            until_s=None if record.end_ns is None else seconds(record.end_ns),
            effective=record.effective,
        )

    def _classes(self, message: str) -> tuple[str, ...]:
        """Classes of result.json with this message among the witnesses shown; it may be in more."""
        if not self._run.result.exists():
            return ()
        findings = read_json(self._run.result).get("findings", [])
        named = [
            f"{finding['class']} ({finding['status']})"
            for finding in findings
            for witness in finding.get("witnesses", [])
            if witness["message"].partition(".")[0] == message
        ]
        return tuple(dict.fromkeys(named))

    def _unreadable(self, row: Mapping[str, Any], asked: str) -> Trace:
        """A row whose header is not one of this run's: there is a place and nothing else."""
        bucket = self._bucket_holding(row)
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

    def _bucket_holding(self, row: Mapping[str, Any]) -> int:
        return self._buckets_of_stream(self._context.stream_name(row["stream"]))[0]

    def _not_found(self, instance: int, lane: int, seq: int, bucket: int, asked: str) -> UsageError:
        own = (pc.field("instance") == instance) & (pc.field("lane") == lane)
        sent = [(row["seq"], row["attempt"]) for row in self._read("sends", bucket, own)]
        text = words.plain(asked)
        if attempts := [attempt for number, attempt in sent if number == seq]:
            return UsageError(
                f"{text} was never sent: of {instance}/{lane}/{seq} the last attempt was {max(attempts)}",
                hint=f"{instance}/{lane}/{seq} shows all of its attempts",
            )
        if sent:
            last, _ = max(sent)
            return UsageError(
                f"{text} was never sent: {instance}/{lane} sent seq 0..{last}",
                hint=f"the last one is {instance}/{lane}/{last}",
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


def _in_log_order(row: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(row[key]) for key in ("stream", "ledger", "position", "batch"))


def _position(row: Mapping[str, Any]) -> str:
    return place_text(row["position"], row["ledger"], row["batch"])


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a["check"] == Check.OK and all(a[key] == b[key] for key in ("instance", "lane", "seq"))


def _name(row: Mapping[str, Any]) -> str:
    if row["check"] != Check.OK:
        return Check(row["check"]).name.lower().replace("_", " ")
    if row["kind"] == Kind.PROBE:
        return "probe"
    resent = f".{row['attempt']}" if row["attempt"] else ""
    return f"{row['instance']}/{row['lane']}/{row['seq']}{resent}"


def _wall_ms(manifest: Mapping[str, Any]) -> float | None:
    """Wall clock of the start of load, ms since 1970."""
    try:
        return datetime.fromisoformat(str(manifest["epoch_wall"])).timestamp() * 1000
    except (KeyError, ValueError):
        return None
