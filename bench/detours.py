"""Measures the cost of detours: the same producer on two clusters, one of them with the proxy
before it.

    python -m bench.detours [--rounds 3] [--seconds 8] [--answers] [--json]

With `--answers`, the proxy also has the relays that can change answers; no rule is in force.

Two loads: unlimited (where the proxy would be the bottleneck), then 50,000 msg/s (is the rate held,
and what it takes). In this order, as brokers that were just started hold no rate. Arms swap places
every round. Target: 50,000 msg/s is held through the proxy.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from statistics import median
from typing import Any

import psutil

from bench.arms import cluster_of
from bench.producing import Sample, run_producer
from harness.clusters.cluster import BrokerCluster
from harness.clusters.nodes.processes import run_processes
from harness.protocols.network import ANSWERS, CLIENT_DETOURS, PEER_DETOURS

UNLIMITED, STEADY = 0.0, 50_000.0
DETOURS = frozenset({CLIENT_DETOURS, PEER_DETOURS})


def proxy_cpu_s(cluster: BrokerCluster[Any]) -> float:
    """CPU time of the cluster's proxy so far; 0 without one."""
    total = 0.0
    for identity, _ in run_processes(cluster.runtime.run_id):
        process = psutil.Process(identity.pid)
        if process.name().startswith("toxiproxy"):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def measure(
    rounds: int, seconds: float, needs: frozenset[str]
) -> dict[tuple[float, str], list[tuple[Sample, float]]]:
    """(rate, arm) -> samples, each with the proxy's CPU time, warm-up and drain included.

    Args:
        needs: what the cluster with the proxy is started with.
    """
    arms = {"direct": frozenset[str](), "detours": needs}
    found: dict[tuple[float, str], list[tuple[Sample, float]]] = {}
    with ExitStack() as up:
        places = {
            arm: up.enter_context(cluster_of("kafka", needs=each)) for arm, each in arms.items()
        }
        for number in range(rounds):
            for rate in (UNLIMITED, STEADY):
                for arm in list(arms)[:: 1 if number % 2 else -1]:
                    cluster, root = places[arm]
                    before_s = proxy_cpu_s(cluster)
                    sample = run_producer(
                        cluster, root / f"p-{number}-{rate:.0f}",
                        rate=rate, seconds=seconds, payload=150, capture=False,
                    )  # fmt: skip
                    proxy_s = proxy_cpu_s(cluster) - before_s
                    found.setdefault((rate, arm), []).append((sample, proxy_s))
                    print(
                        f"round {number}  {rate or 'unlimited':>9}  {arm:7}  {sample.rate_per_s:>9,.0f}/s"
                        f"  late at most {sample.late_max_ms:,.0f} ms  proxy {proxy_s:.2f} CPU-s",
                        file=sys.stderr,
                    )
    return found


def summary(
    found: dict[tuple[float, str], list[tuple[Sample, float]]], seconds: float
) -> dict[str, float]:
    """Return the medians with and without the proxy, and their ratios."""
    steady, unlimited = found[STEADY, "detours"], found[UNLIMITED, "detours"]
    pairs = zip(unlimited, found[UNLIMITED, "direct"], strict=True)
    return {
        "steady_direct_per_s": round(median(s.rate_per_s for s, _ in found[STEADY, "direct"])),
        "steady_detours_per_s": round(median(s.rate_per_s for s, _ in steady)),
        "proxy_cores_at_50k": round(median(cpu for _, cpu in steady) / seconds, 3),
        "unlimited_detours_per_s": round(median(s.rate_per_s for s, _ in unlimited)),
        "unlimited_ratio": round(
            median(a.rate_per_s / b.rate_per_s for (a, _), (b, _) in pairs), 3
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    needs = DETOURS | {ANSWERS} if asked.answers else DETOURS
    result = summary(measure(asked.rounds, asked.seconds, needs), asked.seconds)
    if asked.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:28} {value:>12,}")


if __name__ == "__main__":
    main()
