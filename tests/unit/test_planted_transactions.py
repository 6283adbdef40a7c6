"""Transactions and pipelines at length: every class and its near-miss among plain blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from analysis.classes import CLASSES
from analysis.kernels import atomicity
from harness.rundir import RunDir
from tests.oracles.judging import all_witnesses
from tests.planted.judged import reports_of, task_of
from tests.planted.tiled import Truth
from tests.planted.tiled_transactions import plant_transactions
from tests.planted.transacted_stories import STORIES

#: Of a transaction that spans buckets any of its messages may stand for it.
OF_TRANSACTIONS = ("lost-commit", "torn-transaction")
#: Of queues, whose consumers have transactions; of these there are other planted runs.
OF_QUEUES = {
    "lost-after-rollback",
    "committed-and-redelivered",
    "twice-in-transaction",
    "rollback-order",
}


def said(run: RunDir) -> dict[tuple[str, str], list[str]]:
    """What is said of which message or row, each as often as it is said."""
    task = task_of(run)
    found: dict[tuple[str, str], list[str]] = {}
    with all_witnesses():
        reports = reports_of(task)
    assert not [report.error for report in reports if report.error]
    partials = [report.partial for report in reports if report.partial]
    whole = atomicity.judge(task.context, [each.atoms for each in partials if each.atoms])
    for episode in (episode for each in (*partials, whole) for episode in each.episodes):
        assert (len(episode.witnesses), episode.unmet) == (episode.count, ())
        names = [witness.message for witness in episode.witnesses]
        found.setdefault((episode.cls, episode.split), []).extend(names)
    return alike(found)


def alike(found: Mapping[tuple[str, str], Iterable[str]]) -> dict[tuple[str, str], list[str]]:
    """In order, and of what stands for a transaction without its lane."""
    return {
        key: sorted(
            re.sub("/.*/", "/", name) if key[0] in OF_TRANSACTIONS else name for name in names
        )
        for key, names in found.items()
    }


def check(root: Path, *, messages: int, topics: int, each: int) -> Truth:
    run, truth = plant_transactions(root, messages=messages, topics=topics, each=each)
    found = said(run)
    assert found == alike(truth)
    return truth


@pytest.mark.long
def test_every_story_is_found_and_nothing_else(tmp_path: Path) -> None:
    truth = check(tmp_path / "run", messages=60_000, topics=2, each=3)
    shown = {cls for cls, _ in truth}
    asks = ("transactions", "counted-outputs", "required-outputs", "ordered-outputs")
    about = {name for name, entry in CLASSES.items() if set(entry.asks) & set(asks)} - OF_QUEUES
    assert about <= shown, "each class has a story"
    assert len(STORIES) > len(about)


@pytest.mark.slow
def test_the_same_among_ten_million_messages(tmp_path: Path) -> None:
    check(tmp_path / "run", messages=10_000_000, topics=8, each=40)
