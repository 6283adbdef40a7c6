"""Makes a `Context` of the small files of a run: their contracts are read here, a task gets none of
them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from analysis.capture.context import (
    ApplicationFacts,
    Context,
    Instance,
    PipelineGroup,
    Promise,
    Reading,
    SessionFacts,
    UnsentCommit,
)
from analysis.capture.deaths import ENDED, Death, deaths
from analysis.capture.hangs import waits_in
from analysis.capture.lives import all_lives
from analysis.capture.transactions import TransactionColumns
from harness.contracts import read_document, read_rows
from harness.contracts.plan import ConsumerPlan, Plan, PromisePlan
from harness.contracts.rows import (
    MOVED,
    UNREAD,
    Bounds,
    CommittedOffset,
    EventRow,
    Leadership,
    Manifest,
    NameRow,
    ReplicaRow,
    Terms,
    TransactionRow,
    WorkerRow,
)
from harness.contracts.seal import SealReport
from harness.faultlog import FaultRecord, closed, read_faults
from harness.rundir import RunDir
from harness.systems import System, system_of

_NS = 1_000_000_000


def load_context(run: RunDir) -> Context:
    """Read the small files of a run.

    Raises:
        UsageError: one of them is missing or damaged.
    """
    sealed = read_document(run.seal_report, SealReport) if run.seal_report.exists() else None
    return context_of(
        read_document(run.plan, Plan),
        read_document(run.manifest, Manifest),
        names=read_rows(run.names, NameRow),
        bounds=read_rows(run.log_bounds, Bounds),
        leaderships=read_rows(run.leaderships, Leadership),
        transactions=read_rows(run.transactions, TransactionRow),
        committed=read_rows(run.committed_offsets, CommittedOffset),
        replicas=read_rows(run.replicas, ReplicaRow),
        faults=read_faults(run.faults),
        events=read_rows(run.events, EventRow),
        damaged=sealed.damaged_workers if sealed else (),
    )


def context_of(
    plan: Plan,
    manifest: Manifest,
    *,
    names: Iterable[NameRow] = (),
    bounds: Iterable[Bounds] = (),
    leaderships: Iterable[Leadership] = (),
    transactions: Iterable[TransactionRow] = (),
    committed: Iterable[CommittedOffset] = (),
    replicas: Iterable[ReplicaRow] = (),
    faults: Iterable[FaultRecord] = (),
    events: Sequence[EventRow] = (),
    damaged: Collection[str] = (),
) -> Context:
    """A context from the documents of a run; ``damaged``: workers whose record has holes."""
    streams = tuple(plan.streams())
    frozen = _frozen(events)
    died = deaths(events)
    by_group = _committed(committed)
    system = system_of(plan.system)
    return Context(
        run_id=manifest.run_id,
        has_offsets=system.has_offsets,
        orders_by_connection=system.orders_by_connection,
        brokers_time_acks=system.brokers_time_acks,
        has_queues_only=all(system.removes_settled(topic.config) for topic in plan.topics),
        term=system.term,
        terms=_terms(leaderships),
        usual_reading=_usual_reading(system),
        streams=streams,
        compacted=frozenset(
            topic.name for topic in plan.topics if system.keeps_last_of_key(topic.config)
        ),
        moves={
            f"{topic.name}-{partition}": moved
            for topic in plan.topics
            for partition in range(topic.partitions)
            if (moved := system.moves_to(topic.config))
        },
        lane_groups=tuple(plan.lane_groups),
        instances=_instances(plan, manifest, damaged, frozen, events, died),
        sessions=_sessions(plan, manifest, damaged, frozen, died, _unsent(plan, events)),
        bounds=_bounds(bounds, damaged),
        names={row.id: row.text for row in names if row.id > len(streams)},
        faults=closed(faults, manifest.last_ns),
        buckets=plan.buckets,
        epoch_ns=manifest.epoch_ns,
        load_start_ns=manifest.epoch_ns,
        load_end_ns=manifest.epoch_ns + round(plan.load_s * _NS),
        end_ns=max(
            (w.t_end_ns for w in manifest.workers if w.role in ("producer", "pipeline")), default=0
        )
        or manifest.last_ns,
        message_bytes=max(plan.payload_bytes, plan.payload_max_bytes),
        stall_ns=round(plan.limits.get("stall", 15.0) * _NS),
        readiness_restored=bool(manifest.readiness_restored),
        drained=bool(manifest.drained),
        unstated=manifest.unstated,
        transactions=TransactionColumns.from_rows(transactions),
        pipelines=tuple(_pipelines(plan, by_group)),
        applications=tuple(_applications(plan, manifest, events, by_group)),
        committed=by_group,
        replicas=tuple(replicas),
        clock_bound_ns=manifest.clock_bound_ns,
    )


Spans = dict[str, tuple[tuple[int, int], ...]]


def _frozen(events: Iterable[EventRow]) -> Spans:
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in events:
        if row.kind == "frozen" and row.frozen_ns:
            spans.setdefault(row.worker, []).append((row.t_ns - row.frozen_ns, row.t_ns))
    return {worker: tuple(sorted(found)) for worker, found in spans.items()}


def _moved(events: Iterable[EventRow]) -> Spans:
    found: dict[str, list[tuple[int, int]]] = {}
    for row in events:
        if row.kind == MOVED and row.since_ns is not None:
            found.setdefault(row.worker, []).append((row.t_ns, row.since_ns))
    return {worker: tuple(sorted(each)) for worker, each in found.items()}


def _instances(
    plan: Plan,
    manifest: Manifest,
    damaged: Collection[str],
    frozen: Spans,
    events: Sequence[EventRow],
    died: Mapping[str, Death],
) -> dict[int, Instance]:
    found = {}
    waiting, moved = waits_in(events), _moved(events)
    repeats = {member.name for member in plan.pipelines if not member.transactional}
    for p in all_lives(plan.producers, manifest.workers):
        worker = manifest.worker("producer", p.instance)
        life_of = worker.life_of or p.name
        found[p.instance] = Instance(
            number=p.instance,
            name=p.name,
            life_of=life_of,
            start_ns=worker.t_start_ns,
            client=_client(p.client, worker),
            promise=_promise(p.promise, exactly_once=life_of not in repeats),
            deadline_ns=round(p.call_deadline_s * _NS),
            complete=_is_whole(worker) and p.name not in damaged,
            end_ns=worker.t_end_ns,
            frozen=frozen.get(p.name, ()),
            moved=moved.get(p.name, ()),
            results=p.results,
            waits_in=waiting.get(p.name, ""),
            died=died.get(p.name),
            says_died=p.says_died,
        )
    return found


def _committed(rows: Iterable[CommittedOffset]) -> dict[str, dict[int, int]]:
    """Group -> stream id -> the position that it had committed in the end."""
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row.group, {})[row.stream_id] = row.position
    return found


def _unsent(plan: Plan, events: Iterable[EventRow]) -> dict[str, list[UnsentCommit]]:
    """Worker -> the commits that its client confirmed and never sent."""
    names = plan.worker_streams
    ids = {name: number for number, name in enumerate(plan.streams(), start=1)}
    found: dict[str, list[UnsentCommit]] = {}
    for row in events:
        if row.kind == "commit-not-sent" and row.position is not None:
            stream = ids.get(names.get(row.stream, row.stream), 0)
            found.setdefault(row.worker, []).append(UnsentCommit(row.t_ns, stream, row.position))
    return found


def _pipelines(plan: Plan, committed: Mapping[str, Mapping[int, int]]) -> Iterator[PipelineGroup]:
    readers = {consumer.session: consumer for consumer in plan.consumers}
    for member in {member.to: member for member in plan.pipelines}.values():
        reader = readers[member.session]
        yield PipelineGroup(
            group=reader.group,
            source=member.source,
            to=member.to,
            instance=member.instance,
            committed_only=reader.promise.committed_only,
            committed=committed.get(reader.group, {}),
        )


def _applications(
    plan: Plan,
    manifest: Manifest,
    events: Sequence[EventRow],
    committed: Mapping[str, Mapping[int, int]],
) -> Iterator[ApplicationFacts]:
    said = {row.worker: row for row in events if row.kind == "application-ended"}
    for each in plan.applications:
        lives = [row for row in manifest.applications if row.application == each.name]
        ends = [(row.t_end_ns, row.instance) for row in lives if row.killed or row.ended_by_itself]
        died = [
            Death(
                row.name, row.t_end_ns, "", said[row.name].text if row.name in said else "", ENDED
            )
            for row in lives
            if row.ended_by_itself and each.restarts == "never"
        ]
        stalled = [
            (row.since_ns or row.t_ns, row.t_ns, row.text)
            for row in events
            if row.kind == "application-stalled" and row.worker == each.name
        ]
        yield ApplicationFacts(
            name=each.name,
            source=each.source,
            to=each.to,
            group=each.group,
            session=each.session,
            makes=each.makes,
            promise=each.promise,
            order=each.order,
            committed=committed.get(each.group, {}),
            drained=bool(lives) and all(row.drained for row in lives),
            ends=tuple(sorted(ends)),
            nameless=manifest.nameless_outputs.get(each.name, 0),
            outputs_read=each.name in manifest.outputs_read,
            died=tuple(died),
            stalled=tuple(stalled),
        )


def _promise(said: PromisePlan, *, exactly_once: bool) -> Promise:
    return Promise(
        delivery=said.delivery,
        order=said.order,
        dedup=said.dedup,
        synced=said.synced,
        exactly_once=exactly_once,
        because=said.because,
        required={name: value for name, value in said.required.items() if value},
    )


def _is_whole(worker: WorkerRow) -> bool:
    """Return whether the capture of a worker is whole: the worker reported it, or SIGKILL or a
    crash ended the worker. Every row is written before the call that it describes.
    """
    return worker.done or worker.killed or worker.crashed


def _client(library: str, worker: WorkerRow) -> str:
    """``kafka-clients 3.9.1``."""
    return " ".join(filter(None, (library, worker.client_version)))


def _sessions(
    plan: Plan,
    manifest: Manifest,
    damaged: Collection[str],
    frozen: Spans,
    died: Mapping[str, Death],
    unsent: Mapping[str, Sequence[UnsentCommit]],
) -> dict[int, SessionFacts]:
    found = {}
    for c in all_lives(plan.consumers, manifest.workers):
        worker = manifest.worker("consumer", c.session)
        death = died.get(c.name)
        ends = [worker.t_end_ns, death.t_ns if death else 0]
        found[c.session] = SessionFacts(
            number=c.session,
            name=c.name,
            life_of=worker.life_of or c.name,
            group=c.group,
            topics=tuple(c.topics),
            complete=_is_whole(worker) and c.name not in damaged,
            end_ns=min(filter(None, ends), default=0),
            committed_only=c.promise.committed_only,
            frozen=frozen.get(c.name, ()),
            start_ns=worker.t_start_ns,
            missed_ns=worker.t_end_ns + round(c.promise.member_timeout_s * _NS)
            if worker.killed
            else 0,
            reading=_reading(c),
            client=_client(c.client, worker),
            died=death if worker.role != "pipeline" else None,  # its other half says so
            says_died=c.says_died and worker.role != "pipeline",
            watches_commits=c.watches_commits,
            unsent=tuple(unsent.get(c.name, ())),
        )
    return found


def _usual_reading(system: System) -> Reading:
    settle = "auto" if system.subscription == "group" else "ack"  # a group commits positions
    return Reading(system.subscription, order=system.order, settle=settle)


def _reading(consumer: ConsumerPlan) -> Reading:
    said = consumer.promise
    return Reading(
        subscription=said.subscription,
        order=said.order,
        settle=consumer.settle,
        ack_timeout_ns=round(said.ack_timeout_s * _NS),
        acks_confirmed=said.acks_confirmed,
        batch_index_acks=said.batch_index_acks,
        nack_delay_ns=None if said.nack_delay_s is None else round(said.nack_delay_s * _NS),
        max_deliveries=said.max_deliveries,
        may_drop=said.may_drop,
        drops=tuple(said.drops),
        starts_latest=said.start == "latest",
        because=said.because,
        unknown=frozenset(said.unknown),
    )


def _terms(rows: Iterable[Leadership]) -> dict[int, Terms]:
    """Stream id -> who led it, in order."""
    found: dict[int, list[Leadership]] = {}
    for row in rows:
        found.setdefault(row.stream_id, []).append(row)
    return {
        stream: tuple(sorted(terms, key=lambda each: each.term)) for stream, terms in found.items()
    }


def _bounds(rows: Iterable[Bounds], damaged: Collection[str]) -> dict[int, Bounds]:
    """Choose the bounds of each stream: among several readers, the one that got furthest counts.
    What a reader reports to have read is worth nothing if some of its rows are gone.
    """
    best: dict[int, Bounds] = {}
    for row in rows:
        bounds = replace(row, read_to=0, why=UNREAD) if row.reader in damaged else row
        if row.stream_id not in best or bounds.read_to > best[row.stream_id].read_to:
            best[row.stream_id] = bounds
    return best
