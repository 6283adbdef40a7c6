"""Plan -> the JSON spec each worker process is started with (docs/worker-protocol.md)."""

from __future__ import annotations

from dataclasses import dataclass

from harness.connections.security import Security
from harness.contracts.plan import ClientPlan, ConsumerPlan, Plan, ProducerPlan
from harness.contracts.rows import PLAIN_KEY
from harness.contracts.worker import (
    AuditPart,
    ClientPart,
    ConsumerPart,
    LanePart,
    PausesPart,
    PipelinePart,
    ProcessSpec,
    ProducerPart,
    SeeksPart,
    TopicPart,
    TransactionsPart,
)
from harness.plan.hours import audit_follows
from harness.plan.profile import spans_ns
from harness.plan.turns import turns_of
from harness.protocols.cluster import Cluster
from harness.rundir import RunDir
from harness.systems import SYSTEMS

#: Workers that read the log after the drain. Two keep both cores of a small machine busy; more
#: streams than readers are spread round-robin.
AUDIT_READERS = 2
#: In the folder of a reader that follows the log, before its `start`.
EPOCHS_FILE = "leader_epochs.json"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a run's workers find the brokers: for clients, and for administration (empty = there is
    none).

    ``security``: what the brokers ask of clients. It is in no spec: those lie in the run folder.
    """

    bootstrap: str
    admin_url: str = ""
    security: Security | None = None

    @classmethod
    def from_cluster(cls, cluster: Cluster) -> Endpoints:
        """The facts of a cluster that workers receive."""
        return cls(cluster.bootstrap, cluster.admin_url, cluster.security)


def _spec(
    plan: Plan,
    run: RunDir,
    name: str,
    where: Endpoints,
    client: ClientPart,
    **part: ProducerPart | ConsumerPart | PipelinePart | AuditPart,
) -> ProcessSpec:
    told = plan.worker_topics
    return ProcessSpec(
        run_id=run.run_id,
        run_tag=plan.run_tag,
        system=plan.system,
        name=name,
        capture_dir=str(run.worker(name)),
        bootstrap=where.bootstrap,
        admin_url=where.admin_url,
        topics={
            told[t.name]: TopicPart(address=t.address or t.name, partitions=t.partitions)
            for t in plan.topics
        },
        streams={stream: number for number, stream in enumerate(plan.worker_streams, start=1)},
        client=client,
        **part,
    )


def _client(planned: ProducerPlan | ConsumerPlan) -> ClientPart:
    return ClientPart(
        library=planned.client, version=planned.client_version, options=planned.options
    )


def client_spec(plan: Plan, run: RunDir, client: ClientPlan, where: Endpoints) -> ProcessSpec:
    """Make the spec of a client's process. A later life of it has another name and other
    numbers."""
    if isinstance(client, ProducerPlan):
        part = _producer_part(plan, client)
        return _spec(plan, run, client.name, where, _client(client), producer=part)
    if isinstance(client, ConsumerPlan):
        return _spec(
            plan, run, client.name, where, _client(client), consumer=_consumer_part(plan, client)
        )
    own = client.name.partition(".")[0]
    writing = next(producer for producer in plan.producers if producer.name == own)
    reading = next(consumer for consumer in plan.consumers if consumer.name == own)
    return _spec(
        plan,
        run,
        client.name,
        where,
        _client(writing),
        producer=_producer_part(plan, writing.model_copy(update={"instance": client.instance})),
        consumer=_consumer_part(plan, reading.model_copy(update={"session": client.session})),
        pipeline=PipelinePart(consumer_options=reading.options),
    )


def _producer_part(plan: Plan, producer: ProducerPlan) -> ProducerPart:
    partitions, told = {topic.name: topic.partitions for topic in plan.topics}, plan.worker_topics
    groups = [plan.lane_groups[index] for index in producer.groups]
    return ProducerPart(
        instance=producer.instance,
        lane_groups=[
            LanePart(
                topic=told[group.topic],
                mode=group.mode,
                first=group.first,
                count=group.count,
                partitions=partitions[group.topic],
                key=group.key if group.key != PLAIN_KEY else None,
            )
            for group in groups
        ],
        turns=turns_of(plan, producer) or None,
        rate_per_s=producer.rate_per_s,
        rate_profile=spans_ns(plan, producer) if plan.profile and producer.rate_per_s else None,
        payload_bytes=plan.payload_bytes,
        payload_max_bytes=plan.payload_max_bytes or plan.payload_bytes,
        payload_sizes=plan.payload_sizes or None,
        payload_compressible=plan.payload_compressible,
        payload_template=plan.payload_template or None,
        payload_charset=plan.payload_charset or None,
        headers=list(producer.headers.items()) or None,
        header_templates=list(producer.header_templates.items()) or None,
        when_full=producer.when_full,
        warm_up_s=plan.warm_up_s,
        load_s=plan.load_s,
        results=producer.results,
        calls=producer.calls,
        batch=producer.batch,
        threads=producer.threads,
        deliver_after_s=producer.deliver_after_s or None,
        transactions=_transactions(plan, producer),
        call_deadline_s=producer.call_deadline_s,
    )


def _transactions(plan: Plan, producer: ProducerPlan) -> TransactionsPart | None:
    """All lives of a client have the same transactional ids, as a restarted application has."""
    if producer.transactions is None:
        return None
    return TransactionsPart(
        id=_transactional_id(plan, producer), **producer.transactions.model_dump()
    )


def _transactional_id(plan: Plan, producer: ProducerPlan) -> str:
    """Return the prefix of a producer's transactional ids; the number of the thread follows."""
    return group_id(plan, producer.name.partition(".")[0])


