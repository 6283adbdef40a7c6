"""Measures the cost of recording every send: one producer with capture on and off, interleaved.

    python -m bench.capture_overhead [--system kafka] [--client confluent-kafka] [--rate 50000]
                                     [--rounds 5] [--seconds 8] [--json]

Two loads: unlimited (the ratio of the rates) and a rate that the client sustains (CPU time a
message; at the unlimited rate a process also burns CPU waiting for room). Targets: at most 10 % of
the unlimited rate, at most 0.6 CPU-s per million sends for recording and sealing together
(bench/seal.py has the other part).
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median

from bench.arms import cluster_of
from bench.producing import Sample, producers_of, run_producer
from harness.records import RAW_SENDS
from harness.systems import SYSTEMS

UNLIMITED = 0.0


def measure(
    system: str, client: str, steady: float, rounds: int, seconds: float, payload: int
) -> dict[tuple[float, bool], list[Sample]]:
    """Samples by (rate, capture). Arms swap places every round, so that neither is always first."""
    found: dict[tuple[float, bool], list[Sample]] = {}
    with cluster_of(system) as (cluster, root):
        for number in range(rounds):
            for rate in (UNLIMITED, steady):
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


def summary(found: dict[tuple[float, bool], list[Sample]], steady: float) -> dict[str, float]:
    """Return the medians with and without capture, and their ratios."""

    def middle(rate: float, capture: bool, name: str) -> float:
        return float(median(getattr(sample, name) for sample in found[rate, capture]))

    on, off = middle(UNLIMITED, True, "rate_per_s"), middle(UNLIMITED, False, "rate_per_s")
    pairs = zip(found[UNLIMITED, True], found[UNLIMITED, False], strict=True)
    return {
        "unlimited_on_per_s": round(on),
        "unlimited_off_per_s": round(off),
        "overhead_ratio": round(1 - median(a.rate_per_s / b.rate_per_s for a, b in pairs), 4),
        "steady_on_per_s": round(middle(steady, True, "rate_per_s")),
        "recording_cpu_s_per_million": round(
            middle(steady, True, "cpu_us") - middle(steady, False, "cpu_us"), 3
        ),
        "producer_cpu_s_per_million": round(middle(steady, True, "cpu_us"), 3),
        "raw_bytes_a_send": RAW_SENDS.itemsize,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--system", default="kafka", choices=sorted(SYSTEMS))
    parser.add_argument("--client", help="default: the one of the system")
    parser.add_argument("--rate", type=float, default=50_000, help="a rate that it sustains")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--payload", type=int, default=150)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    clients = producers_of(args.system)
    if args.client is not None and args.client not in clients:
        parser.error(f"argument --client: must be one of: {', '.join(clients)}")
    client = args.client or SYSTEMS[args.system].client
    found = measure(args.system, client, args.rate, args.rounds, args.seconds, args.payload)
    result = summary(found, args.rate)
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
