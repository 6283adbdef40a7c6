"""Adds to a traced message what else saw it: events and hangs of its clients, lines of the logs
around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.capture.hangs import KINDS, hang_rows
from analysis.findings import Result, Status, Witness
from analysis.report import words
from analysis.report.trace_model import ClientEvent, Trace
from harness.contracts import read_rows
from harness.contracts.message import MessageId
from harness.contracts.plan import Plan
from harness.contracts.rows import EventRow, Manifest, WorkerRow
from harness.errors import UsageError
from harness.logs import LogLines, RunLogs, Subject
from harness.rundir import RunDir, reading

#: Lines of the logs that are shown of a message.
LOG_LINES = 12
#: Events of its clients that are shown, the nearest, and how near they are.
EVENTS = 8
EVENT_NEAR_S = 5.0
_STREAM = re.compile(r"[A-Za-z0-9][\w.-]*-\d+(?![\w-])")
_OPEN = (Status.VIOLATION, Status.SUSPECT, Status.APPLICATION_ERROR)


def with_witnesses(run: RunDir, found: Trace, most: int) -> Trace:
    """A trace with at most ``most`` lines of logs.

    Raises:
        UsageError: a document of the run is damaged, or a log cannot be read.
    """
    with reading(run):
        logs = RunLogs.read_from(run)
        manifest, plan = logs.manifest, logs.plan
        events = read_rows(run.events, EventRow)
        epoch_ns = manifest.epoch_ns
        workers = _workers_of(found, manifest)
        moments = _moments_s(found)
        places = [send.acked_at for send in found.sends] + [stored.place for stored in found.log]
        subject = Subject(
            moments_ns=[epoch_ns + round(t_s * 1e9) for t_s in moments],
            streams=streams_in([*places, found.lane], plan),
            workers=workers,
            names=found.client_names,
        )
        return replace(
            found,
            events=_events(events, workers, moments, epoch_ns),
            hangs=tuple(hang for hang in hang_rows(events, epoch_ns) if hang.worker in workers),
            logs=_around(logs, subject, most) if moments and most else LogLines(),
        )


def witness_logs(
    run: RunDir, result: Result, most_witnesses: int
) -> dict[tuple[str, float], LogLines]:
    """Return the log lines for the first example messages of each class that counts; see
    `logs_of`."""
    shown = [
        witness
        for finding in result.findings
        if finding.status in _OPEN
        for witness in finding.witnesses[:most_witnesses]
    ]
    return logs_of(run, shown)


def logs_of(run: RunDir, witnesses: Sequence[Witness]) -> dict[tuple[str, float], LogLines]:
    """(message, its time) of witnesses of a run -> lines of the logs around it.

    A report is made whatever the logs are: if they cannot be read, it gives the reason instead.
    """
    shown = [witness for witness in witnesses if witness.t_s]
    if not shown:
        return {}
    try:
        logs = RunLogs.read_from(run)
        return {(w.message, w.t_s): _logs_of(logs, w) for w in shown}
    except UsageError as error:
        return {(w.message, w.t_s): LogLines(why_none=str(error)) for w in shown}


def _logs_of(logs: RunLogs, witness: Witness) -> LogLines:
    name = MessageId.parse(witness.message)
    owners = [
        row.name for row in logs.manifest.workers if _sent(row, name) or row.name in witness.where
    ]
    subject = Subject(
        moments_ns=[logs.manifest.epoch_ns + round(witness.t_s * 1e9)],
        streams=streams_in([witness.where, witness.acked_position], logs.plan),
        workers=owners,
    )
    return _around(logs, subject, LOG_LINES)


def _around(logs: RunLogs, subject: Subject, most: int) -> LogLines:
    """Lines of the logs of a run, timed from the start of load.

    Raises:
        UsageError: a log cannot be read.
    """
    try:
        found = logs.around(subject, most)
    except OSError as error:
        raise UsageError(f"cannot read the log {error.filename}: {error.strerror}") from error
    lines = tuple(
        replace(
            line,
            text=words.plain(line.text),
            said=words.plain(line.said),
            more=tuple(words.frame(text.expandtabs(4)) for text in line.more),
        )
        for line in found.lines
    )
    return replace(found, lines=lines)


def streams_in(texts: Sequence[str], plan: Plan) -> tuple[str, ...]:
    """The streams of a plan that texts name: ``orders-3@41203`` names orders-3."""
    known = set(plan.streams())
    named = (found for text in texts for found in _STREAM.findall(text) if found in known)
    return tuple(dict.fromkeys(named))


def _workers_of(found: Trace, manifest: Manifest) -> tuple[str, ...]:
    name = MessageId.parse(found.message)
    names = [row.name for row in manifest.workers if _sent(row, name)]
    return tuple(dict.fromkeys([*names, *(delivery.consumer for delivery in found.deliveries)]))


def _sent(worker: WorkerRow, name: MessageId | None) -> bool:
    return name is not None and worker.instance == name.instance


def _moments_s(found: Trace) -> list[float]:
    """When something happened to the message."""
    moments: list[float | None] = []
    for send in found.sends:
        moments += [send.t_start_s, send.t_done_s]
    moments += [stored.t_broker_s for stored in found.log]
    moments += [delivery.t_s for delivery in found.deliveries]
    return sorted(moment for moment in moments if moment is not None)


def _events(
    rows: Sequence[EventRow], workers: Sequence[str], moments: Sequence[float], epoch_ns: int
) -> tuple[ClientEvent, ...]:
    """The events nearest to the message, in order of time."""

    def near() -> Iterator[tuple[float, ClientEvent]]:
        for row in rows:
            if row.worker not in workers or row.kind in KINDS:
                continue
            t_s = (row.t_ns - epoch_ns) / 1e9
            away_s = min((abs(t_s - moment) for moment in moments), default=EVENT_NEAR_S + 1)
            if away_s <= EVENT_NEAR_S:
                text, kind = words.plain(row.text), words.plain(row.kind)
                yield away_s, ClientEvent(t_s=t_s, worker=row.worker, kind=kind, text=text)

    nearest = sorted(near(), key=lambda found: found[0])[:EVENTS]
    return tuple(sorted((event for _, event in nearest), key=lambda event: event.t_s))
