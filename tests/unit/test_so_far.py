"""Judging while a run goes on: planted runs cut anywhere; what is told stays, and the end is the
same."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.findings import Finding, Result, Status
from analysis.verdict.so_far import OPEN, SEEN, so_far
from harness.contracts.plan import Plan
from harness.records import TableId
from harness.rundir import RunDir, read_json, write_json
from harness.seal.seal import seal, seal_finished
from harness.seal.segments import find_segments, whole_rows
from harness.seal.so_far import write_so_far
from tests.planted.judged import hits_here, judge_here
from tests.planted.large import plant
from tests.planted.planters import ALL_KINDS
from tests.planted.raw import SegmentWriter

SHAPE: dict[str, Any] = {
    "messages": 6_000,
    "producers": 4,
    "topics": 2,
    "partitions": 3,
    "buckets": 4,
}
SEED = 3
Message = tuple[int, ...]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Raw and not sealed; each worker has filled dozens of segments."""
    large, run = tmp_path_factory.mktemp("large"), RunDir(tmp_path_factory.mktemp("whole") / "run")
    made = RunDir(large / "run")
    plant(made.root, **SHAPE, anomalies=dict.fromkeys(ALL_KINDS, 3), seed=SEED, raw=True)
    shutil.copytree(made.root, run.root, ignore=shutil.ignore_patterns("*.seg"))
    plan = plan_of(made)
    for segment in find_segments(made, plan.run_tag, {}):
        where = (run, segment.worker, segment.table, segment.owner)
        writer = SegmentWriter(*where, capacity=150, subscription=segment.subscription)
        for rows in map(np.copy, whole_rows(segment, Counter())):
            if segment.table is TableId.SENDS:
                # answered, or nothing behind it would be sealed
                rows["outcome"][rows["outcome"] == 0] = 3
            writer.append(rows)
        writer.close()
    return run


def plan_of(run: RunDir) -> Plan:
    return Plan.model_validate_json(run.plan.read_text())


def growing(whole: RunDir, folder: Path, seed: int) -> Iterator[RunDir]:
    """The same run while it goes on, each time after some more segments of each worker have
    come."""
    run, rng = RunDir(folder / "run"), np.random.default_rng(seed)
    shutil.copytree(whole.root, run.root, ignore=shutil.ignore_patterns("*.seg"))
    manifest = read_json(run.manifest)
    write_json(
        run.manifest, manifest | {"workers": [], "readiness_restored": False, "drained": False}
    )
    waiting: dict[str, list[Path]] = {}
    for path in sorted(whole.raw.glob("*/*.seg")):
        waiting.setdefault(path.name.rpartition("-")[0] + path.parent.name, []).append(path)
    while any(waiting.values()):
        for paths in waiting.values():
            for _ in range(min(len(paths), int(rng.integers(0, 12)))):
                path = paths.pop(0)
                shutil.copyfile(path, run.worker(path.parent.name) / path.name)
        seal_finished(run, plan_of(run))
        yield run
    write_json(run.manifest, manifest)


def broken(run: RunDir, classes: frozenset[str]) -> list[set[Message]]:
    """Of each hit of these classes the message, and its place: damaged ones are known by it at
    first."""
    found: list[set[Message]] = []
    for hits in hits_here(run)[0]:
        if hits.cls in classes:
            columns = {name: column.tolist() for name, column in hits.columns().items()}
            messages = zip(columns["instance"], columns["lane"], columns["seq"], strict=True)
            places = zip(columns["stream"], columns["position"], strict=True)
            found += [{message, place} for message, place in zip(messages, places, strict=True)]
    return found


def shown(result: Result) -> list[Any]:
    """Findings, without what depends on the order in which buckets are read."""
    return [(f.cls, f.status, f.count, f.episodes, f.split, f.by_stream) for f in result.findings]


@pytest.mark.parametrize("seed", [1, 2])
def test_cut_anywhere_what_is_told_stays_and_the_verdict_is_that_of_the_whole(
    whole: RunDir, tmp_path: Path, seed: int
) -> None:
    one = RunDir(tmp_path / "one")
    shutil.copytree(whole.root, one.root)
    seal(one, plan_of(one))
    everything, seen = judge_here(one), set().union(*broken(one, SEEN))
    assert {f.cls for f in everything.findings} >= SEEN - {"client-sequence-regression"}
    told: set[str] = set()
    for run in growing(whole, tmp_path, seed):
        part = RunDir(tmp_path / "part")
        if write_so_far(run, plan_of(run), part):
            said = so_far(judge_here(part).findings)
            told |= {each.cls for each in said}
            assert {each.is_seen for each in said if each.cls in OPEN} <= {False}
            assert all(seen & {*each} - {(0, -1, -1)} for each in broken(part, SEEN))
    assert told >= {"write-duplicate", "corrupt", "acked-lost"}
    seal(run, plan_of(run))
    assert shown(judge_here(run)) == shown(everything)
    assert judge_here(run).verdict == everything.verdict


def finding(cls: str, status: Status) -> Finding:
    return Finding(cls=cls, status=status, count=2, sentence="s", promise="p", evidence="e")


def test_nothing_is_told_as_certain_before_the_end() -> None:
    """A log that is cut later takes the rows with it that show a duplicate."""
    told = so_far(
        [finding("write-duplicate", Status.VIOLATION), finding("acked-lost", Status.SUSPECT)]
    )
    assert [each.text for each in told] == [
        "write-duplicate 2, unless the log is cut later: s",
        "acked-lost 2, open until the end: s",
    ]


def test_what_is_permitted_or_not_proved_in_the_log_is_not_told() -> None:
    weaker = [
        finding("write-duplicate", status) for status in Status if status is not Status.VIOLATION
    ]
    assert so_far([*weaker, finding("acked-lost", Status.PERMITTED)]) == []
