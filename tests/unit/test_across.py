"""The second pass: streams with rows in several buckets, against a slow look at the whole
stream."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture.bucket import load_bucket
from analysis.capture.context_files import load_context
from analysis.findings import Status, Verdict
from analysis.kernels.across import FEW_ROWS, SplitStreams, judge_split, splits_of, stream_rows
from analysis.kernels.partial import Episode
from harness.contracts.plan import ConsumerPromise
from harness.rundir import RunDir
from tests.planted.judged import judge_here
from tests.planted.tiny import History

STRAY = 1  # stream of partition 0; lanes 0 and 1 are in buckets of their own


def splits(run: RunDir, few_rows: int = FEW_ROWS) -> list[SplitStreams]:
    context = load_context(run)
    buckets = (load_bucket(str(run.root), number, context) for number in (0, 1))
    return splits_of([stream_rows(bucket, few_rows=few_rows) for bucket in buckets])


def judged(
    history: History, root: Path, few_rows: int = FEW_ROWS
) -> tuple[list[Episode], list[str]]:
    """The one stream that is split, with strays carried (or, ``few_rows=0``, read from their
    bucket)."""
    run = history.write(root)
    found = [
        judge_split(str(run.root), split, load_context(run)) for split in splits(run, few_rows)
    ]
    return [e for one in found for e in one.episodes], [
        c for one in found for c in one.contradictions
    ]


def stored(history: History, order: list[tuple[int, int]]) -> None:
    """Partition 0 holds these (lane, seq) messages; those of lane 1 are in the wrong partition."""
    for lane, seq in order:
        history.log(seq, lane=lane, partition=0)


@pytest.mark.long
@pytest.mark.parametrize("few_rows", [FEW_ROWS, 0])
def test_only_streams_of_several_buckets_are_looked_at_again(tmp_path: Path, few_rows: int) -> None:
    history = History(partitions=2, buckets=2)
    history.sent(3, partition=0).sent(3, partition=1)
    stored(history, [(0, 0), (1, 0), (0, 1), (0, 2)])
    history.log(1, 2, partition=1)
    history.deliver(0, 1, 2, lane=0).deliver(0, lane=1)
    (split,) = splits(history.write(tmp_path / "run"), few_rows)
    assert (split.home, split.streams) == (0, (STRAY,))
    if few_rows:
        ((bucket, rows),) = split.carried
        assert bucket == 1
        assert {table: columns["seq"].tolist() for table, columns in rows.items()} == {
            "log": [0],
            "deliveries": [0],
        }
        assert split.unread == {}
    else:
        assert split.unread == {1: (STRAY,)}


def test_streams_of_one_bucket_are_not(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    history.sent(3, partition=0).sent(3, partition=1)
    history.log(0, 1, 2, partition=0).log(0, 1, partition=1)
    assert splits(history.write(tmp_path / "run")) == []


def test_streams_with_the_same_home_are_judged_together(tmp_path: Path) -> None:
    history = History(partitions=4, buckets=2)
    for stream, foreign in ((0, 1), (2, 3)):  # partitions 0 and 2 are at home in bucket 0
        history.log(0, 1, partition=stream).log(5, lane=foreign, partition=stream)
        history.deliver(5, lane=foreign, partition=stream, position=2)
        history.deliver(0, 1, lane=stream, partition=stream)
    run = history.write(tmp_path / "run")
    (split,) = splits(run)
    assert (split.home, split.streams) == (0, (1, 3))
    episodes = judge_split(str(run.root), split, load_context(run)).episodes
    assert [(e.stream, e.lane, e.count) for e in episodes] == [(1, 0, 2), (3, 2, 2)]


def test_a_stray_delivered_after_its_successors_is_a_reorder(tmp_path: Path) -> None:
    history = History(partitions=2, buckets=2)
    stored(history, [(0, 0), (1, 7), (0, 1), (0, 2)])
    history.deliver(0, 1, 2, lane=0).deliver(7, lane=1)
    (episode,), contradictions = judged(history, tmp_path / "run")
    assert (episode.cls, episode.count, episode.instance, episode.lane) == (
        "delivery-reorder",
        1,
        1,
        1,
    )
    (witness,) = episode.witnesses
    assert (witness.message, witness.where) == ("1/1/7", "orders-0")
    assert witness.detail == "after 1/0/2 at position 3"
    assert contradictions == []


def test_where_no_order_is_promised_it_is_none(tmp_path: Path) -> None:
    shared = ConsumerPromise(
        subscription="shared", order="none", ack_timeout_s=1.0, acks_confirmed=False
    )
    history = History(partitions=2, buckets=2, reading=shared)
    stored(history, [(0, 0), (1, 7), (0, 1), (0, 2)])
    history.deliver(0, 1, 2, lane=0).deliver(7, lane=1)
    assert judged(history, tmp_path / "run") == ([], [])


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
    assert judged(history, tmp_path / "run")[1] == [
        "orders-0 holds both 1/0/1 and 1/1/5 at position 1"
    ]


def test_rows_of_several_buckets_contradict_nothing_where_the_log_was_read_again(
    tmp_path: Path,
) -> None:
    """Which of the two was recorded before the reader went back, nobody knows."""
    history = History(partitions=2, buckets=2).sent(3).send(0, partition=1).log(0, 1, 2)
    run = history.log(0, lane=1, partition=0, position=1).write(tmp_path / "run")
    context = load_context(run)
    (split,) = splits(run)
    assert len(judge_split(str(run.root), split, context).contradictions) == 1
    again = {STRAY: replace(context.bounds[STRAY], again=1)}
    assert judge_split(str(run.root), split, replace(context, bounds=again)).contradictions == []


def test_a_record_that_contradicts_itself_proves_nothing_from_there_on(tmp_path: Path) -> None:
    """Offset 3 holds two messages: one of them looks as if it had been acknowledged elsewhere."""
    history = History().sent(4).send(4, position=4).log(0, 1, 2, 3).log(4, position=3)
    history.deliver(0, 1, 2, 3, position=0).deliver(4, position=3)
    result = judge_here(history.write(tmp_path / "run"))
    (wrong,) = [f for f in result.findings if f.cls == "wrong-ack-position"]
    assert (wrong.status, wrong.count) == (Status.SUSPECT, 1)
    assert result.verdict is Verdict.UNKNOWN
    said = "the audit contradicts itself: orders-0 holds both 1/0/3 and 1/0/4 at position 3"
    assert said in result.reasons


def test_a_loss_before_that_place_stays_proved(tmp_path: Path) -> None:
    history = History().sent(3).send(3, position=4).send(4, position=4)
    history.log(0, 2, position=0).log(3).log(4, position=4)
    history.rows["log"][1]["position"] = 2
    history.rows["log"][2]["position"] = 4
    (lost,) = [
        f for f in judge_here(history.write(tmp_path / "run")).findings if f.cls == "acked-lost"
    ]
    assert (lost.status, lost.count) == (Status.VIOLATION, 1)


@pytest.mark.long
@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.sampled_from([FEW_ROWS, 0]),
    st.sampled_from([(), ("ledger",), ("ledger", "batch")]),
)
def test_reorders_agree_with_looking_at_every_pair(
    lanes: list[int], random: object, few_rows: int, parts_of_a_place: tuple[str, ...]
) -> None:
    """Lane by position; the delivery order is any permutation. Places have one to three parts."""
    history = History(partitions=2, buckets=2)
    stored(history, [(lane, position) for position, lane in enumerate(lanes)])
    order = list(range(len(lanes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for position in order:
        history.deliver(position, lane=lanes[position], position=position)

    for row in (*history.rows["log"], *history.rows["deliveries"]):
        if "ledger" in parts_of_a_place:
            row["ledger"], row["position"] = divmod(row["position"], 4)
        if "batch" in parts_of_a_place:
            row["position"], row["batch"] = divmod(row["position"], 2)

    def late(position: int, among: list[int]) -> bool:
        return any(other > position for other in among[: among.index(position)])

    expected = {
        f"1/{lanes[p]}/{p}"
        for p in order
        if late(p, order) and not late(p, [o for o in order if lanes[o] == lanes[p]])
    }
    with tempfile.TemporaryDirectory() as folder:
        episodes, _ = judged(history, Path(folder) / "run", few_rows)
    found = [w.message for e in episodes for w in e.witnesses]
    assert sum(e.count for e in episodes) == len(expected)
    assert set(found) <= expected
    if all(e.count <= 5 for e in episodes):
        assert set(found) == expected
