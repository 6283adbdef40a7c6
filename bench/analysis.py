"""Judging against DuckDB: the same questions on the same files, interleaved, checked against the
truth.

    python -m bench.analysis --messages 30000000        # 30M sends + 30M log rows + 30M deliveries
    python -m bench.analysis --messages 1000000 --rounds 1
    python -m bench.analysis --messages 30000000 100000000 --no-deliveries --only warm  # linear?
    python -m bench.analysis --planted /tmp/brokerstorm-bench-x/30000000    # what --keep left

A run with planted anomalies is made (kept with ``--keep``), or one that was kept is taken. Then, in
every round: `judge` in a process whose Spark session is open (what a run waits for after its
drain), a cold ``brokerstorm analyze`` from process start to exit, and DuckDB, all at once and
bucket by bucket, its start-up not counted. All counts must equal what was planted. Ratios compare
with the faster of the two DuckDB forms, median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from analysis.report.documents import result_of_document
from bench.process_tree import TreeMeter, TreeUsage, measure
from harness.rundir import Document, read_json, write_json
from tests.planted.large import plant
from tests.planted.planters import ALL_KINDS

ROOT: Final = Path(__file__).resolve().parent.parent
TRUTH: Final = "truth.json"
TARGETS: Final = {"warm": 0.25, "cold": 0.5}
MAX_PEAK_BYTES: Final = 4 << 30
MAX_GROWTH: Final = 1.2  # of the time a row, from the smallest to the largest size
Counts = Counter[str]


@dataclass(frozen=True, slots=True)
class Judging:
    """One judging: what it used, and what it found."""

    usage: TreeUsage
    counts: Counts
    detail: str = ""


def warm(run: Path, threads: int) -> Judging:
    """From the end of sealing to the result, with the session open."""
    usage, answer = judged_warm(run, f"local[{threads}]")
    return Judging(
        usage, counts_of(answer["result"], run), f"judge() alone {answer['wall_s']:.1f} s"
    )


def judged_warm(run: Path, master: str, of: int = 0) -> tuple[TreeUsage, Document]:
    """Return usage and answer of `bench.warm_judge`. ``of``: root process id to measure; 0 = its
    own."""
    argv = [sys.executable, "-m", "bench.warm_judge", str(run), master]
    with subprocess.Popen(
        argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the judging process did not start; its error is above")
        meter = TreeMeter(of or process.pid)
        meter.start()
        process.stdin.write("go\n")
        process.stdin.flush()
        answer: Document = json.loads(process.stdout.readline())
        usage = meter.stop()
        process.stdin.close()
    return usage, answer


def cold(run: Path, threads: int) -> Judging:
    """``brokerstorm analyze`` as a user starts it."""
    argv = [
        sys.executable,
        "cli.py",
        "--json",
        "analyze",
        str(run),
        "--master",
        f"local[{threads}]",
    ]
    usage, done = measure(argv, ROOT)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"analyze ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return Judging(usage, counts_of(json.loads(done.stdout), run))


def duckdb(run: Path, threads: int, *form: str) -> Judging:
    """The SQL; wall time is DuckDB's own, without Python's start."""
    argv = [
        sys.executable,
        "-m",
        "bench.duckdb_questions",
        str(run),
        "--threads",
        str(threads),
        *form,
    ]
    usage, done = measure(argv, ROOT)
    if done.returncode:
        raise SystemExit(f"DuckDB failed:\n{done.stderr[-2000:]}")
    answer = json.loads(done.stdout)
    counts: Counts = Counter()
    for cls, _, number in answer["counts"]:
        counts[cls] += number
    seconds = ", ".join(f"{name} {s:.1f}" for name, s in answer["seconds"].items())
    return Judging(TreeUsage(answer["wall_s"], usage.cpu_s, usage.peak_bytes), counts, seconds)


def counts_of(document: Document, run: Path) -> Counts:
    """Return the number of messages of each class that a result has."""
    counts: Counts = Counter()
    for finding in result_of_document(document, run).findings:
        counts[finding.cls] += finding.count
    return counts


CONTENDERS: Final[Mapping[str, Callable[[Path, int], Judging]]] = {
    "warm": warm,
    "cold": cold,
    "duckdb": duckdb,
    "duckdb by bucket": lambda run, threads: duckdb(run, threads, "--by-bucket"),
}


def wrong_counts(found: Counts, planted: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Classes whose count differs: (found, planted)."""
    classes = sorted(set(planted) | set(found))
    return {c: (found[c], planted.get(c, 0)) for c in classes if found[c] != planted.get(c, 0)}


