"""Measures what is left of compressible messages in a Kafka broker's log, codec by codec.

    python -m bench.codecs [--client confluent-kafka] [--rate 3000] [--seconds 4]

One producer with `linger` of 40 ms and 6 partitions, payloads of 1,000 bytes, for each codec and
share of zeros. The figure is the size of a replica's log divided by the bytes of the payloads.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.arms import cluster_of
from harness.contract.rig import CheckPlace, Rig
from harness.workers import load_worker

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
#: Thousandths of a message that are zeros; None = the filling of loads that say nothing.
SHARES: Final = (None, 0, 300, 600, 900)
_PAYLOAD_BYTES: Final = 1000


def stored_bytes(cluster: Any, topic: str) -> float:
    """Return the log size of one replica of a topic, in bytes."""
    files = Path(cluster.runtime.folder).rglob(f"{topic}-*/*.log")
    return sum(path.stat().st_size for path in files) / 3


def measure(client: str, rate: float, seconds: float) -> Iterator[tuple[str, int | None, float]]:
    """Codec, share of zeros, and the part of the bytes that is stored."""
    worker = load_worker(client)
    with cluster_of("kafka") as (cluster, root):
        for codec in CODECS:
            for share in SHARES:
                rig = Rig(CheckPlace(cluster, root / f"{codec}-{share}"), worker)
                topic = rig.topic()
                empty = stored_bytes(cluster, topic)  # a probe in each partition
                asked = {} if share is None else {"payload_compressible": share}
                options = {"compression.type": codec, "linger.ms": "40", "acks": "all"}
                try:
                    producer = rig.producer(
                        topic,
                        rate=rate,
                        load_s=seconds,
                        payload=_PAYLOAD_BYTES,
                        options=options,
                        asked=asked,
                    ).send_all()
                finally:
                    rig.close()
                sent = len(producer.sends) * _PAYLOAD_BYTES
                yield codec, share, (stored_bytes(cluster, topic) - empty) / sent
                cluster.admin.delete_topics([topic])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--client", default="confluent-kafka")
    parser.add_argument("--rate", type=float, default=3000)
    parser.add_argument("--seconds", type=float, default=4)
    given = parser.parse_args()
    print("codec    zeros    stored")
    for codec, share, part in measure(given.client, given.rate, given.seconds):
        shown = "unsaid" if share is None else f"{share / 10:.0f} %"
        print(f"{codec:8} {shown:>6} {part:>8.1%}", flush=True)


if __name__ == "__main__":
    main()
