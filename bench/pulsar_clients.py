"""Our unlimited Pulsar Java worker against pulsar-perf, Pulsar's own load tool, interleaved on one
cluster.

    python -m bench.pulsar_clients [--rounds 3] [--topics 100] [--seconds 20] [--json]

Both send from one thread over one connection a broker, a producer a topic, 150-byte payloads,
batches of at most 5 ms, 1,000 messages pending a topic, no send timeout, the same flags of the JVM.
pulsar-perf (org.apache.pulsar.testclient of the brokers' own version) counts; ours records every
send. Each arm has fresh topics in a namespace of its own. Rates are from the seconds after the
warm-up. The brokers share the machine's cores with the tool, so the CPU time a message is the
steadier figure.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import psutil

from bench.arms import cluster_of, interleaved
from bench.producing import Sample, bench_spec, nodes_cpu_s, producer_part, sample_of, start
from harness.contracts.worker import ClientPart, LanePart, ProcessSpec
from harness.protocols.cluster import TopicSettings
from harness.systems.pulsar.assembly import PulsarCluster
from harness.toolchains import jars as artifacts
from harness.toolchains.java import find_java

#: pulsar-perf tells its counts every 10 s, the first time when its warm-up is over.
WARM_UP_S = 10.0
PENDING = 1000
BATCH_MS = 5
#: What pulsar-perf gets from its own arguments, in the client's words.
JAVA = "pulsar-client-java"
OPTIONS = {
    JAVA: {
        "batchingMaxPublishDelayMicros": "{ms}000",
        "maxPendingMessages": str(PENDING),
        "blockIfQueueFull": "true",
        "memoryLimitBytes": "0",
        "sendTimeoutMs": "0",
        "numIoThreads": "1",
    },
    "pulsar-client": {
        "batching_enabled": "true",
        "batching_max_publish_delay_ms": "{ms}",
        "max_pending_messages": str(PENDING),
        "block_if_queue_full": "true",
        "send_timeout_millis": "0",
    },
}
#: More than any client can: pulsar-perf has no word for "unlimited".
PERF_RATE = 10_000_000
_OPENED = (
    "java.base/sun.net",
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
)
_PRODUCED = re.compile(r"Throughput produced:\s+(\d+) msg")


class Arms:
    """The two tools on one cluster."""

    def __init__(
        self, cluster: PulsarCluster, folder: Path, *, topics: int, seconds: float, payload: int
    ):
        self.cluster = cluster
        self.folder = folder
        self.names = [f"bench-{number}" for number in range(topics)]  # as pulsar-perf calls them
        self.seconds = seconds
        self.payload = payload

    @contextmanager
    def _fresh_topics(self) -> Iterator[str]:
        """A namespace with every topic in it, owned and probed."""
        admin = self.cluster.admin
        namespace = f"public/bench-{uuid.uuid4().hex[:8]}"
        admin.enter_namespace(namespace)
        try:
            admin.create_topics([TopicSettings(name, 1, 1) for name in self.names])
            admin.wait_ready(self.names, timeout_s=60, run_tag=1)
            yield f"persistent://{namespace}"
        finally:
            admin.drop_namespace(namespace)

    def ours(self, library: str = JAVA, *, rate: float = 0, delay_ms: int = BATCH_MS) -> Sample:
        """Raises: RuntimeError, WorkerError: it did not start or end."""
        folder = self.folder / f"ours-{time.monotonic_ns()}"
        with self._fresh_topics() as where:
            worker, stats = start(self._spec(folder, where, library, rate, delay_ms))
            try:
                worker.wait_ready(60)
                t0_ns = time.monotonic_ns() + 200_000_000
                worker.tell(f"start {t0_ns}")
                time.sleep(WARM_UP_S + 0.2)
                before_s = nodes_cpu_s(self.cluster)
                time.sleep(self.seconds)
                brokers_s = nodes_cpu_s(self.cluster) - before_s
                time.sleep(0.1)
                worker.tell(f"drain {time.monotonic_ns() + 60 * 10**9}")
                if not worker.wait_done(70):
                    raise RuntimeError(f"the producer did not end: {worker.why()}")
            finally:
                worker.stop()
        begin_ns = t0_ns + int(WARM_UP_S * 1e9)
        sample = sample_of(stats, begin_ns, begin_ns + int(self.seconds * 1e9))
        return replace(sample, brokers_cpu_us=brokers_s / (sample.rate_per_s * self.seconds) * 1e6)

    def _spec(
        self, folder: Path, where: str, library: str, rate: float, delay_ms: int
    ) -> ProcessSpec:
        options = {
            name: value.replace("{ms}", str(delay_ms)) for name, value in OPTIONS[library].items()
        }
        lanes = [
            LanePart(topic=name, mode="partition", first=0, count=1, partitions=1)
            for name in self.names
        ]
        client = ClientPart(library=library, version=self._version(library), options=options)
        part = producer_part(lanes, rate, self.seconds, self.payload, warm_up_s=WARM_UP_S)
        addresses = {name: f"{where}/{name}" for name in self.names}
        return bench_spec(
            "pulsar",
            folder,
            self.cluster.bootstrap,
            self.cluster.admin_url,
            addresses,
            1,
            client,
            part,
        )

    def _version(self, library: str) -> str:
        """Return the brokers' version for the Java client; empty = the default."""
        return self.cluster.version if library == JAVA else ""

    def perf(self) -> Sample:
        """Raises: RuntimeError: pulsar-perf failed, or told nothing of the time after the
        warm-up."""
        with self._fresh_topics() as where, (self.folder / "perf.log").open("ab") as log:
            process = subprocess.Popen(
                self._perf_command(where), stdout=subprocess.PIPE, stderr=log, text=True
            )
            try:
                seen = list(_counts(process, time.monotonic() + self.seconds + WARM_UP_S + 60))
            finally:
                process.kill()
                process.wait()
        if len(seen) < 2:
            raise RuntimeError(f"pulsar-perf told {len(seen)} counts; --seconds must be 20 or more")
        (begin_s, first, cpu_before), (end_s, last, cpu_after) = seen[0], seen[-1]
        sent = last - first
        return Sample(
            sent, sent, sent / (end_s - begin_s), (cpu_after - cpu_before) / sent * 1e6, 0.0
        )

    def _perf_command(self, where: str) -> list[str]:
        jars = artifacts.resolve(self.cluster.runtime.spec.artifacts, offline=True)
        return [
            find_java(17).path, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            *(f"--add-opens={place}=ALL-UNNAMED" for place in _OPENED),
            "-cp", f"{jars}/*", "org.apache.pulsar.testclient.PulsarPerfTestTool", "/dev/null", "produce",
            "--service-url", self.cluster.bootstrap, "--admin-url", self.cluster.admin_url.split(",")[0],
            "--rate", str(PERF_RATE), "--size", str(self.payload), "--num-topics", str(len(self.names)),
            "--batch-time-window", str(BATCH_MS), "--max-outstanding", str(PENDING),
            "--test-duration", str(int(WARM_UP_S + self.seconds + 3)),
            f"{where}/bench",
        ]  # fmt: skip


