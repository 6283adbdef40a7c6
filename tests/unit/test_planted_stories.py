"""Pulsar subscriptions and queues at length: every class and its near-miss among thousands of
blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from analysis.spark.task import judge_bucket
from harness.contracts.plan import ConsumerPromise
from harness.records import Event
from harness.rundir import RunDir
from tests.oracles.judging import all_witnesses
from tests.planted.judged import task_of
from tests.planted.pairs import Found, found
from tests.planted.pulsar_stories import (
    FAILOVER,
    RECEIPTS,
    SHARED,
    confirmed,
    five,
    half_a_batch,
    handed_over,
    keyed,
    one_key,
    pulsar,
    reconnecting,
    refused,
    swapped,
    timed,
)
from tests.planted.queue_stories import BACK, DONE, consumed, redelivered, rolled_back
from tests.planted.tiled import Story, Truth, plant_stories
from tests.planted.tiny import History

ROWS = 3_000_000


def all_acked(reading: ConsumerPromise, batch: int = 1) -> History:
    return five(reading, batch=batch).deliver(0, 1, 2, 3, 4).acked(0, 1, 2, 3, 4)


def stored(*seqs: int, dropped: tuple[int, ...] = (), ids: Sequence[int] = ()) -> History:
    """Five messages, stored in this order and all of it delivered; some acknowledged at -1:-1."""
    h = pulsar(RECEIPTS)
    for seq in range(5):
        h.send(seq, dropped=seq in dropped)
    h.log(*seqs, client_seqs=ids or [s + 10 for s in seqs]).at(1_000)
    for position, seq in enumerate(seqs):
        h.deliver(seq, position=position)
    return h.acked(*range(len(seqs)))


def handed_on(*, settled: bool) -> History:
    """`handed_over`, and nothing left that would hold the messages of the next block."""
    return handed_over(settled=settled).acked(1, 2, 3, session=2)


def shows(cls: str, split: str, *seqs: int) -> Found:
    return {(cls, split): [f"1/0/{seq}" for seq in seqs]}


@dataclass(frozen=True)
class Run:
    """Stories that share a subscription; the near-miss follows its class."""

    plain: Callable[[], History]
    stories: Sequence[Story]
    topics: int = 4


AGAIN = shows("delivery-duplicate", "after rollback", 0, 1, 2, 3)
RUNS = {
    "shared with an ack timeout": Run(
        lambda: all_acked(SHARED),
        [
            Story(
                lambda: timed(2_050, 6_000),
                shows("premature-redelivery", "acknowledged in time", 1),
            ),
            Story(lambda: timed(3_200, 3_600), shows("delivery-duplicate", "after ack timeout", 1)),
            Story(
                lambda: timed(9_000, 2_600), shows("premature-redelivery", "before the timeout", 1)
            ),
            Story(refused, shows("delivery-duplicate", "after nack", 1)),
        ],
    ),
    "shared with receipts": Run(
        lambda: all_acked(RECEIPTS),
        [
            Story(lambda: confirmed(2_200, 3_000), shows("redelivered-after-ack", "confirmed", 1)),
            Story(
                lambda: confirmed(3_500, 3_000), shows("delivery-duplicate", "not acknowledged", 1)
            ),
            Story(lambda: stored(0, 3, 1, 2, 3, 4), shows("premature-then-repeat", "", 3)),
            Story(lambda: stored(0, 1, 2, 1, 2, 3, 4), shows("write-duplicate", "same send", 1, 2)),
            Story(lambda: stored(0, 3, 4, dropped=(1, 2)), shows("dedup-silent-loss", "", 1, 2)),
            Story(lambda: stored(0, 1, 2, 3, 4, dropped=(2,)), {}),
            Story(
                lambda: stored(0, 1, 2, 3, 4, ids=(10, 12, 11, 13, 14)),
                shows("client-sequence-regression", "", 2),
            ),
            Story(lambda: stored(0, 1, 2, 3, 4, ids=(10, 12, 15, 16, 20)), {}),
        ],
    ),
    "shared in batches": Run(
        lambda: all_acked(RECEIPTS, batch=2),
        [
            Story(lambda: half_a_batch(0, 1), shows("redelivered-after-ack", "confirmed", 1)),
            Story(lambda: half_a_batch(1), shows("delivery-duplicate", "not acknowledged", 1)),
        ],
    ),
    "key shared": Run(
        lambda: keyed().deliver(0, 1, 2, 3, lane=0).acked(0, 1, 2, 3),
        [
            Story(lambda: handed_on(settled=False), shows("per-key-reorder", "held elsewhere", 1)),
            Story(lambda: handed_on(settled=True), {}),
            Story(
                lambda: one_key(0, 2, 1, 3).acked(0, 1, 2, 3),
                shows("per-key-reorder", "overtaken", 1),
            ),
            Story(lambda: one_key(0, 1, 2, 3).acked(0, 1, 2, 3), {}),
        ],
    ),
    "failover": Run(
        lambda: all_acked(FAILOVER),
        [
            Story(lambda: swapped(FAILOVER), shows("delivery-reorder", "", 1)),
            Story(lambda: all_acked(FAILOVER), {}),
            Story(lambda: reconnecting(2, 3, 1, 4), shows("delivery-reorder", "", 1)),
            Story(
                lambda: reconnecting(1, 2, 3, 4), shows("delivery-duplicate", "not acknowledged", 1)
            ),
        ],
    ),
    "transacted queue": Run(
        lambda: consumed(0, 1, 2, 3, 4, 5, sessions=2),
        [
            Story(
                lambda: rolled_back((0, 1, 2, 3), (4, 0, 1, 2, 3, 5), sessions=2),
                AGAIN | shows("rollback-order", "after a rollback", 4),
            ),
            Story(lambda: rolled_back((0, 1, 2, 3), (0, 1, 2, 3, 4, 5), sessions=2), AGAIN),
            Story(
                lambda: rolled_back((0, 1, 2, 3), (1, 0, 2, 3, 4, 5), (Event.RECOVER,), sessions=2),
                AGAIN | shows("rollback-order", "after a recover", 1),
            ),
            Story(
                lambda: rolled_back((0, 1, 2, 3), (0, 1, 2, 3, 4, 5), (Event.RECOVER,), sessions=2),
                AGAIN,
            ),
            Story(
                lambda: rolled_back((0, 1, 2, 3), (4, 0, 1, 2, 3, 4, 5), sessions=2),
                AGAIN
                | shows("rollback-order", "after a rollback", 4)
                | shows("twice-in-transaction", "", 4),
            ),
            Story(
                lambda: rolled_back((0, 1, 2, 3), (0, 1, 3, 4, 5), sessions=2),
                shows("delivery-duplicate", "after rollback", 0, 1, 3)
                | shows("lost-after-rollback", "rolled back", 2),
            ),
            Story(
                lambda: rolled_back((0, 1, 2, 3), (0, 1, 3, 4, 5), sessions=2).log(2),  # it remains
                shows("delivery-duplicate", "after rollback", 0, 1, 3),
            ),
            Story(lambda: redelivered(DONE), shows("committed-and-redelivered", "", 3)),
            Story(lambda: redelivered(BACK), AGAIN),
            Story(
                lambda: consumed(0, 1, 2, remain=(4, 5), sessions=2),
                shows("acked-lost", "middle", 3) | shows("not-dispatched", "not given", 4, 5),
            ),
        ],
        topics=1,  # the end of a transaction names no stream
    ),
}


def judged(run: RunDir) -> tuple[dict[tuple[str, str], list[str]], int]:
    """What is said of which message, each as often as it is said; rows."""
    task = task_of(run)
    said: dict[tuple[str, str], list[str]] = {}
    rows = 0
    with all_witnesses():
        for number in task.order:
            report = judge_bucket(task, number)
            assert report.partial, report.error
            rows += sum(report.rows.values())
            for episode in report.partial.episodes:
                names = [witness.message for witness in episode.witnesses]
                assert len(names) == episode.count
                assert episode.unmet == ()
                said.setdefault((episode.cls, episode.split), []).extend(names)
    return said, rows


def check(root: Path, run: Run, *, each: int, blocks: int) -> int:
    """Rows that were judged, and rightly so."""
    planted, truth = plant_stories(
        root, run.plain, run.stories, each=each, topics=run.topics, blocks=blocks
    )
    said, rows = judged(planted)
    assert {key: sorted(names) for key, names in said.items()} == _sorted(truth)
    return rows


def _sorted(truth: Truth) -> dict[tuple[str, str], list[str]]:
    return {key: sorted(names) for key, names in truth.items()}


@pytest.mark.parametrize("name", RUNS)
def test_each_story_shows_what_it_should(name: str) -> None:
    run = RUNS[name]
    assert found(run.plain()) == {}
    for story in run.stories:
        assert found(story.build()) == story.shows


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_stories_among_plain_blocks(tmp_path: Path, name: str) -> None:
    run = RUNS[name]
    check(tmp_path / "run", run, each=2, blocks=len(run.stories) * 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_stories_among_millions_of_rows(tmp_path: Path, name: str) -> None:
    run = RUNS[name]
    blocks = ROWS // (14 * run.topics)  # a plain block has 14 rows or more
    assert check(tmp_path / "run", run, each=40, blocks=blocks) >= ROWS