def group_id(plan: Plan, group: str) -> str:
    """A group's or client's name on the broker: a run never meets the offsets of an earlier one.
    The group of an application that the user starts has no tag: its name is known before."""
    if plan.prefix and any(
        each.runs_elsewhere and each.group == group for each in plan.applications
    ):
        return f"{plan.prefix}-{group}"
    tag = f"{plan.run_tag:08x}"
    shared = plan.prefix and not plan.namespace
    return f"{plan.prefix}-{tag}-{group}" if shared else f"{group}-{tag}"


def coordinated(plan: Plan) -> dict[str, list[str]]:
    """Return the objects that nodes coordinate: ``group:NAME`` or ``transactions:PRODUCER`` ->
    their names at the brokers. All members of a pipeline have the ids of its name.
    """
    names = [
        *(consumer.group for consumer in plan.consumers),
        *(each.group for each in plan.applications),
    ]
    groups = {f"group:{name}": [group_id(plan, name)] for name in names}
    ids: dict[str, list[str]] = {}
    for producer in plan.producers:
        role, _, name = producer.name.partition("-")
        own = [
            f"{_transactional_id(plan, producer)}-{thread}" for thread in range(producer.threads)
        ]
        declared, _, number = name.rpartition("-")
        is_member = role == "pipeline" and number.isdigit()
        for each in (name, declared)[: 1 + is_member] if producer.transactions else ():
            ids.setdefault(f"transactions:{each}", []).extend(own)
    return groups | ids


def _consumer_part(plan: Plan, consumer: ConsumerPlan) -> ConsumerPart:
    return ConsumerPart(
        session=consumer.session,
        group=group_id(plan, consumer.group),
        topics=[plan.worker_topics[topic] for topic in consumer.topics],
        commit_every_s=consumer.commit_every_s,
        receive=consumer.receive,
        work_s=consumer.work_s,
        settle=consumer.settle,
        nack_every=consumer.nack_every,
        per_transaction=consumer.per_transaction,
        rollback_every=consumer.rollback_every,
        pattern=_pattern(plan, consumer),
        reader=consumer.reader or None,
        pauses=PausesPart(**consumer.pauses.model_dump()) if consumer.pauses else None,
        seeks=SeeksPart(**consumer.seeks.model_dump()) if consumer.seeks else None,
    )


def _pattern(plan: Plan, consumer: ConsumerPlan) -> str | None:
    """Of the addresses that the client is to subscribe to; None = it does so by name."""
    if not consumer.pattern:
        return None
    before = SYSTEMS[plan.system].address("", plan.run_tag, plan.prefix)
    return before.replace(".", r"\.") + consumer.pattern


def audit_specs(plan: Plan, run: RunDir, where: Endpoints) -> list[ProcessSpec]:
    """One spec a reader; together they cover every stream once."""
    # `harness.run.outputs` reads those
    written = {application.to for application in plan.applications}
    streams = [
        told
        for told, stream in plan.worker_streams.items()
        if stream.rpartition("-")[0] not in written
    ]
    first = {f"{plan.worker_topics[t.name]}-{p}" for t in plan.topics for p in range(t.partitions)}
    system = SYSTEMS[plan.system]
    library, version = system.audit
    readers = min(AUDIT_READERS, len(streams))
    client = ClientPart(library=library, version=version, options={})
    hides = not system.reads_uncommitted and any(
        producer.transactions for producer in plan.producers
    )
    are_queues = all(system.removes_settled(topic.config) for topic in plan.topics)
    isolation = "remaining" if are_queues else "read_committed" if hides else "read_uncommitted"
    parts = [
        AuditPart(
            reader=reader,
            streams=streams[reader - 1 :: readers],
            isolation=isolation,
            stall_s=plan.limits["audit_stall"],
            follow=audit_follows(plan) or None,
            later=[stream for stream in streams[reader - 1 :: readers] if stream not in first]
            or None,
        )
        for reader in range(1, readers + 1)
    ]
    return [_spec(plan, run, f"audit-{part.reader}", where, client, audit=part) for part in parts]


def audit_again(spec: ProcessSpec, run: RunDir, *, follows: bool = False) -> ProcessSpec:
    """The spec of a reader that reads whole what another one has followed until it died.
    ``follows``: the log still grows."""
    assert spec.audit is not None
    name, follow = f"again-{spec.name}", spec.audit.follow if follows else None
    part = spec.audit.model_copy(
        update={"reader": spec.audit.reader + AUDIT_READERS, "follow": follow}
    )
    return spec.model_copy(
        update={"name": name, "capture_dir": str(run.worker(name)), "audit": part}
    )
