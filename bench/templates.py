"""Measures what payloads from a template cost: the highest rate of a client, next to plain
payloads.

    python -m bench.templates [--clients kafka-clients franz-go] [--seconds 6] [--turns 3]

Both kinds take turns on one cluster, and their payloads have as many bytes, with the identity. The
last column is the share of the plain rate that is lost, by the medians.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Final

from bench.arms import cluster_of
from bench.producing import run_producer

_TEMPLATE: Final = (
    '{"order": {"id": "{id}", "customer": "c-{lane}"}, "n": {n}, "currency": "EUR", '
    '"amount": 12.5, "open": true}'
)
#: A plain payload as long as most from the template: its body, and 52 bytes of identity.
_PAYLOAD_BYTES: Final = 153
_PLAIN, _SHAPED = "plain", "template"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--clients", nargs="+", default=["kafka-clients", "franz-go", "confluent-kafka"]
    )
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    print(
        f"{'client':16} {'plain/s':>10} {'template/s':>11} {'plain CPU':>10} {'CPU':>8} {'lost':>7}"
    )
    with cluster_of("kafka") as (cluster, root):
        for client in given.clients:
            rates: dict[str, list[float]] = {_PLAIN: [], _SHAPED: []}
            cpu_us: dict[str, list[float]] = {_PLAIN: [], _SHAPED: []}
            for turn in range(given.turns):
                for kind in (_PLAIN, _SHAPED):
                    sample = run_producer(
                        cluster,
                        root / f"{client}-{kind}-{turn}",
                        rate=0,
                        seconds=given.seconds,
                        payload=_PAYLOAD_BYTES,
                        capture=True,
                        library=client,
                        template=_TEMPLATE if kind == _SHAPED else None,
                    )
                    rates[kind].append(sample.rate_per_s)
                    cpu_us[kind].append(sample.cpu_us)
            plain, shaped = median(rates[_PLAIN]), median(rates[_SHAPED])
            print(
                f"{client:16} {plain:10,.0f} {shaped:11,.0f} {median(cpu_us[_PLAIN]):7.2f} us "
                f"{median(cpu_us[_SHAPED]):5.2f} us {1 - shaped / plain:7.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
