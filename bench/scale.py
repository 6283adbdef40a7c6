"""Does judging grow with the messages and no faster? Runs of 10^7 sends and more, of known
contents.

    python -m bench.scale                                     # 10^7 and 10^8
    python -m bench.scale --messages 10000000 100000000 1000000000
    python -m bench.scale --messages 100000000 --workers 1 2 3      # on a standalone cluster

Each run is planted as a stream in the sealed form (`tests.planted.repeated`): sends, their log,
deliveries, and in every 5M sends two anomalies of each of 24 kinds, and ten messages that the log
repeats at the very end. Spark judges it in a process whose session is open, here (`local[2]`) or,
with ``--workers``, on a cluster of so many workers of two cores, all on this machine. Every class
must be found as often as it was planted, and the CPU time of a message may not grow by more than 15
% from the smallest run to the largest. Runs are removed when judged.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench.analysis import MAX_PEAK_BYTES, Counts, counts_of, judged_warm, wrong_counts
from bench.process_tree import TreeMeter, TreeUsage
from harness.rundir import RunDir, read_json
from tests.planted.repeated import plant_repeated
from tests.standalone import standalone

MAX_GROWTH: Final = 1.15  # of the CPU time a message, from the smallest run to the largest
LOCAL: Final = 0  # workers


@dataclass(frozen=True, slots=True)
class PlantedRun:
    """The planted anomalies, and the size of the run."""

    messages: int
    truth: dict[str, int]
    rows: dict[str, int]
    sealed_bytes: int


@contextmanager
def planted(messages: int, options: argparse.Namespace) -> Iterator[tuple[Path, PlantedRun]]:
    """A run of so many sends, as long as it is asked about."""
    folder = Path(tempfile.mkdtemp(prefix="brokerstorm-bench-", dir=options.folder))
    try:
        meter = TreeMeter(os.getpid())
        meter.start()
        truth = plant_repeated(
            folder / "run", messages=messages, tile=options.tile, threads=options.threads
        )
        usage = meter.stop()
        run = RunDir(folder / "run")
        size = sum(path.stat().st_size for path in run.sealed.rglob("*.parquet"))
        rows = read_json(run.seal_report)["rows"]
        print(
            f"planted {rows}, {sum(truth.values()):,} hits, {size:,} bytes: {_said(usage)}",
            flush=True,
        )
        yield run.root, PlantedRun(messages, truth, rows, size)
    finally:
        shutil.rmtree(folder)


def judged(run: Path, workers: int, threads: int) -> tuple[TreeUsage, Counts]:
    """Return usage of judging, here or on a cluster of so many workers, and hits by class."""
    if workers == LOCAL:
        usage, answer = judged_warm(run, f"local[{threads}]")
        return usage, counts_of(answer["result"], run)
    with tempfile.TemporaryDirectory(prefix="brokerstorm-spark-") as folder:
        hosts = [f"127.0.0.{11 + number}" for number in range(workers)]
        os.environ["PYSPARK_PYTHON"] = sys.executable
        with standalone(Path(folder), hosts) as master:
            usage, answer = judged_warm(run, master, of=os.getpid())
    return usage, counts_of(answer["result"], run)


def _said(usage: TreeUsage) -> str:
    return f"{usage.wall_s:.1f} s, {usage.cpu_s:.1f} CPU-s, {usage.peak_bytes / 2**30:.2f} GiB"


def compared(size: PlantedRun, workers: int, usage: TreeUsage, counts: Counts) -> bool:
    """A line; whether the counts are the truth, in no more memory than allowed."""
    where = f"{workers} workers" if workers else "here"
    wrong = wrong_counts(counts, size.truth)
    each = (
        f"{usage.cpu_s / size.messages * 1e6:.3f} CPU-s a million, "
        f"{size.sealed_bytes / size.messages:.1f} B"
    )
    is_small = workers > 0 or usage.peak_bytes <= MAX_PEAK_BYTES
    said = "counts equal the truth" if not wrong else f"WRONG (found, planted): {wrong}"
    print(f"{size.messages:>13,} {where:<9} {_said(usage)}; {each}; {said}", flush=True)
    return not wrong and is_small


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--messages", type=int, nargs="+", default=[10**7, 10**8], help="ascending sizes"
    )
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[LOCAL], help="0: here, without a cluster"
    )
    parser.add_argument(
        "--tile", type=int, default=5_000_000, help="sends after which a run repeats itself"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where runs go; default: a temporary folder")
    options = parser.parse_args()
    print(f"{platform.platform()}, {psutil.cpu_count()} cores, {time.strftime('%F')}\n")
    met, each = True, []
    for messages in options.messages:
        with planted(messages, options) as (run, size):
            for workers in options.workers:
                usage, counts = judged(run, workers, options.threads)
                met &= compared(size, workers, usage, counts)
                if workers == options.workers[0]:
                    each.append(usage.cpu_s / messages)
    is_linear = each[-1] <= each[0] * MAX_GROWTH
    print(
        f"CPU a message, largest to smallest run: {each[-1] / each[0]:.2f} (at most {MAX_GROWTH})"
    )
    sys.exit(0 if met and is_linear else 1)


if __name__ == "__main__":
    main()
