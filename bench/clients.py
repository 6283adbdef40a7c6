"""Our unlimited workers against Kafka's own Java load tools, interleaved on one cluster.

    python -m bench.clients [--client confluent-kafka --client ...] [--rounds 3] [--messages
    2000000] [--json]

VerifiableProducer (the producer of Kafka's system tests) writes what became of each message as a
JSON line, so it is the tool of our kind; ProducerPerformance counts only. Ours records every send.
Same cluster, fresh topic each, acks=all and idempotence everywhere, 150-byte payloads, except that
VerifiableProducer cannot make messages larger than a number: its own are some 7 bytes. So ours is
also run with its smallest payload, 52 bytes, and the first client with two processes on the topic.
kafka-clients is the client of the tools. Rates leave out start-up (each tool's own clock). Target:
at least 1x VerifiableProducer.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench.arms import cluster_of, interleaved
from bench.producing import fresh_topic, producers_of, run_producer
from harness.records import MIN_PAYLOAD_BYTES
from harness.systems.kafka.assembly import KafkaCluster
from harness.toolchains import jars
from harness.toolchains.coordinates import Artifacts
from harness.toolchains.java import find_java

CLIENTS = ("confluent-kafka", "kafka-clients")
TOOLS = ("VerifiableProducer", "ProducerPerformance")
OURS_S = 8.0
TIMEOUT_S = 300.0


def tool_classpath(version: str) -> str:
    """Jars of Kafka's command line tools, from the cache or fetched."""
    coordinates = (
        f"org.apache.kafka:kafka-tools:{version}",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
        "org.apache.logging.log4j:log4j-core:2.25.3",
    )
    folder = jars.resolve(Artifacts(coordinates))
    return f"{folder}/*"


class JavaTools:
    """The command-line producers that come with Kafka."""

    def __init__(self, cluster: KafkaCluster, folder: Path, messages: int, payload: int) -> None:
        self.cluster = cluster
        self.messages = messages
        self.payload = payload
        self.java = [
            find_java(17).path,
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-cp",
            tool_classpath(cluster.version),
        ]
        self.folder = folder

    def _run(self, name: str, *arguments: str) -> str:
        """Run a tool with its output in a file, as one would who wants to keep it; returns its last
        lines."""
        out = self.folder / f"{name}.out"
        with out.open("wb") as file:
            command = [*self.java, f"org.apache.kafka.tools.{name}", *arguments]
            subprocess.run(
                command, stdout=file, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=True
            )
        with out.open("rb") as file:
            file.seek(max(0, out.stat().st_size - 4000))
            tail = file.read().decode(errors="replace")
        out.unlink()
        return tail

    def verifiable(self) -> float:
        """Return the rate of VerifiableProducer, in messages per second."""
        topic = fresh_topic(self.cluster)
        tail = self._run(
            "VerifiableProducer", "--bootstrap-server", self.cluster.bootstrap, "--topic", topic,
            "--max-messages", str(self.messages), "--throughput", "-1", "--acks", "-1",
        )  # fmt: skip
        self.cluster.admin.delete_topics([topic])
        last = json.loads(tail.strip().splitlines()[-1])
        if last["acked"] != self.messages:
            raise RuntimeError(
                f"VerifiableProducer: {last['acked']} of {self.messages} acknowledged"
            )
        return float(last["avg_throughput"])

    def performance(self) -> float:
        """Return the rate of ProducerPerformance, in messages per second."""
        topic = fresh_topic(self.cluster)
        tail = self._run(
            "ProducerPerformance", "--topic", topic, "--num-records", str(self.messages), "--record-size",
            str(self.payload), "--throughput", "-1", "--producer-props",
            f"bootstrap.servers={self.cluster.bootstrap}", "acks=all", "linger.ms=10",
        )  # fmt: skip
        self.cluster.admin.delete_topics([topic])
        found = re.findall(r"([\d.]+) records/sec", tail)
        if not found:
            raise RuntimeError(f"ProducerPerformance said nothing of a rate: {tail[-300:]}")
        return float(found[-1])


def measure(
    clients: Sequence[str], rounds: int, messages: int, payload: int
) -> dict[str, list[float]]:
    """Rates by tool; of the first client also with two processes on the topic."""
    with cluster_of("kafka") as (cluster, root):
        tools = JavaTools(cluster, root, messages, payload)

        def ours(library: str, payload: int = payload, producers: int = 1) -> float:
            return run_producer(
                cluster, root / f"run-{time.monotonic_ns()}", rate=0, seconds=OURS_S, payload=payload,
                capture=True, producers=producers, library=library,
            ).rate_per_s  # fmt: skip

        arms: list[tuple[str, Callable[[], float]]] = [
            *((name, partial(ours, name)) for name in clients),
            *(
                (f"{name}, {MIN_PAYLOAD_BYTES} B", partial(ours, name, MIN_PAYLOAD_BYTES))
                for name in clients
            ),
            (f"{clients[0]}, two", partial(ours, clients[0], producers=2)),
            (TOOLS[0], tools.verifiable),
            (TOOLS[1], tools.performance),
        ]
        return interleaved(rounds, arms, lambda rate: f"{rate:>10,.0f}/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--client", action="append", choices=producers_of("kafka"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--payload", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rates = measure(args.client or CLIENTS, args.rounds, args.messages, args.payload)
    middle = {name: median(values) for name, values in rates.items()}
    ratios = {
        f"{ours} / {tool}": round(
            median(a / b for a, b in zip(rates[ours], rates[tool], strict=True)), 3
        )
        for ours in rates
        for tool in TOOLS
        if ours not in TOOLS
    }
    if args.json:
        print(json.dumps({**{name: round(rate) for name, rate in middle.items()}, **ratios}))
        return
    for name, rate in middle.items():
        print(f"{name:<20} {rate:>10,.0f}/s")
    for name, ratio in ratios.items():
        print(f"{name:<40} {ratio:.2f}x")


if __name__ == "__main__":
    main()
