"""Drives one worker by the protocol, as the harness does, and reads what it left."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from harness.clusters.kafka import KafkaCluster
from harness.protocols.cluster import TopicSettings
from harness.records import RAW, TABLE_NAMES, VALID_FIELD, TableId
from harness.run.worker_process import WorkerProcess
from harness.workers import launch, load_worker

RUN_TAG = 0xB0B5
LINGER = {
    "confluent-kafka": {"linger.ms": "50"},
    "kafka-clients": {"linger.ms": "50"},
    "kafka-python": {"linger_ms": "50"},
    "sarama": {"Producer.Flush.Frequency": "50ms"},
}
PARTITIONS = 6
Rows = npt.NDArray[np.void]


class Worker(WorkerProcess):
    """A started worker that remembers every line it said."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.said: list[dict[str, Any]] = []
        super().__init__(
            spec["name"], spec["role"], spec, Path(spec["capture_dir"]),
            on_message=lambda _worker, message: self.said.append(message),
        )  # fmt: skip
        argv, env = launch(load_worker(spec["client"]["library"]), spec["client"]["version"])
        self.start(argv, env)

    def wait_stats(self, wanted: Any, timeout_s: float = 20) -> dict[str, Any]:
        """The first stats line for which ``wanted(stats)`` holds."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.is_alive:
            if self.stats and wanted(self.stats):
                return self.stats
            time.sleep(0.05)
        raise AssertionError(f"not seen within {timeout_s} s; last stats {self.stats}, errors {self.errors}")

    def wait_end(self, timeout_s: float = 20) -> int:
        """Exit code."""
        assert self._wait_exit(timeout_s), f"{self.name} still runs; it said {self.said[-3:]}"
        assert self.exit_code is not None
        return self.exit_code

    def rows(self, table: TableId) -> Rows:
        """All written rows of a table, segment after segment."""
        files = sorted(self.folder.glob(f"{TABLE_NAMES[table]}-*.seg"))
        parts = [np.fromfile(path, RAW[table], offset=64) for path in files]
        rows = np.concatenate(parts) if parts else np.empty(0, RAW[table])
        return rows[rows[VALID_FIELD[table]] != 0]

    def names(self) -> dict[int, tuple[str, str]]:
        lines = (self.folder / "names.jsonl").read_text().splitlines()
        return {row["id"]: (row["kind"], row["text"]) for row in map(json.loads, lines)}

    def errors_of(self, rows: Rows) -> set[str]:
        names = self.names()
        return {names[int(number)][1] for number in np.unique(rows["error"]) if number}

    def bounds(self) -> dict[str, dict[str, Any]]:
        lines = (self.folder / "log_bounds.jsonl").read_text().splitlines()
        return {row["stream"]: row for row in map(json.loads, lines)}


class Rig:
    """Makes topics and workers on one cluster; ends every worker it made."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.workers: list[Worker] = []

    def topic(self, *, replication: int = 3, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        settings = {"min.insync.replicas": str(min(2, replication)), **config}
        self.cluster.admin.create_topics([TopicSettings(name, PARTITIONS, replication, settings)])
        deadline = time.monotonic() + 60
        for node in self.cluster.runtime.nodes:  # clients ask any of them
            while not _knows(str(node.client), name):
                assert time.monotonic() < deadline, f"{node.name} does not learn of {name}"
                time.sleep(0.1)
        return name

    def describe(self, topic: str) -> dict[str, Any]:
        """What a spec says of the system and the topic."""
        return {
            "system": "kafka",
            "topics": {topic: {"address": topic, "partitions": PARTITIONS}},
            "streams": {f"{topic}-{p}": p + 1 for p in range(PARTITIONS)},
        }

    def start(
        self,
        role: str,
        library: str,
        topic: str,
        part: dict[str, Any],
        *,
        name: str = "",
        options: Mapping[str, str] | None = None,
        folder: Path | None = None,
        bootstrap: str = "",
        version: str = "",
    ) -> Worker:
        name = name or f"{role}-{len(self.workers) + 1}"
        spec = {
            "protocol": 1,
            "run_id": "contract",
            "run_tag": RUN_TAG,
            "role": role,
            "name": name,
            "capture_dir": str(folder or self.folder / name),
            **self.describe(topic),
            "bootstrap": bootstrap or self.cluster.bootstrap,
            "client": {"library": library, "version": version, "options": dict(options or {})},
            role: part,
        }
        worker = Worker(spec)
        self.workers.append(worker)
        return worker

    def producer(
        self,
        library: str,
        topic: str,
        *,
        rate: float = 2000,
        warm_up_s: float = 0.5,
        load_s: float = 1.5,
        mode: str = "partition",
        count: int = PARTITIONS,
        payload: int = 150,
        payload_max: int = 0,
        threads: int = 1,
        when_full: str = "wait",
        capture: bool = True,
        results: str = "checked",
        calls: str = "async",
        batch: int = 1,
        options: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Worker:
        # a broker answers a connection's requests one by one: many tiny ones take long on a busy machine
        options = {**LINGER.get(library, {}), **(options or {})}
        group = {"topic": topic, "mode": mode, "first": 0, "count": count, "partitions": PARTITIONS}
        part = {
            "instance": len(self.workers) + 1,
            "lane_groups": [group],
            "rate_per_s": rate,
            "payload_bytes": payload,
            "payload_max_bytes": payload_max or payload,
            "threads": threads,
            "when_full": when_full,
            "results": results,
            "calls": calls,
            "batch": batch,
            "warm_up_s": warm_up_s,
            "load_s": load_s,
            "call_deadline_s": 60,
            "capture": capture,
        }
        return self.start("producer", library, topic, part, options=options, **more)

    def consumer(
        self, library: str, topic: str, *, group: str = "", how: Mapping[str, Any] | None = None, **more: Any
    ) -> Worker:
        """``how``: further keys of a consumer (receive, settle, work_s ...)."""
        part = {
            **(how or {}),
            "session": len(self.workers) + 1,
            "group": group or f"g-{topic}",
            "topics": [topic],
            "commit_every_s": 0.3,
        }
        return self.start("consumer", library, topic, part, **more)

    def auditor(
        self, topic: str, *, isolation: str = "read_uncommitted", stall_s: float = 5, **more: Any
    ) -> Worker:
        streams = [f"{topic}-{p}" for p in range(PARTITIONS)]
        part = {"reader": 1, "streams": streams, "isolation": isolation, "stall_s": stall_s}
        return self.start("audit", "confluent-kafka", topic, part, **more)

    def audit(self, topic: str, **more: Any) -> Worker:
        """A whole audit, from start to done."""
        worker = self.auditor(topic, **more)
        worker.wait_ready(20)
        worker.tell("start 1")
        assert worker.wait_done(40), worker.said[-3:]
        assert worker.wait_end() == 0
        return worker

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()


def _knows(address: str, topic: str) -> bool:
    """Whether this broker tells clients of a leader for every partition."""
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        partitions = client.list_topics(topic, timeout=5).topics[topic].partitions
    except KafkaException:
        return False
    return len(partitions) == PARTITIONS and all(p.leader >= 0 for p in partitions.values())


def begin(worker: Worker) -> int:
    """Wait for ready and start it; returns t0."""
    worker.wait_ready(25)
    t0_ns = time.monotonic_ns() + 100_000_000
    worker.tell(f"start {t0_ns}")
    return t0_ns


def finish(worker: Worker, *, drain_s: float = 60) -> None:
    """Drain and end a producer; it must say done and exit with 0."""
    worker.tell(f"drain {time.monotonic_ns() + int(drain_s * 1e9)}")
    assert worker.wait_done(drain_s + 5), worker.said[-3:]
    assert worker.wait_end() == 0


def whole_run(worker: Worker) -> Worker:
    """Start a producer, let it send its whole schedule, drain it."""
    part = worker.spec["producer"]
    seconds = part["warm_up_s"] + part["load_s"]
    end_ns = begin(worker) + int(seconds * 1e9)
    if part["rate_per_s"]:
        worker.wait_stats(lambda stats: stats["attempted"] >= seconds * part["rate_per_s"], seconds + 60)
    else:
        worker.wait_stats(lambda stats: stats["t_ns"] > end_ns, seconds + 60)
    finish(worker)
    return worker


def sizes_of(rows: Rows, instance: int, least: int, most: int) -> list[int]:
    """The size of each message as docs/worker-protocol.md has it (SplitMix64 of instance, lane and seq)."""
    found = []
    for lane, seq in zip(rows["lane"].tolist(), rows["seq"].tolist(), strict=True):
        mixed = ((seq + 1) * 0x9E3779B97F4A7C15 + (instance << 32 | lane)) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        found.append(least + ((mixed ^ mixed >> 31) >> 32) * (most - least + 1) // 2**32)
    return found


def dense(rows: Rows) -> bool:
    """Sequences are 0, 1, 2 ... in every lane, in the order of the rows."""
    lanes: Iterable[Any] = np.unique(rows["lane"])
    return all(
        np.array_equal(seqs := rows["seq"][rows["lane"] == lane], np.arange(len(seqs))) for lane in lanes
    )