def planted(options: argparse.Namespace, messages: int, folder: Path) -> dict[str, int]:
    """Plant ``messages``; messages by class. Written next to the run, for another time."""
    began = time.perf_counter()
    truth = plant(
        folder,
        messages=messages,
        producers=options.producers,
        topics=options.topics,
        partitions=options.partitions,
        deliveries=not options.no_deliveries,
        anomalies=_anomalies(options),
        deaths=2,
        seed=options.seed,
    )
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    rows = sum(truth.rows.values())
    print(
        f"planted {truth.rows} in {time.perf_counter() - began:.0f} s, {size / rows:.1f} bytes a row"
    )
    write_json(folder / TRUTH, truth.counts())
    return truth.counts()


def bench(options: argparse.Namespace, folder: Path) -> dict[str, list[Judging]]:
    """All rounds on a planted run, a printed line each."""
    print(f"{platform.platform()}, {psutil.cpu_count()} cores, {options.threads} threads\n")
    answers: dict[str, list[Judging]] = {name: [] for name in options.only}
    for round_number in range(options.rounds):
        for name, given in answers.items():
            answer = CONTENDERS[name](folder, options.threads)
            given.append(answer)
            usage = answer.usage
            print(
                f"round {round_number + 1}  {name:<17} {usage.wall_s:7.1f} s  {usage.cpu_s:7.1f} CPU-s  "
                f"{usage.peak_bytes / 2**30:5.2f} GiB  {answer.detail}",
                flush=True,
            )
    return answers


def _anomalies(options: argparse.Namespace) -> dict[str, int]:
    delivered = {"not-dispatched", "delivery-duplicate", "delivery-reorder", "legal-redelivery"}
    kinds = set(ALL_KINDS) - (
        delivered | {"rewind-past-commit"} if options.no_deliveries else set()
    )
    return dict.fromkeys(sorted(kinds, key=ALL_KINDS.index), options.each)


def _wall_s(given: list[Judging]) -> float:
    return statistics.median(answer.usage.wall_s for answer in given)


def summary(answers: Mapping[str, list[Judging]], truth: Mapping[str, int]) -> bool:
    """A line a contender; whether counts are right and targets met."""
    references = [name for name in answers if name.startswith("duckdb")]
    reference = min(references, key=lambda name: _wall_s(answers[name]), default="")
    all_met = True
    print()
    for name, given in answers.items():
        line = f"{name:<17} median {_wall_s(given):7.1f} s"
        peak = max(answer.usage.peak_bytes for answer in given)
        if name in TARGETS:
            met = peak <= MAX_PEAK_BYTES
            line += f"  peak {peak / 2**30:.2f} GiB (4: {_word(met)})"
            all_met &= met
        if reference:
            ratio = _wall_s(given) / _wall_s(answers[reference])
            line += f"  {ratio:5.2f} x {reference}"
            if name in TARGETS:
                line += f" ({TARGETS[name]}: {_word(ratio <= TARGETS[name])})"
                all_met &= ratio <= TARGETS[name]
        wrong = wrong_counts(given[-1].counts, truth)
        all_met &= not wrong
        print(line, " counts equal the truth" if not wrong else f" WRONG (found, planted): {wrong}")
    print()
    return all_met


def _word(met: bool) -> str:
    return "met" if met else "MISSED"


def growth(sizes: Mapping[int, Mapping[str, list[Judging]]]) -> bool:
    """Seconds a million messages at each size; whether the largest is within 20 % of the
    smallest."""
    met = True
    for name in next(iter(sizes.values())):
        each = [_wall_s(answers[name]) / messages * 1e6 for messages, answers in sizes.items()]
        texts = ", ".join(f"{m:,}: {s:.3f}" for m, s in zip(sizes, each, strict=True))
        linear = each[-1] <= each[0] * MAX_GROWTH
        print(f"{name:<17} s a million messages: {texts}  ({_word(linear)})")
        met &= linear or name not in TARGETS
    return met


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--messages", type=int, nargs="+", default=[30_000_000], help="ascending sizes"
    )
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--producers", type=int, default=200)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--each", type=int, default=50, help="anomalies of each kind")
    parser.add_argument("--no-deliveries", action="store_true", help="sends and log only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--folder", type=Path, help="where the run goes; default: a temporary folder"
    )
    parser.add_argument("--keep", action="store_true", help="leave the planted run there")
    parser.add_argument(
        "--planted", type=Path, help="a run that --keep left, instead of planting one"
    )
    options = parser.parse_args()
    if options.planted:
        answers = bench(options, options.planted)
        sys.exit(0 if summary(answers, read_json(options.planted / TRUTH)) else 1)
    folder = Path(tempfile.mkdtemp(prefix="brokerstorm-bench-", dir=options.folder))
    sizes: dict[int, dict[str, list[Judging]]] = {}
    met = True
    try:
        for messages in options.messages:
            truth = planted(options, messages, folder / str(messages))
            print(f"anomalies {truth}")
            sizes[messages] = bench(options, folder / str(messages))
            met &= summary(sizes[messages], truth)
        if len(sizes) > 1:
            met &= growth(sizes)
    finally:
        if options.keep:
            print(f"kept {folder}")
        else:
            shutil.rmtree(folder)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
