"""Producer workers on a fresh topic, started as a run starts them, and what it took."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.clusters.kafka import KafkaCluster
from harness.protocols.cluster import TopicSettings
from harness.run.worker_process import WorkerProcess
from harness.workers import launch, load_worker, worker_names

PARTITIONS = 12
WARM_UP_S = 2.0
LINGER_MS = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """A producer's load phase. ``cpu_us`` is CPU time of the whole process a message."""

    sent: int
    ok: int
    rate_per_s: float
    cpu_us: float
    late_max_ms: float


def producers_of(system: str) -> list[str]:
    """The clients of a system that can be measured."""
    return [name for name in worker_names(system) if "producer" in load_worker(name).roles]


def fresh_topic(cluster: KafkaCluster) -> str:
    """A new topic that works: leaders, replicas, a probe through every partition."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    cluster.admin.create_topics([TopicSettings(name, PARTITIONS, 3, {"min.insync.replicas": "2"})])
    cluster.admin.wait_ready([name], timeout_s=60, run_tag=1)
    return name


def run_producer(
    cluster: KafkaCluster,
    folder: Path,
    *,
    rate: float,
    seconds: float,
    payload: int,
    capture: bool,
    producers: int = 1,
    library: str = "confluent-kafka",
) -> Sample:
    """Warm up, send for ``seconds``, drain; the numbers are those of the load phase.

    Every client gets its own options for: durable, and time to fill a batch. ``producers``: worker processes
    on one topic, each at ``rate``; their numbers are added up.

    Raises:
        WorkerError: a worker did not start.
        RuntimeError: one did not end in time.
    """
    topic = fresh_topic(cluster)
    specs = [
        _spec(cluster, topic, folder / f"p-{n}", n, rate, seconds, payload, capture, library)
        for n in range(1, producers + 1)
    ]
    workers = [_start(spec) for spec in specs]
    try:
        for worker, _ in workers:
            worker.wait_ready(30)
        t0_ns = time.monotonic_ns() + 200_000_000
        for worker, _ in workers:
            worker.tell(f"start {t0_ns}")
        time.sleep(WARM_UP_S + seconds + 0.3)
        for worker, _ in workers:
            worker.tell(f"drain {time.monotonic_ns() + 60 * 10**9}")
        for worker, _ in workers:
            if not worker.wait_done(70):
                raise RuntimeError(f"the producer did not end: {worker.why()}")
    finally:
        for worker, _ in workers:
            worker.stop()
        cluster.admin.delete_topics([topic])
    begin_ns, end_ns = (t0_ns + int(s * 1e9) for s in (WARM_UP_S, WARM_UP_S + seconds))
    return _together([sample_of(stats, begin_ns, end_ns) for _, stats in workers])


def _spec(
    cluster: KafkaCluster,
    topic: str,
    folder: Path,
    instance: int,
    rate: float,
    seconds: float,
    payload: int,
    capture: bool,
    library: str,
) -> dict[str, Any]:
    group = {"topic": topic, "mode": "partition", "first": 0, "count": PARTITIONS, "partitions": PARTITIONS}
    words = load_worker(library).contract
    options = {**words.words("durable"), **words.words("linger", ms=LINGER_MS)}
    return {
        "protocol": 1,
        "run_id": "bench",
        "run_tag": 1,
        "system": "kafka",
        "admin_url": "",
        "topics": {topic: {"address": topic, "partitions": PARTITIONS}},
        "role": "producer",
        "name": folder.name,
        "capture_dir": str(folder),
        "bootstrap": cluster.bootstrap,
        "streams": {f"{topic}-{p}": p + 1 for p in range(PARTITIONS)},
        "client": {"library": library, "version": _version(cluster, library), "options": options},
        "producer": {
            "instance": instance, "lane_groups": [group], "rate_per_s": rate, "payload_bytes": payload,
            "when_full": "wait", "results": "checked", "calls": "async", "batch": 1, "warm_up_s": WARM_UP_S,
            "load_s": seconds, "call_deadline_s": 60, "capture": capture, "payload_max_bytes": payload,
            "threads": 1,
        },
    }  # fmt: skip


def _version(cluster: KafkaCluster, library: str) -> str:
    """Of Kafka's own client that of the brokers, else the default."""
    build = load_worker(library).java
    return cluster.version if build and build.clients[0].name == "kafka-clients" else ""


def _start(spec: dict[str, Any]) -> tuple[WorkerProcess, list[dict[str, Any]]]:
    """A started worker, and the list that its stats lines come into."""
    stats: list[dict[str, Any]] = []
    worker = WorkerProcess(
        spec["name"], "producer", spec, Path(spec["capture_dir"]),
        on_message=lambda _, message: stats.append(message) if message["type"] == "stats" else None,
    )  # fmt: skip
    client = spec["client"]
    argv, env = launch(load_worker(client["library"]), client["version"])
    worker.start(argv, env)
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


def sample_of(stats: list[dict[str, Any]], begin_ns: int, end_ns: int) -> Sample:
    """Differences between the first and the last stats line within the load phase."""
    inside = [line for line in stats if begin_ns <= line["t_ns"] <= end_ns]
    first, last = inside[0], inside[-1]
    sent, seconds = last["attempted"] - first["attempted"], (last["t_ns"] - first["t_ns"]) / 1e9
    return Sample(
        sent=sent,
        ok=last["ok"] - first["ok"],
        rate_per_s=(last["ok"] - first["ok"]) / seconds,
        cpu_us=(last["cpu_s"] - first["cpu_s"]) / sent * 1e6,
        late_max_ms=max(line["late_max_ns"] for line in inside) / 1e6,
    )
