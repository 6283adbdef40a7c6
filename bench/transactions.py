"""Judging transactions and pipelines at length: is every planted hit found, nothing else, and at
what cost?

    python -m bench.transactions                        # 10M messages of producers and of pipelines
    python -m bench.transactions --messages 1000000 --each 10

A run is planted (`tests.planted.tiled_transactions`): blocks with a committed and an aborted
transaction and what a pipeline made of them, and among them ``each`` of every story that shows a
class or only looks like it. It is judged by Spark with ``--hits``, and every hit is held against
what was planted, by name. Then the buckets are judged once more in this process, one after the
other, to see what the kernels of pipelines and of fencing add.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow.parquet as pq

from analysis.kernels import fencing, pipelines
from analysis.spark.judge import judge
from analysis.spark.session import WarmSession
from analysis.spark.task import judge_bucket
from harness.rundir import RunDir
from tests.planted.judged import task_of
from tests.planted.tiled import Truth
from tests.planted.tiled_transactions import plant_transactions

#: Either partition's message may represent a transaction.
_OF_TRANSACTIONS: Final = ("lost-commit", "torn-transaction")
MAX_SHARE: Final = 0.2


def _key(cls: str, split: str, name: str) -> tuple[str, str, str]:
    return cls, split, re.sub("/.*/", "/", name) if cls in _OF_TRANSACTIONS else name


def _hits(path: Path) -> Iterator[tuple[str, str, str]]:
    names = ["class", "split", "message", "stream", "position"]
    columns = [pq.read_table(path, columns=[name]).column(0).to_pylist() for name in names]
    for cls, split, message, stream, position in zip(*columns, strict=True):
        yield _key(cls, split or "", message or f"{stream}@{position}")


def compared(path: Path, truth: Truth) -> bool:
    """A line a class; whether every planted hit is there once and no other."""
    wanted = Counter(_key(*key, name) for key, names in truth.items() for name in names)
    found = Counter(_hits(path))
    print(f"{'class':<44} planted   found  missed   false")
    for key in sorted({key[:2] for key in (*wanted, *found)}):
        rows = [
            sum(count for name, count in counts.items() if name[:2] == key)
            for counts in (wanted, found, wanted - found, found - wanted)
        ]
        print(f"{': '.join(filter(None, key)):<44}" + "".join(f"{number:8,}" for number in rows))
    return wanted == found


@contextmanager
def timed(module: Any, seconds: Counter[str]) -> Iterator[None]:
    """Adds up what the ``judge`` of a module of kernels takes."""
    own: Callable[..., Any] = module.judge

    def measured(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return own(*given)
        finally:
            seconds[module.__name__.rpartition(".")[2]] += time.perf_counter() - began

    with patch.object(module, "judge", measured):
        yield


def cost(run: RunDir) -> bool:
    """Print how much two kernel modules add to judging; return whether it is at most
    `MAX_SHARE`."""
    task, seconds = task_of(run), Counter[str]()
    began = time.perf_counter()
    with timed(pipelines, seconds), timed(fencing, seconds):
        for number in task.order:
            report = judge_bucket(task, int(number))  # type: ignore[arg-type]
            assert not report.error, report.error
    rest = time.perf_counter() - began - sum(seconds.values())
    share = sum(seconds.values()) / rest
    parts = ", ".join(f"{name} {s:.1f} s" for name, s in sorted(seconds.items()))
    print(f"one thread: all else {rest:.1f} s, {parts}: {share:+.0%} (at most {MAX_SHARE:+.0%})")
    return share <= MAX_SHARE


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument(
        "--topics", type=int, default=8, help="pairs of a topic read and one written"
    )
    parser.add_argument("--each", type=int, default=40, help="blocks of each story")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--folder", type=Path, help="where the run goes; default: a temporary folder"
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="brokerstorm-bench-", dir=options.folder))
    try:
        began = time.perf_counter()
        run, truth = plant_transactions(
            folder / "run",
            messages=options.messages,
            topics=options.topics,
            each=options.each,
            seed=options.seed,
        )
        print(f"planted in {time.perf_counter() - began:.0f} s")
        hits = folder / "hits.parquet"
        with WarmSession(f"local[{options.threads}]") as warm:
            session = warm.get()
            began = time.perf_counter()
            result = judge(run, session, hits=hits)
            rows = ", ".join(f"{count:,} {table}" for table, count in result.rows.items())
            print(
                f"judged in {time.perf_counter() - began:.1f} s, {options.threads} threads: {rows}"
            )
        met = compared(hits, truth)
        met &= cost(run)
    finally:
        shutil.rmtree(folder)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
