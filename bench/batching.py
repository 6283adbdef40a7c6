"""CPU of brokers and producer a message at a fixed rate, by how long the client fills a batch.

    python -m bench.batching kafka [--rate 50000] [--seconds 8] [--rounds 1]
    python -m bench.batching pulsar

A broker pays by the request, so the size of a batch decides: the longer the client waits (linger)
and the fewer partitions there are, the fewer requests. CPU time a message can be compared on a busy
machine too, as long as the rate is held; an arm that did not hold it says so by its rate. kafka:
150 bytes, acks=all, idempotent, three copies. pulsar: 100 topics, one process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from bench.arms import cluster_of, interleaved
from bench.producing import Sample, run_producer
from bench.pulsar_clients import Arms

PAYLOAD = 150
#: Client, linger in ms, partitions. The first is what the ready scenarios had before.
KAFKA_ARMS = (
    ("confluent-kafka", 10, 12),
    ("confluent-kafka", 10, 6),
    ("confluent-kafka", 40, 12),
    ("confluent-kafka", 40, 6),
    ("kafka-clients", 10, 12),
    ("kafka-clients", 40, 6),
)
#: Client, delay in ms, share of the rate: a Python process does not hold all of it.
PULSAR_ARMS = (
    ("pulsar-client-java", 5, 1.0),
    ("pulsar-client-java", 20, 1.0),
    ("pulsar-client-java", 40, 1.0),
    ("pulsar-client", 10, 0.4),
    ("pulsar-client", 40, 0.4),
)


def kafka(args: argparse.Namespace) -> dict[str, list[Sample]]:
    """Samples by arm."""
    with cluster_of("kafka") as (cluster, root):

        def arm(library: str, linger_ms: int, partitions: int) -> Sample:
            return run_producer(
                cluster, root / f"run-{time.monotonic_ns()}", rate=args.rate, seconds=args.seconds,
                payload=PAYLOAD, capture=True, library=library, partitions=partitions, linger_ms=linger_ms,
            )  # fmt: skip

        arms = [
            (
                f"{library}, linger {linger} ms, {partitions}",
                partial(arm, library, linger, partitions),
            )
            for library, linger, partitions in KAFKA_ARMS
        ]
        return interleaved(args.rounds, arms, told)


def pulsar(args: argparse.Namespace) -> dict[str, list[Sample]]:
    """Samples by arm."""
    with cluster_of("pulsar") as (cluster, root):
        both = Arms(cluster, root, topics=100, seconds=args.seconds, payload=PAYLOAD)
        arms: list[tuple[str, Callable[[], Sample]]] = [
            (
                f"{library}, delay {delay} ms",
                partial(both.ours, library, rate=args.rate * share, delay_ms=delay),
            )
            for library, delay, share in PULSAR_ARMS
        ]
        return interleaved(args.rounds, arms, told)


def told(sample: Sample) -> str:
    """One sample in a line; CPU microseconds a message are CPU seconds a million."""
    both = sample.cpu_us + sample.brokers_cpu_us
    return (
        f"{sample.rate_per_s:>9,.0f}/s  brokers {sample.brokers_cpu_us:5.1f}  producer {sample.cpu_us:5.1f}"
        f"  both {both:5.1f} CPU-s a million"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("system", choices=("kafka", "pulsar"))
    parser.add_argument("--rate", type=float, default=50_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    for name, samples in {"kafka": kafka, "pulsar": pulsar}[args.system](args).items():
        both = median(sample.cpu_us + sample.brokers_cpu_us for sample in samples)
        print(f"{name:<40} {both:5.1f} CPU-s a million")


if __name__ == "__main__":
    main()