def _counts(process: subprocess.Popen[str], deadline: float) -> Iterator[tuple[float, int, float]]:
    """(time, messages so far, CPU seconds so far) at each line in which pulsar-perf tells its
    rate."""
    assert process.stdout is not None
    usage = psutil.Process(process.pid)
    for line in process.stdout:
        found = _PRODUCED.search(line)
        if found and int(found[1]):
            times = usage.cpu_times()
            yield time.monotonic(), int(found[1]), times.user + times.system
        if time.monotonic() > deadline:
            raise RuntimeError("pulsar-perf does not end")


def measure(args: argparse.Namespace) -> dict[str, list[Sample]]:
    """Samples by tool."""
    with cluster_of("pulsar") as (cluster, root):
        both = Arms(cluster, root, topics=args.topics, seconds=args.seconds, payload=args.payload)
        arms = [("brokerstorm", both.ours), ("pulsar-perf", both.perf)]
        return interleaved(
            args.rounds,
            arms,
            lambda s: f"{s.rate_per_s:>10,.0f}/s {s.cpu_us:>6.1f} us of CPU a message",
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--payload", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    found = measure(args := parser.parse_args())
    pairs = list(zip(found["brokerstorm"], found["pulsar-perf"], strict=True))
    document = {
        "rate_per_s": {
            name: round(median(s.rate_per_s for s in all_)) for name, all_ in found.items()
        },
        "cpu_us": {name: round(median(s.cpu_us for s in all_), 1) for name, all_ in found.items()},
        "ratio_to_pulsar_perf": round(median(a.rate_per_s / b.rate_per_s for a, b in pairs), 3),
    }
    if args.json:
        print(json.dumps(document))
        return
    for name, samples in found.items():
        rate, cpu = median(s.rate_per_s for s in samples), median(s.cpu_us for s in samples)
        print(f"{name:<12} {rate:>10,.0f}/s {cpu:>6.1f} us of CPU a message")
    print(f"ratio        {document['ratio_to_pulsar_perf']:>10.2f}x")


if __name__ == "__main__":
    main()
