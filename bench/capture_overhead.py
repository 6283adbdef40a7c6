"""Measures the cost of recording every send: one producer with capture on and off, interleaved.

    python -m bench.capture_overhead [--client confluent-kafka] [--rounds 5] [--seconds 8] [--json]

Two loads: unlimited (the ratio of the rates) and 50,000 msg/s (CPU time a message; at the unlimited
rate a process also burns CPU waiting for room). Targets: at most 10 % of the unlimited rate, at
most 0.6 CPU-s per million sends for recording and sealing together (bench/seal.py has the other
part).
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median

from bench.arms import cluster_of
from bench.producing import Sample, producers_of, run_producer
from harness.records import RAW_SENDS

UNLIMITED, STEADY = 0.0, 50_000.0


def measure(
    client: str, rounds: int, seconds: float, payload: int
) -> dict[tuple[float, bool], list[Sample]]:
    """Samples by (rate, capture). Arms swap places every round, so that neither is always first."""
    found: dict[tuple[float, bool], list[Sample]] = {}
    with cluster_of("kafka") as (cluster, root):
        for number in range(rounds):
            for rate in (UNLIMITED, STEADY):
                for capture in (True, False) if number % 2 else (False, True):
                    sample = run_producer(
                        cluster, root / f"p-{number}-{rate:.0f}-{capture}",
                        rate=rate, seconds=seconds, payload=payload, capture=capture, library=client,
                    )  # fmt: skip
                    found.setdefault((rate, capture), []).append(sample)
                    state = "on " if capture else "off"
                    print(
                        f"round {number}  {rate or 'unlimited':>9}  capture {state}"
                        f"  {sample.rate_per_s:>9,.0f}/s  {sample.cpu_us:.2f} us CPU a message",
                        file=sys.stderr,
                    )
    return found


def summary(found: dict[tuple[float, bool], list[Sample]]) -> dict[str, float]:
    """Return the medians with and without capture, and their ratios."""

    def middle(rate: float, capture: bool, name: str) -> float:
        return float(median(getattr(sample, name) for sample in found[rate, capture]))

    on, off = middle(UNLIMITED, True, "rate_per_s"), middle(UNLIMITED, False, "rate_per_s")
    pairs = zip(found[UNLIMITED, True], found[UNLIMITED, False], strict=True)
    return {
        "unlimited_on_per_s": round(on),
        "unlimited_off_per_s": round(off),
        "overhead_ratio": round(1 - median(a.rate_per_s / b.rate_per_s for a, b in pairs), 4),
        "steady_on_per_s": round(middle(STEADY, True, "rate_per_s")),
        "recording_cpu_s_per_million": round(
            middle(STEADY, True, "cpu_us") - middle(STEADY, False, "cpu_us"), 3
        ),
        "producer_cpu_s_per_million": round(middle(STEADY, True, "cpu_us"), 3),
        "raw_bytes_a_send": RAW_SENDS.itemsize,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--client", default="confluent-kafka", choices=producers_of("kafka"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--payload", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = summary(measure(args.client, args.rounds, args.seconds, args.payload))
    if args.json:
        print(json.dumps(result))
        return
    print(
        f"unlimited    on {result['unlimited_on_per_s']:,}/s  off {result['unlimited_off_per_s']:,}/s"
    )
    print(
        f"overhead     {result['overhead_ratio']:.1%} of the unlimited rate (target: at most 10 %)"
    )
    print(f"recording    {result['recording_cpu_s_per_million']} CPU-s per million sends")
    print(f"raw          {result['raw_bytes_a_send']} bytes a send")


if __name__ == "__main__":
    main()
