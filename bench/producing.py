"""One producer worker on a fresh topic, started as a run starts it, and what it took."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.clusters.kafka import KafkaCluster
from harness.protocols import TopicSettings
from harness.worker_process import WorkerProcess
from harness.workers import launch, load_worker

PARTITIONS = 12
WARM_UP_S = 2.0
#: What every client gets: durable, and batches as large as the load fills.
CONFLUENT_OPTIONS = {"acks": "all", "enable.idempotence": "true", "linger.ms": "10"}


@dataclass(frozen=True, slots=True)
class Sample:
    """A producer's load phase. ``cpu_us`` is CPU time of the whole process a message."""

    sent: int
    ok: int
    rate_per_s: float
    cpu_us: float
    late_max_ms: float


def fresh_topic(cluster: KafkaCluster) -> str:
    """A new topic that works: leaders, replicas, a probe through every partition."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    cluster.admin.create_topics([TopicSettings(name, PARTITIONS, 3, {"min.insync.replicas": "2"})])
    cluster.admin.wait_ready([name], timeout_s=60, run_tag=1)
    return name


def run_producer(
    cluster: KafkaCluster, folder: Path, *, rate: float, seconds: float, payload: int, capture: bool
) -> Sample:
    """Warm up, send for ``seconds``, drain; the numbers are those of the load phase.

    Raises:
        WorkerError: the worker did not start.
        RuntimeError: it did not end in time.
    """
    topic = fresh_topic(cluster)
    group = {"topic": topic, "mode": "partition", "first": 0, "count": PARTITIONS, "partitions": PARTITIONS}
    spec: dict[str, Any] = {
        "protocol": 1,
        "run_id": "bench",
        "run_tag": 1,
        "role": "producer",
        "name": folder.name,
        "capture_dir": str(folder),
        "bootstrap": cluster.bootstrap,
        "streams": {f"{topic}-{p}": p + 1 for p in range(PARTITIONS)},
        "client": {"library": "confluent-kafka", "version": "", "options": CONFLUENT_OPTIONS},
        "producer": {
            "instance": 1, "lane_groups": [group], "rate_per_s": rate, "payload_bytes": payload,
            "when_full": "wait", "warm_up_s": WARM_UP_S, "load_s": seconds, "call_deadline_s": 60,
            "capture": capture,
        },
    }  # fmt: skip
    stats: list[dict[str, Any]] = []
    worker = WorkerProcess(
        folder.name, "producer", spec, folder,
        on_message=lambda _, message: stats.append(message) if message["type"] == "stats" else None,
    )  # fmt: skip
    argv, env = launch(load_worker("confluent-kafka"))
    worker.start(argv, env)
    try:
        worker.wait_ready(30)
        t0_ns = time.monotonic_ns() + 200_000_000
        worker.tell(f"start {t0_ns}")
        time.sleep(WARM_UP_S + seconds + 0.3)
        worker.tell(f"drain {time.monotonic_ns() + 60 * 10**9}")
        if not worker.wait_done(70):
            raise RuntimeError(f"the producer did not end: {worker.why()}")
    finally:
        worker.stop()
        cluster.admin.delete_topics([topic])
    return _sample(stats, t0_ns + int(WARM_UP_S * 1e9), t0_ns + int((WARM_UP_S + seconds) * 1e9))


def _sample(stats: list[dict[str, Any]], begin_ns: int, end_ns: int) -> Sample:
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
