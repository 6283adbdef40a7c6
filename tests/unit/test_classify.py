"""Whole buckets: the planted streams, what other checkers miscount, root causes, symptoms,
evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.capture.bucket import Bucket, load_bucket
from analysis.capture.context_files import load_context
from analysis.classes import status_of
from analysis.findings import Status
from analysis.kernels.classify import classify
from analysis.kernels.partial import Partial, RawWitness
from harness.contracts.plan import PromisePlan
from harness.records import Kind
from tests.oracles.judging import context_from, judged, judged_tables, labels, plain
from tests.planted.streams import STREAMS, PlantedStream
from tests.planted.tiny import History

UNORDERED = PromisePlan(
    delivery="leader", order=False, dedup=False, because={}, required={"dedup": True, "order": None}
)


def witness_of(partial: Partial, cls: str) -> RawWitness:
    return next(e for e in partial.episodes if e.cls == cls).witnesses[0]


def sequence(witness: RawWitness) -> str:
    return " ".join(f"{step.seq}{step.mark}" for step in witness.around)


@pytest.mark.parametrize("stream", STREAMS, ids=lambda s: s.name)
def test_the_eleven_planted_streams_have_one_right_label(
    stream: PlantedStream, tmp_path: Path
) -> None:
    history = stream.history()
    partial = judged(history)
    said = [(cls, message) for cls, _, _, message in labels(partial)]
    assert sorted(said) == sorted((stream.cls, f"1/0/{seq}") for seq in stream.seqs)
    if stream.shape:
        assert {e.split for e in partial.episodes} == {stream.shape}
    run = history.write(tmp_path / "run")
    context = load_context(run)
    tables = history.tables()
    from_disk = classify(load_bucket(str(run.root), 0, context))
    assert from_disk == classify(
        Bucket(0, context, tables["sends"], tables["log"], tables["deliveries"])
    )
    assert from_disk.counts.items() <= partial.counts.items()  # the rest is counted once a run


def test_the_reported_sequence_is_the_one_in_the_log() -> None:
    premature = witness_of(judged(STREAMS[1].history()), "premature-then-repeat")
    assert sequence(premature) == "0 3! 1 2 3+ 4"
    assert premature.message == "1/0/3"
    assert premature.detail == "first at position 1, again in its place at 4"
    assert "2 earlier messages late after it (1, 2)" in premature.symptoms
    loss = witness_of(judged(STREAMS[6].history()), "acked-lost")
    assert sequence(loss) == "0! 1- 2 3 4"


def test_a_block_of_3000_delivered_late_is_3000_late_and_nothing_else() -> None:
    """NoSQLBench's tracker calls this 1,000 out of order, 2,000 duplicates, 2,000 lost."""
    block = range(1_000, 4_000)
    partial = judged_tables(
        plain([*range(1_000), *range(4_000, 5_000), *block], 5_000), context_from(History())
    )
    assert {e.cls for e in partial.episodes} == {"producer-reorder"}
    assert sorted(int(message.split("/")[2]) for *_, message in labels(partial)) == list(block)


def test_first_50_and_last_100_missing_are_150_lost() -> None:
    """NoSQLBench's tracker reports none."""
    partial = judged_tables(plain(range(50, 400), 500), context_from(History().bounds(end=350)))
    lost = [(e.cls, e.split, e.count) for e in partial.episodes]
    assert sorted(lost) == [("acked-lost", "prefix", 50), ("acked-lost", "tail", 100)]


def test_several_producers_on_one_partition_are_judged_apart() -> None:
    h = History(producers=3)
    for seq in range(4):
        for instance in (1, 2, 3):
            h.send(seq, instance=instance)
    for instance, seqs in (
        (1, (0, 1)),
        (2, (1, 0)),
        (3, (0, 1, 1)),
        (1, (2, 3)),
        (2, (2, 3)),
        (3, (3,)),
    ):
        h.log(*seqs, instance=instance)
    said = {(cls, message) for cls, _, _, message in labels(judged(h))}
    assert said == {
        ("producer-reorder", "2/0/0"),
        ("write-duplicate", "3/0/1"),
        ("acked-lost", "3/0/2"),
    }


def test_a_violation_is_the_root_cause_before_what_is_permitted() -> None:
    """Late and stored twice: where only "once" is required, the duplicate counts and late is a
    symptom."""
    stored = (0, 2, 1, 1, 3)
    ordered = judged(History().sent(4).log(*stored))
    assert {cls for cls, *_ in labels(ordered)} == {"producer-reorder"}
    unordered = judged(History(promise=UNORDERED).sent(4).log(*stored))
    assert {cls for cls, *_ in labels(unordered)} == {"write-duplicate"}
    assert any(
        s.startswith("producer-reorder") for s in witness_of(unordered, "write-duplicate").symptoms
    )


def test_a_lost_message_that_consumers_saw_says_so() -> None:
    h = History().sent(3).log(0, 1).deliver(0, 1).deliver(2, position=2)
    lost = witness_of(judged(h), "acked-lost")
    assert any("given to session 1" in s for s in lost.symptoms)


def test_lost_witness_names_what_lies_at_its_position() -> None:
    h = History().send(0, position=0).send(1, position=1).send(2, position=1).log(0, 2)
    assert witness_of(judged(h), "acked-lost").detail == "its position 1 holds 1/0/2"


