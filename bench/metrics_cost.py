"""Measures what metrics of a live run cost: CPU time to read a second of rows, and to make values
of them.

python -m bench.metrics_cost [--rate 50000] [--seconds 20]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from harness.records import RAW, Event, Kind, Outcome, TableId
from harness.rundir import RunDir
from harness.telemetry.run_follower import RunFollower
from tests.planted.plans import build_plan
from tests.planted.raw import Rows, segment_bytes, write_bytes

PARTITIONS = 12
TOPICS = (1, 50, 100)


def sends(count: int, lanes: int) -> Rows:
    """Return raw rows of sends over some lanes."""
    rows = np.zeros(count, RAW[TableId.SENDS])
    rows["state"], rows["outcome"], rows["lane"] = 1, Outcome.OK, np.arange(count) % lanes
    rows["t_done_ns"] = np.random.default_rng(1).integers(10**5, 10**9, count)
    return rows


def deliveries(count: int, lanes: int) -> Rows:
    """Return raw rows of deliveries over some lanes."""
    rows = np.zeros(count, RAW[TableId.DELIVERIES])
    rows["kind"], rows["stream"], rows["t_ns"] = (
        Event.DELIVER,
        np.arange(count) % lanes + 1,
        5 * 10**6,
    )
    rows["header"]["kind"] = Kind.LOAD
    return rows


def measure(root: Path, topics: int, rate: int, seconds: int) -> tuple[float, float]:
    """CPU milliseconds of one thread to read a second's rows, and to give the values, medians."""
    names = {f"topic-{number}": PARTITIONS for number in range(topics)}
    plan = build_plan(topics=names, mode="partition", keys=1, buckets=2, producers=1, sessions=1)
    run = RunDir(root / str(topics)).create()
    follower = RunFollower(plan, run, "bench")
    made = {"p-1": (TableId.SENDS, sends), "c-1": (TableId.DELIVERIES, deliveries)}
    reading, giving = [], []
    for second in range(seconds):
        for worker, (table, rows) in made.items():
            content = segment_bytes(table, rows(rate, topics * PARTITIONS), owner=1, index=second)
            write_bytes(run.worker(worker) / f"{table.name.lower()}-1-{second:06d}.seg", content)
        begin = time.thread_time()
        follower.read()
        middle = time.thread_time()
        follower.values()
        reading.append(middle - begin)
        giving.append(time.thread_time() - middle)
    return statistics.median(reading) * 1e3, statistics.median(giving) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=20)
    asked = parser.parse_args()
    print(
        f"{asked.rate:,} sends and as many deliveries a second; CPU ms, medians of {asked.seconds}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for topics in TOPICS:
            read_ms, give_ms = measure(Path(folder), topics, asked.rate, asked.seconds)
            print(
                f"{topics:>4} topics: {read_ms:5.1f} to read, {give_ms:4.1f} for each push or scrape"
            )


if __name__ == "__main__":
    main()
