"""Classes of queues, which keep no log: a tiny history each, and its near-miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.classes import status_of
from analysis.findings import Status
from analysis.verdict.untested import untested
from harness.records import Event
from tests.oracles.judging import context_from, judged, judged_tables, labels
from tests.planted.pairs import Found, Pair, found
from tests.planted.plans import build_plan
from tests.planted.queue_stories import (
    BACK,
    DONE,
    NO_DEDUP,
    QUEUE,
    consumed,
    queue,
    redelivered,
    rolled_back,
    work_queue,
)
from tests.planted.tiny import EPOCH_NS, History

NOTHING: Found = {}


def repeated(*seqs: int) -> tuple[tuple[str, str], list[str]]:
    return ("delivery-duplicate", "after rollback"), [f"1/0/{seq}" for seq in seqs]


def acknowledged(*, refused: bool) -> History:
    """Client acknowledgement: each message is acknowledged, or 2 refused; 2 comes again."""
    h = queue("ack")
    for seq in range(6):
        h.deliver(seq)
        if seq == 2 and refused:
            h.ends(Event.NACK)
        else:
            h.ends(Event.ACK_CALLED, Event.ACK_CONFIRMED)
    return h.deliver(2).ends(Event.ACK_CALLED, Event.ACK_CONFIRMED)


def without_an_answer(*acknowledged: int) -> History:
    """AMQP 0-9-1: the broker does not answer acknowledgements. All are given, and none remains."""
    h = queue("ack")
    for seq in range(6):
        h.deliver(seq)
        if seq in acknowledged:
            h.ends(Event.ACK_CALLED)
    return h


def each_by_itself(*acknowledged: int) -> History:
    """A work queue of NATS: all are given before the first is acknowledged, each by its
    position."""
    h = work_queue().deliver(0, 1, 2, 3, 4, 5, position=1)
    return h.acked(*(seq + 1 for seq in acknowledged))


def given_again(*, confirmed: bool = True, timeout_s: float = 30.0, fault: bool = False) -> History:
    """2 is acknowledged, and comes again to another member 20 s later; there it is acknowledged,
    too."""
    h = work_queue(confirmed=confirmed, timeout_s=timeout_s).deliver(0, 1, 2, 3, 4, 5, position=1)
    if fault:
        h.fault("kill", "nats-1", 1_005, 1_006)
    h.at(3_000).acked(1, 2, 3, 4, 5, 6)
    return h.at(23_000).deliver(2, position=3, session=2).acked(3, session=2)


def silent(
    *given: int, event: tuple[Event, ...], for_s: float = 20.0, settle: str = "transacted"
) -> History:
    """Delivered and ended as told at 2 s, then nothing until the session is closed; what is left
    remains."""
    h = queue(settle).deliver(*given, at_ms=1_500).ends(*event, at_ms=2_000)
    h.log(*(seq for seq in range(6) if event == BACK or settle == "none" or seq not in given))
    h.workers["c-1"] = {"t_start_ns": EPOCH_NS, "t_end_ns": EPOCH_NS + round((2 + for_s) * 1e9)}
    h.manifest["drained"] = False
    return h


AGAIN = dict([repeated(0, 1, 2, 3)])
PAIRS = [
    Pair(
        "lost from a queue",
        lambda: consumed(0, 1, 2, remain=(4, 5)),
        {("acked-lost", "middle"): ["1/0/3"], ("not-dispatched", "not given"): ["1/0/4", "1/0/5"]},
        lambda: consumed(0, 1, 2, 3, 4, 5),
        NOTHING,
    ),
    Pair(
        "an acknowledgement that nobody answers",
        lambda: without_an_answer(0, 1, 2, 3, 4),
        {("lost-after-rollback", "never committed"): ["1/0/5"]},
        lambda: without_an_answer(0, 1, 2, 3, 4, 5),
        NOTHING,
    ),
    Pair(
        "order after a rollback",
        lambda: rolled_back((0, 1, 2, 3), (4, 0, 1, 2, 3, 5)),
        AGAIN | {("rollback-order", "after a rollback"): ["1/0/4"]},
        lambda: rolled_back((0, 1, 2, 3), (0, 1, 2, 3, 4, 5)),
        AGAIN,
    ),
    Pair(
        "order after a recover",
        lambda: rolled_back((0, 1, 2, 3), (1, 0, 2, 3, 4, 5), (Event.RECOVER,)),
        AGAIN | {("rollback-order", "after a recover"): ["1/0/1"]},
        lambda: rolled_back((0, 1, 2, 3), (0, 1, 2, 3, 4, 5), (Event.RECOVER,)),
        AGAIN,
    ),
    Pair(
        "another session may have it",
        lambda: rolled_back((0, 1, 2, 3), (1, 0, 2, 3, 4, 5)),
        AGAIN | {("rollback-order", "after a rollback"): ["1/0/1"]},
        lambda: (
            queue(sessions=2)
            .deliver(0, 1, 2, 3)
            .ends(*BACK)
            .deliver(1, 2, 3, 4, 5)
            .ends(*DONE)
            .deliver(0, session=2)
            .ends(*DONE, session=2)
        ),
        AGAIN,
    ),
    Pair(
        "twice in a transaction",
        lambda: rolled_back((0, 1, 2, 3), (4, 0, 1, 2, 3, 4, 5)),
        AGAIN
        | {
            ("rollback-order", "after a rollback"): ["1/0/4"],
            ("twice-in-transaction", ""): ["1/0/4"],
        },
        lambda: rolled_back((0, 1, 2, 3), (0, 1, 2, 3, 4, 5)),
        AGAIN,
    ),
    Pair(
        "lost after a rollback",
        lambda: rolled_back((0, 1, 2, 3), (0, 1, 3, 4, 5)),
        dict([repeated(0, 1, 3)]) | {("lost-after-rollback", "rolled back"): ["1/0/2"]},
        lambda: rolled_back((0, 1, 2, 3), (0, 1, 3, 4, 5)).log(2),  # it remains
        dict([repeated(0, 1, 3)]),
    ),
    Pair(
        "never committed and gone",
        lambda: queue().deliver(0, 1, 2, 3).ends(*DONE).deliver(4, 5),
        {("lost-after-rollback", "never committed"): ["1/0/4", "1/0/5"]},
        # in doubt
        lambda: queue().deliver(0, 1, 2, 3).ends(*DONE).deliver(4, 5).ends(Event.COMMIT_CALLED),
        NOTHING,
    ),
    Pair(
        "committed and delivered again",
        lambda: redelivered(DONE),
        {("committed-and-redelivered", ""): ["1/0/3"]},
        lambda: redelivered(BACK),
        AGAIN,
    ),
    Pair(
        "acknowledged and delivered again",
        lambda: acknowledged(refused=False),
        {("redelivered-after-ack", "confirmed"): ["1/0/2"]},
        lambda: acknowledged(refused=True),
        dict([repeated(2)]),
    ),
    Pair(
        "a work queue drops what was not acknowledged",
        lambda: each_by_itself(0, 2, 3, 4, 5),
        {("lost-after-rollback", "never committed"): ["1/0/1"]},
        lambda: each_by_itself(0, 1, 2, 3, 4, 5),
        NOTHING,
    ),
    Pair(
        "a work queue gives an acknowledged message again",
        given_again,
        {("redelivered-after-ack", "confirmed"): ["1/0/2"]},
        lambda: given_again(confirmed=False),
        {("delivery-duplicate", "no receipt"): ["1/0/2"]},
    ),
    Pair(
        "an acknowledgement that came too late, or through a fault",
        given_again,
        {("redelivered-after-ack", "confirmed"): ["1/0/2"]},
        lambda: given_again(timeout_s=1.0),
        {("delivery-duplicate", "after ack timeout"): ["1/0/2"]},
    ),
    Pair(
        "a fault before the acknowledgement was confirmed",
        given_again,
        {("redelivered-after-ack", "confirmed"): ["1/0/2"]},
        lambda: given_again(fault=True),
        {("delivery-duplicate", "confirmed after a fault"): ["1/0/2"]},
    ),
    Pair(
        "nothing after a rollback",
        lambda: silent(0, 1, 2, 3, event=BACK),
        {
            ("hang", "no delivery after a rollback"): ["orders-0"],
            ("not-dispatched", "not given"): ["1/0/4", "1/0/5"],
        },
        lambda: silent(0, 1, 2, 3, 4, 5, event=BACK, for_s=14.0),
        NOTHING,
    ),
    Pair(
        "backlog stuck",
        lambda: silent(0, 1, event=DONE),
        {
            ("backlog-stuck", ""): ["orders-0"],
            ("not-dispatched", "not given"): ["1/0/2", "1/0/3", "1/0/4", "1/0/5"],
        },
        lambda: silent(0, 1, 2, 3, 4, 5, event=DONE),
        NOTHING,
    ),
]


def refused_for_good(
    *remain: int, is_read: bool = True, drained: bool = True
) -> set[tuple[str, str]]:
    """The classes of 5, which is refused and moves to the queue of dead letters, if it is there."""
    h = History(system="qpid", reading=QUEUE, settle="ack", promise=NO_DEDUP)
    plan = build_plan(
        topics={"orders": 1, "dead": 1}, system="qpid", promise=NO_DEDUP, reading=QUEUE
    )
    members = [each.model_copy(update={"topics": ["orders"]}) for each in plan.consumers]
    h.planned(plan.model_copy(update={"consumers": members})).sent(6).at(1_000)
    for seq in range(5):
        h.deliver(seq).ends(Event.ACK_CALLED, Event.ACK_CONFIRMED)
    h.deliver(5).ends(Event.NACK).log(*remain, partition=1, lane=0)
    if not is_read:
        h.bounds(1, end=9, read_to=0, why="stalled")
    context = replace(context_from(h), drained=drained, moves={"orders-0": "dead-0"})
    return {(cls, split) for cls, split, _, _ in labels(judged(h, context))}


def test_a_dead_letter_is_where_its_queue_moves_it() -> None:
    assert refused_for_good(5) == set()
    assert refused_for_good() == {("lost-after-rollback", "rolled back")}
    assert refused_for_good(is_read=False) == set(), "it may be in the part that was not read"
    assert refused_for_good(drained=False) == set(), "it may be on the way"


def test_a_queue_whose_consumer_settles_nothing_is_not_stuck_and_was_not_tested() -> None:
    for settle, is_judged in (("auto", True), ("none", False)):
        h = silent(0, 1, event=(), settle=settle)
        assert (("backlog-stuck", "") in found(h)) is is_judged
        assert ("backlog-stuck" not in untested(context_from(h), {})) is is_judged


def test_a_refusal_of_a_message_that_another_bucket_holds_gives_back_nothing() -> None:
    h = queue("ack", partitions=2).sent(1, partition=1)
    h.deliver(0, 1, 2, 3, 4, 5).deliver(0, partition=1).ends(Event.NACK)
    h.deliver(0, partition=1).ends(Event.ACK_CALLED, Event.ACK_CONFIRMED)
    assert {label[:2] for label in labels(judged(h))} == {("delivery-duplicate", "after rollback")}
    tables = h.tables()
    for table, key, other in (("sends", "lane", 1), ("deliveries", "stream", 2)):
        is_ours = tables[table][key] != other
        tables[table] = {name: column[is_ours] for name, column in tables[table].items()}
    assert not labels(judged_tables(tables, context_from(h)))


def test_what_a_queue_had_given_out_when_it_was_recreated_is_no_loss() -> None:
    h = queue().deliver(0, 1, 2, 3, 4, 5)
    assert found(h) == {
        ("lost-after-rollback", "never committed"): [f"1/0/{seq}" for seq in range(6)]
    }
    h.fault("recreate-topic", "orders", 1_500, 2_000, details={"remade": ["orders"]})
    assert ("lost-after-rollback", "never committed") not in found(h)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_class_and_innocent_twin(pair: Pair) -> None:
    pair.check(Status.PERMITTED)


def test_the_first_messages_after_a_roll_back_are_shown_with_the_displacement() -> None:
    h = rolled_back((0, 1, 2, 3), (5, 0, 1, 2, 3, 4))
    episode = next(e for e in judged(h).episodes if e.cls == "rollback-order")
    witness = episode.witnesses[0]
    assert (
        witness.detail
        == "session 1 was given 5 where 0 was due, 5 places early; the first ones: 5 0 1 2 3"
    )
    steps = [(step.seq, step.mark) for step in witness.around]
    assert steps == [
        (0, ""),
        (1, ""),
        (2, ""),
        (3, ""),
        (5, "!"),
        (0, "+"),
        (1, "+"),
        (2, "+"),
        (3, "+"),
    ]


def test_jms_permits_another_order_unless_the_scenario_requires_it() -> None:
    required = NO_DEDUP.model_copy(update={"required": {"order": True}})
    for promise, status in ((NO_DEDUP, Status.PERMITTED), (required, Status.VIOLATION)):
        h = History(system="qpid", promise=promise)
        asked = context_from(h).promise(0)
        assert status_of("rollback-order", "after a rollback", asked) is status


def test_what_a_queue_gave_out_was_stored() -> None:
    """An unknown outcome is told by the deliveries, and a definite failure that comes out is a
    false one."""
    h = History(system="qpid", reading=QUEUE, settle="transacted", promise=NO_DEDUP)
    h.send(0).send(1, "info").send(2, "info").send(3, "fail").send(4)
    h.deliver(0, 1, 3, 4).ends(*DONE)
    assert found(h) == {
        ("info-stored", ""): ["1/0/1"],
        ("info-not-stored", ""): ["1/0/2"],
        ("false-nack", ""): ["1/0/3"],
    }
