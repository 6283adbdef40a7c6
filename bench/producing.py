"""Producer workers on a fresh topic, started as a run starts them, and what it took."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from harness.clusters import BrokerCluster
from harness.connections.security import Security
from harness.contracts.worker import (
    ClientPart,
    LanePart,
    ProcessSpec,
    ProducerPart,
    StatsLine,
    TopicPart,
)
from harness.protocols.cluster import HasNamespaces, TopicSettings
from harness.run.worker_process import Message, WorkerProcess
from harness.systems import SYSTEMS
from harness.systems.kafka.assembly import KafkaCluster
from harness.workers import launch, load_worker, worker_names
from harness.workers.spec import WorkerSpec

PARTITIONS = 12
WARM_UP_S = 2.0
LINGER_MS = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """A producer's load phase. ``cpu_us`` is CPU time of the whole process a message,
    ``brokers_cpu_us`` that of all nodes together; 0 = not measured."""

    sent: int
    ok: int
    rate_per_s: float
    cpu_us: float
    late_max_ms: float
    brokers_cpu_us: float = 0.0


def producers_of(system: str) -> list[str]:
    """The clients of a system that can be measured."""
    return [name for name in worker_names(system) if "producer" in load_worker(name).roles]


def nodes_cpu_s(cluster: BrokerCluster[Any]) -> float:
    """CPU seconds that the nodes of a cluster have used so far, in all."""
    runtime = cluster.runtime
    pids = [pid for node in runtime.nodes if (pid := runtime.pid(node.name))]
    return sum(
        times.user + times.system for times in (psutil.Process(pid).cpu_times() for pid in pids)
    )


def fresh_topic(cluster: KafkaCluster, partitions: int = PARTITIONS) -> str:
    """A new topic that works: leaders, replicas, a probe through every partition."""
    (name,) = fresh_topics(cluster, partitions)
    return name


def fresh_topics(cluster: BrokerCluster[Any], partitions: int) -> dict[str, str]:
    """New topics that work, by their names in brokerstorm -> the brokers' names for them.

    One topic with so many partitions, with three replicas where brokers keep replicas; on systems
    of queues, so many topics, as a queue has no partitions.
    """
    system, tag = SYSTEMS[cluster.system], uuid.uuid4().int & 0x7FFFFFFF
    names = [f"bench-{tag:08x}"]
    if system.is_queue:
        names = [f"bench-{tag:08x}-{number}" for number in range(partitions)]
    if isinstance(cluster.admin, HasNamespaces):
        cluster.admin.enter_namespace(system.namespace(tag))
    config = {"min.insync.replicas": "2"} if cluster.system == "kafka" else {}
    each = 1 if system.is_queue else partitions
    cluster.admin.create_topics([TopicSettings(name, each, 3, config) for name in names])
    cluster.admin.wait_ready(names, timeout_s=60, run_tag=tag)
    return {name: system.address(name, tag) for name in names}


def run_producer(
    cluster: BrokerCluster[Any],
    folder: Path,
    *,
    rate: float,
    seconds: float,
    payload: int,
    capture: bool,
    producers: int = 1,
    library: str = "confluent-kafka",
    partitions: int = PARTITIONS,
    linger_ms: int = LINGER_MS,
    template: str | None = None,
) -> Sample:
    """Warm up, send for ``seconds``, drain; the numbers are from the load phase.

    Every client gets its own options for: durable, and time to fill a batch. ``producers``: worker
    processes on one topic, each at ``rate``; their numbers are added up. ``template``: what bodies
    are made of; None = payloads are filled.

    Raises:
        WorkerError: a worker did not start.
        RuntimeError: one did not end in time.
    """
    topics = fresh_topics(cluster, partitions)
    each = partitions // len(topics)
    made = load_worker(library, system=cluster.system)
    words = made.contract
    options = {**words.words("durable"), **words.words("linger", ms=linger_ms)}
    client = ClientPart(library=library, version=_version(cluster, made), options=options)
    lanes = [
        LanePart(topic=topic, mode="partition", first=0, count=each, partitions=each)
        for topic in topics
    ]

    def spec(n: int) -> ProcessSpec:
        part = producer_part(lanes, rate, seconds, payload, instance=n, capture=capture)
        part = part.model_copy(update={"payload_template": template})
        place, admin_url = folder / f"p-{n}", cluster.admin_url
        return bench_spec(
            cluster.system, place, cluster.bootstrap, admin_url, topics, each, client, part
        )

    workers = [start(spec(n), cluster.security) for n in range(1, producers + 1)]
    try:
        t0_ns, brokers_s = _send(cluster, [worker for worker, _ in workers], seconds)
    finally:
        for worker, _ in workers:
            worker.stop()
        cluster.admin.delete_topics(list(topics))
    begin_ns, end_ns = (t0_ns + int(s * 1e9) for s in (WARM_UP_S, WARM_UP_S + seconds))
    sample = _together([sample_of(stats, begin_ns, end_ns) for _, stats in workers])
    return replace(sample, brokers_cpu_us=brokers_s / (sample.rate_per_s * seconds) * 1e6)


def _send(
    cluster: BrokerCluster[Any], workers: list[WorkerProcess], seconds: float
) -> tuple[int, float]:
    """Warm-up, load and drain; when the first began, and the CPU seconds of all nodes during the
    load."""
    for worker in workers:
        worker.wait_ready(30)
    t0_ns = time.monotonic_ns() + 200_000_000
    for worker in workers:
        worker.tell(f"start {t0_ns}")
    time.sleep(WARM_UP_S + 0.2)
    before_s = nodes_cpu_s(cluster)
    time.sleep(seconds)
    brokers_s = nodes_cpu_s(cluster) - before_s
    time.sleep(0.1)
    for worker in workers:
        worker.tell(f"drain {time.monotonic_ns() + 60 * 10**9}")
    for worker in workers:
        if not worker.wait_done(70):
            raise RuntimeError(f"the producer did not end: {worker.why()}")
    return t0_ns, brokers_s


def producer_part(
    lanes: list[LanePart],
    rate: float,
    seconds: float,
    payload: int,
    *,
    instance: int = 1,
    capture: bool = True,
    warm_up_s: float = WARM_UP_S,
) -> ProducerPart:
    """A producer that warms up and sends for ``seconds``."""
    return ProducerPart(
        instance=instance,
        lane_groups=lanes,
        rate_per_s=rate,
        payload_bytes=payload,
        payload_max_bytes=payload,
        warm_up_s=warm_up_s,
        load_s=seconds,
        call_deadline_s=60,
        capture=capture,
    )


def bench_spec(
    system: str,
    folder: Path,
    bootstrap: str,
    admin_url: str,
    addresses: Mapping[str, str],
    partitions: int,
    client: ClientPart,
    part: ProducerPart,
) -> ProcessSpec:
    """The spec of a producer on topics of that many partitions each; ``addresses``: by their
    names."""
    streams = [f"{name}-{p}" for name in addresses for p in range(partitions)]
    return ProcessSpec(
        run_id="bench",
        run_tag=1,
        system=system,
        name=folder.name,
        capture_dir=str(folder),
        bootstrap=bootstrap,
        admin_url=admin_url,
        topics={
            name: TopicPart(address=address, partitions=partitions)
            for name, address in addresses.items()
        },
        streams={stream: number for number, stream in enumerate(streams, start=1)},
        client=client,
        producer=part,
    )


def _version(cluster: BrokerCluster[Any], made: WorkerSpec) -> str:
    """Return the brokers' version for Kafka's own client; empty = the default."""
    build = made.java
    return cluster.version if build and build.clients[0].name == "kafka-clients" else ""


def start(
    spec: ProcessSpec, security: Security | None = None
) -> tuple[WorkerProcess, list[StatsLine]]:
    """A started worker, and the list that its stats lines come into."""
    stats: list[StatsLine] = []

    def keep(worker: WorkerProcess, message: Message) -> None:
        if message["type"] == "stats":
            stats.append(worker.stats)

    worker = WorkerProcess(spec, Path(spec.capture_dir), on_message=keep)
    made = load_worker(spec.client.library, system=spec.system)
    argv, env = launch(made, spec.client.version)
    worker.start(argv, env, made.secure_options(security))
    return worker, stats


def _together(samples: list[Sample]) -> Sample:
    sent = sum(sample.sent for sample in samples)
    return Sample(
        sent=sent,
        ok=sum(sample.ok for sample in samples),
        rate_per_s=sum(sample.rate_per_s for sample in samples),
        cpu_us=sum(sample.cpu_us * sample.sent for sample in samples) / sent,
        late_max_ms=max(sample.late_max_ms for sample in samples),
    )


def sample_of(stats: list[StatsLine], begin_ns: int, end_ns: int) -> Sample:
    """Differences between the first and the last stats line within the load phase."""
    inside = [line for line in stats if begin_ns <= line.t_ns <= end_ns]
    first, last = inside[0], inside[-1]
    sent, seconds = last.attempted - first.attempted, (last.t_ns - first.t_ns) / 1e9
    return Sample(
        sent=sent,
        ok=last.ok - first.ok,
        rate_per_s=(last.ok - first.ok) / seconds,
        cpu_us=(last.cpu_s - first.cpu_s) / sent * 1e6,
        late_max_ms=max(line.late_max_ns for line in inside) / 1e6,
    )
