"""Measures what TLS and SCRAM cost: the same load on a plain and on a secure Kafka cluster, by
turns.

Both clusters are up all the time. The load is the one of `kafka-quick`: durable, 150 B, batches of
40 ms.

python -m bench.tls_cost [--rate 50000] [--seconds 10] [--rounds 3] [--library confluent-kafka]
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
from functools import partial
from pathlib import Path

from bench.arms import cluster_of, interleaved
from bench.producing import Sample, run_producer
from harness.systems.kafka.assembly import KafkaCluster

PAYLOAD_BYTES, LINGER_MS, TOPIC_PARTITIONS = 150, 40, 6


def told(sample: Sample) -> str:
    """Return the figures of a sample as text."""
    return (
        f"{sample.ok:,} of {sample.sent:,} acknowledged; CPU s per million: brokers "
        f"{sample.brokers_cpu_us:.1f}, client {sample.cpu_us:.1f}; load average {os.getloadavg()[0]:.1f}"
    )


def measure(args: argparse.Namespace) -> dict[str, list[Sample]]:
    """Measure a plain and a secure cluster in turn."""
    numbers = itertools.count()
    with cluster_of("kafka") as (plain, root), cluster_of("kafka", secure=True) as (secure, _):

        def arm(cluster: KafkaCluster, folder: Path) -> Sample:
            return run_producer(
                cluster, folder / str(next(numbers)), rate=args.rate, seconds=args.seconds, capture=True,
                payload=PAYLOAD_BYTES, library=args.library, linger_ms=LINGER_MS, partitions=TOPIC_PARTITIONS,
            )  # fmt: skip

        arms = [("plain", partial(arm, plain, root)), ("TLS and SCRAM", partial(arm, secure, root))]
        return interleaved(args.rounds, arms, told)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=50_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--library", default="confluent-kafka")
    for name, samples in measure(parser.parse_args()).items():
        rate = statistics.median(sample.rate_per_s for sample in samples)
        brokers = statistics.median(sample.brokers_cpu_us for sample in samples)
        client = statistics.median(sample.cpu_us for sample in samples)
        cpu = f"brokers {brokers:5.1f}  client {client:5.1f}  both {brokers + client:5.1f}"
        print(f"{name:<15} {rate:>9,.0f}/s  {cpu}")


if __name__ == "__main__":
    main()