def test_of_an_unread_tail_nothing_is_said_and_a_passed_position_is_proved() -> None:
    h = History()
    for seq in range(8):
        h.send(seq, position=seq)
    h.log(0).log(2, 3, position=2).log(5, position=5).bounds(0, end=8, read_to=4, why="stall")
    found = judged(h)
    unmet = {message: names for cls, _, names, message in labels(found) if cls == "acked-lost"}
    assert unmet == {
        "1/0/1": frozenset(),  # the reader went past position 1
        # something behind it was read, by a reader that does not vouch for it
        "1/0/4": {"audit-complete"},
    }
    assert found.counts["acked_unread"] == 2
    promise = context_from(h).instance(1).promise
    assert status_of("acked-lost", "tail", promise, ["audit-complete"]) is Status.SUSPECT
    assert status_of("acked-lost", "middle", promise) is Status.VIOLATION


def test_of_a_stream_that_nobody_read_nothing_is_said() -> None:
    """A run that was stopped before its audit: neither lost nor suspected, be the outcome known or
    not."""
    h = History().send(0).send(1, "info").deliver(1)
    context = replace(context_from(h), bounds={})
    found = judged_tables(h.tables(), context)
    assert {cls for cls, *_ in labels(found)}.isdisjoint(
        {"acked-lost", "info-not-stored", "delivered-then-lost"}
    )
    assert (found.counts["acked_unread"], found.counts["info_unread"]) == (1, 1)
    assert found.counts["info_not_stored"] == 0


def test_retention_is_not_loss() -> None:
    h = History()
    for seq in range(4):
        h.send(seq, position=seq)
    h.log(2, 3, position=2).bounds(0, begin=2, end=4)
    unmet = {names for cls, _, names, _ in labels(judged(h)) if cls == "acked-lost"}
    assert unmet == {frozenset({"log-kept"})}


def test_a_producer_that_died_loses_nothing_by_dying() -> None:
    """Its open sends are unknown, its journal may lack rows: no phantom, no hang, no loss."""
    h = History().send(0).send(1).send(2, "open").send(3, "open").log(0, 1, 2, 4)
    h.workers["p-1"] = {"done": False, "exit_code": -9}
    said = {(cls, message) for cls, _, _, message in labels(judged(h))}
    assert said == {
        ("info-stored", "1/0/2"),
        ("info-not-stored", "1/0/3"),
        ("send-record-missing", "1/0/4"),
    }


def test_what_lies_before_the_first_assignment_is_not_proved_missing() -> None:
    h = History().sent(4).log(0, 1, 2, 3).assign(0, position=2).deliver(2, 3)
    assert {names for cls, _, names, _ in labels(judged(h))} == {frozenset({"start-known"})}
    again = History(sessions=2).sent(4).log(0, 1, 2, 3).assign(0).deliver(0).commit(2).revoke(0)
    again.assign(0, session=2, position=2).deliver(2, 3, session=2)
    assert list(labels(judged(again))) == [("not-dispatched", "not given", frozenset(), "1/0/1")]


def test_consumer_groups_are_judged_apart() -> None:
    """Both groups read everything but one message; what one repeats or misses is not the
    other's."""
    h = (
        History(sessions=2)
        .sent(4)
        .log(0, 1, 2, 3)
        .deliver(0, 1, 2, 3)
        .deliver(0, 2, 2, 3, session=2)
    )
    context = context_from(h)
    sessions = {n: replace(s, group=f"group-{n}") for n, s in context.sessions.items()}
    partial = judged_tables(h.tables(), replace(context, sessions=sessions))
    assert {(cls, split, message) for cls, split, _, message in labels(partial)} == {
        ("not-dispatched", "not given", "1/0/1"),
        ("delivery-duplicate", "same assignment", "1/0/2"),
    }
    assert witness_of(partial, "not-dispatched").detail == "group group-2 was not given position 1"
    assert partial.given == {"group-1": 4, "group-2": 4}
    assert partial.given_again == {"group-1": 0, "group-2": 1}
    assert {group: delays.total for group, delays in partial.delays.items()} == {
        "group-1": 4,
        "group-2": 3,
    }


def test_a_probe_is_not_among_the_messages_that_a_group_was_given() -> None:
    h = History().sent(2).log(0, 1).deliver(0, 1).deliver(5, kind=Kind.PROBE, position=2)
    assert sum(judged(h).given.values()) == 2


def test_hits_less_than_a_second_apart_are_one_episode() -> None:
    h = History()
    for seq, at_ms in enumerate((0, 100, 900, 2_500, 2_600)):
        h.send(seq, at_ms=float(at_ms))
    episodes = [
        (e.count, e.last_ns - e.first_ns) for e in judged(h).episodes if e.cls == "acked-lost"
    ]
    assert episodes == [(3, 900_000_000), (2, 100_000_000)]


def test_counts_add_up_to_the_attempts() -> None:
    h = History().send(0).send(1, "fail").send(2, "info").send(3, "open").send(4, "info", late="ok")
    h.log(0, 2, 4)
    counts = judged(h).counts
    assert counts["attempted"] == 5 == counts["ok"] + counts["fail"] + counts["info"]
    assert (counts["info_stored"], counts["info_not_stored"], counts["open"]) == (2, 1, 1)
    assert (counts["late_outcomes"], counts["stored"], counts["send_rows"]) == (1, 3, 5)


def test_an_empty_bucket_has_nothing_to_say() -> None:
    partial = judged(History())
    assert partial.episodes == []
    assert set(partial.counts.values()) == {0}
