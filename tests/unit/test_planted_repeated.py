"""A planted run of several tiles is one run: what lies in each is found, and nothing at their
edges."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from harness.rundir import RunDir
from tests.planted.judged import judge_here
from tests.planted.repeated import plant_repeated


def test_every_class_is_found_as_often_as_it_was_planted(tmp_path: Path) -> None:
    truth = plant_repeated(
        tmp_path / "run",
        messages=60_000,
        tile=20_000,
        each=1,
        far=3,
        producers=4,
        topics=2,
        partitions=3,
    )
    result = judge_here(RunDir(tmp_path / "run"))
    found = Counter[str]()
    for finding in result.findings:
        found[finding.cls] += finding.count
    assert dict(+found) == truth
    assert truth["acked-lost"] == 9, "three kinds, in each of three tiles"
    assert truth["write-duplicate"] == 3 * 6 + 3, (
        "and three messages of the first tile behind the last"
    )
    assert not [text for text in result.reasons if "records are missing" in text]
