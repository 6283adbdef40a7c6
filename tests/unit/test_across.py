"""The second pass: streams with rows in several buckets, against a slow look at the whole stream."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.across import Split, judge_stream, split_streams, streams_in
from analysis.bucket import load_bucket
from analysis.context_files import load_context
from analysis.partial import Episode
from tests.planted.tiny import History

STRAY = 1  # stream of partition 0; lanes 0 and 1 are in buckets of their own


def judged(history: History, root: Path) -> tuple[list[Episode], list[str]]:
    run = history.write(root)
    return judge_stream(str(run.root), Split(STRAY, (0, 1)), load_context(run))


def stored(history: History, order: list[tuple[int, int]]) -> None:
    """Partition 0 holds these (lane, seq) messages; those of lane 1 are in the wrong partition."""
    for lane, seq in order:
        history.log(seq, lane=lane, partition=0)


def test_only_streams_of_several_buckets_are_looked_at_again(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    history.sent(3, partition=0).sent(3, partition=1)
    stored(history, [(0, 0), (1, 0), (0, 1), (0, 2)])
    history.log(1, 2, partition=1)
    run = history.write(tmp_path / "run")
    context = load_context(run)
    seen = [(n, streams_in(load_bucket(str(run.root), n, context))) for n in (0, 1)]
    assert seen == [(0, (1,)), (1, (1, 2))]
    assert split_streams(seen) == [Split(1, (0, 1))]
    assert split_streams([(0, (1,)), (1, (2,))]) == []


def test_a_stray_delivered_after_its_successors_is_a_reorder(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    stored(history, [(0, 0), (1, 7), (0, 1), (0, 2)])
    history.deliver(0, 1, 2, lane=0).deliver(7, lane=1)
    (episode,), contradictions = judged(history, tmp_path / "run")
    assert (episode.cls, episode.count, episode.instance, episode.lane) == ("delivery-reorder", 1, 1, 1)
    (witness,) = episode.witnesses
    assert (witness.message, witness.where) == ("1/1/7", "orders-0")
    assert witness.detail == "after 1/0/2 at position 3"
    assert contradictions == []


def test_in_order_it_is_none(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    stored(history, [(0, 0), (1, 7), (0, 1)])
    history.deliver(0, lane=0).deliver(7, lane=1).deliver(1, lane=0)
    assert judged(history, tmp_path / "run") == ([], [])


@pytest.mark.parametrize("event", ["assign", "seek"])
def test_a_new_assignment_or_a_seek_begins_anew(tmp_path: Path, event: str) -> None:
    history = History(partitions=2, buckets=2)
    stored(history, [(0, 0), (1, 7), (0, 1)])
    history.deliver(0, 1, lane=0)
    history.assign(0, position=1) if event == "assign" else history.seek(1)
    history.deliver(7, lane=1)
    assert judged(history, tmp_path / "run") == ([], [])


def test_a_repeat_is_not_called_late(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    stored(history, [(0, 0), (1, 7), (0, 1)])
    history.deliver(0, lane=0).deliver(7, lane=1).deliver(1, lane=0).deliver(7, lane=1, position=1)
    assert judged(history, tmp_path / "run")[0] == []


def test_what_one_bucket_can_see_is_left_to_it(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    stored(history, [(0, 0), (0, 1), (1, 7)])
    history.deliver(1, lane=0).deliver(0, lane=0, position=0).deliver(7, lane=1)
    assert judged(history, tmp_path / "run")[0] == []


def test_two_messages_at_one_position_contradict_each_other(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    history.log(0, 1, lane=0).log(5, lane=1, position=1)
    assert judged(history, tmp_path / "run")[1] == ["orders-0 holds both 1/0/1 and 1/1/5 at position 1"]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_reorders_agree_with_looking_at_every_pair(lanes: list[int], random: object) -> None:
    """Lane by position; the delivery order is any permutation."""
    history = History(partitions=2, buckets=2)
    stored(history, [(lane, position) for position, lane in enumerate(lanes)])
    order = list(range(len(lanes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for position in order:
        history.deliver(position, lane=lanes[position], position=position)

    def late(position: int, among: list[int]) -> bool:
        return any(other > position for other in among[: among.index(position)])

    expected = {
        f"1/{lanes[p]}/{p}"
        for p in order
        if late(p, order) and not late(p, [o for o in order if lanes[o] == lanes[p]])
    }
    with tempfile.TemporaryDirectory() as folder:
        episodes, _ = judged(history, Path(folder) / "run")
    found = [w.message for e in episodes for w in e.witnesses]
    assert sum(e.count for e in episodes) == len(expected)
    assert set(found) <= expected
    if all(e.count <= 5 for e in episodes):
        assert set(found) == expected
