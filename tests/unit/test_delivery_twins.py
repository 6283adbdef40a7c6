"""Classes of delivery from a log: a tiny history each, and its near-miss."""

from __future__ import annotations

import pytest

from analysis.classes import status_of
from analysis.findings import Status
from harness.contracts.plan import ConsumerPromise
from harness.records import Check
from tests.oracles.judging import judged, labels
from tests.planted.pairs import Found, Pair, aborted, five, found
from tests.planted.tiny import EPOCH_NS, History
from tests.planted.tiny_pipelines import committed


def damaged_delivery(check: Check, logged: Check = Check.OK) -> History:
    """Message 1 is given out damaged, and its place in the log holds a row of ``logged``."""
    h = five().deliver(0, 1, 2, 3, 4)
    nameless = {"seq": 0, "instance": 0, "kind": 0}
    h.rows["deliveries"][2] |= {"check": check, **nameless}
    if logged != Check.OK:
        h.rows["log"][1] |= {"check": logged, **nameless}
    return h


def rebalanced(commit: int, start: int) -> History:
    """0..3 delivered, ``commit`` committed, then another session is given the partition from
    ``start``."""
    h = History(sessions=2).sent(5).log(0, 1, 2, 3, 4)
    h.assign(0).deliver(0, 1, 2, 3).commit(commit).revoke(0)
    return h.assign(0, session=2).deliver(*range(start, 5), session=2)


def from_latest() -> History:
    return History(reading=ConsumerPromise(start="latest")).sent(5).log(0, 1, 2, 3, 4).assign(0)


def twice(seek: bool) -> History:
    h = five().assign(0).deliver(0, 1, 2)
    if seek:
        h.seek(1)
    return h.deliver(1, position=1).deliver(2, position=2).deliver(3, 4)


def waited(for_s: float, *, acked: bool = True) -> History:
    """Message 3 is stored at 1 s and delivered ``for_s`` later."""
    h = History()
    for seq in range(4):
        h.send(seq, "ok" if acked or seq < 3 else "info", at_ms=seq * 300.0)
    h.log(0, 1, 2, 3).assign(0, at_ms=0).deliver(0, at_ms=400).deliver(1, at_ms=500).deliver(
        2, at_ms=700
    )
    return h.deliver(3, at_ms=900 + for_s * 1e3)


def given_back(*, taken: bool = False, closed_s: float = 30.0, runs_s: float = 30.0) -> History:
    """Two members; the one that held the partition gives it back at 0.6 s, and 1 waits in it from
    0.9 s on.

    The last producer is closed after ``closed_s``, the members run until ``runs_s``.
    """
    h = (
        History(sessions=2)
        .send(0)
        .send(1, at_ms=900)
        .log(0, 1)
        .assign(0, at_ms=0)
        .deliver(0, at_ms=500)
    )
    h.revoke(0, at_ms=600)
    if taken:
        h.assign(0, session=2, at_ms=15_000).deliver(1, session=2, at_ms=15_500)
    else:
        h.revoke(0, at_ms=29_000)  # a client that closes may say so again
    h.workers |= {f"c-{i}": {"t_end_ns": EPOCH_NS + round(runs_s * 1e9)} for i in (1, 2)}
    h.workers["p-1"] = {"t_end_ns": EPOCH_NS + round(closed_s * 1e9)}
    return h


def missed(for_s: float) -> History:
    """Members of a share group: one is killed at 0.8 s, and what waited for it comes ``for_s``
    later."""
    share = ConsumerPromise(subscription="shared", order="none", member_timeout_s=20.0)
    h = History(sessions=2, reading=share, settle="ack")
    for seq in range(4):
        h.send(seq, at_ms=seq * 300.0)
    h.log(0, 1, 2, 3).assign(0, session=2, at_ms=0).deliver(0, 1, 2, at_ms=700)
    h.deliver(3, session=2, at_ms=900 + for_s * 1e3)
    h.workers["c-1"] = {"killed": True, "done": False, "t_end_ns": EPOCH_NS + 800_000_000}
    return h


def vanished(outcome: str) -> History:
    """Message 4 was delivered from position 4 and is not in the log."""
    h = History()
    for seq in range(5):
        h.send(seq, outcome if seq == 4 else "ok")
    return h.log(0, 1, 2, 3).deliver(0, 1, 2, 3).deliver(4, position=4)


NOTHING: Found = {}
NEVER_GIVEN: Found = {("not-dispatched", "not given"): ["1/0/1"]}


def unsent_commit(end: int) -> History:
    """0..4 delivered, and the commit of 5 confirmed without a request; in the end the group is at
    ``end``."""
    h = five().assign(0).deliver(0, 1, 2, 3, 4).commit_not_sent(5)
    return committed(h, end, group="group")


PAIRS = [
    Pair(
        "a commit that the client confirmed and never sent",
        lambda: unsent_commit(3),
        {("commit-not-sent", "not covered"): ["orders-0@5"]},
        lambda: unsent_commit(5),
        {("commit-not-sent", "covered later"): ["orders-0@5"]},
    ),
    Pair(
        "corrupt in delivery",
        lambda: damaged_delivery(Check.CORRUPT),
        {("corrupt", "in delivery"): ["1/0/1"]},
        lambda: five().deliver(0, 1, 2, 3, 4),
        NOTHING,
    ),
    Pair(
        # the mark of its header is what was damaged; it was given out all the same
        "damaged beyond recognition in delivery",
        lambda: damaged_delivery(Check.FOREIGN),
        {("corrupt", "in delivery"): ["1/0/1"]},
        lambda: damaged_delivery(Check.FOREIGN, Check.FOREIGN),
        {("phantom", "foreign"): ["orders-0@1"], ("acked-lost", "middle"): ["1/0/1"]},
        by_class=True,
    ),
    Pair(
        "the tag of its run damaged in delivery",
        lambda: damaged_delivery(Check.OTHER_RUN),
        {("corrupt", "in delivery"): ["1/0/1"]},
        lambda: five().deliver(0, 1, 2, 3, 4),
        NOTHING,
    ),
    Pair(
        "delivered, then lost",
        lambda: vanished("info"),
        {("delivered-then-lost", "seen"): ["1/0/4"]},
        lambda: vanished("ok").log(4),
        NOTHING,
    ),
    Pair(
        # the acknowledgement is the root, the delivery a symptom
        "delivered, acknowledged, then lost",
        lambda: vanished("ok"),
        {("acked-lost", "tail"): ["1/0/4"]},
        lambda: vanished("ok").log(4),
        NOTHING,
    ),
    Pair(
        "rewind past commit",
        lambda: rebalanced(commit=4, start=2),
        {("rewind-past-commit", ""): ["1/0/2", "1/0/3"]},
        lambda: rebalanced(commit=2, start=2),
        {("delivery-duplicate", "after rebalance"): ["1/0/2", "1/0/3"]},
    ),
    Pair(
        "not dispatched",
        lambda: five().deliver(0, 1, 3, 4),
        {("not-dispatched", "not given"): ["1/0/2"]},
        lambda: History().sent(3).log(0, 1, 2, 2).deliver(0, 1, 2),  # one copy of two is enough
        {("write-duplicate", "same send"): ["1/0/2"]},
        by_class=True,
    ),
    Pair(
        "a group that begins at the latest message",
        lambda: from_latest().deliver(1, 2, 4),
        {
            ("not-dispatched", "before the start"): ["1/0/0"],
            ("not-dispatched", "not given"): ["1/0/3"],
        },
        lambda: from_latest().deliver(2, 3, 4),
        {("not-dispatched", "before the start"): ["1/0/0", "1/0/1"]},
    ),
    Pair(
        "delivery reorder",
        lambda: five().deliver(0, 2, 1, 3, 4),
        {("delivery-reorder", ""): ["1/0/1"]},
        lambda: History().sent(4).log(0, 2, 1, 3).deliver(0, 2, 1, 3),  # as the log has it
        {("producer-reorder", ""): ["1/0/1"]},
        by_class=True,
    ),
    Pair(
        "delivered twice",
        lambda: twice(seek=False),
        {("delivery-duplicate", "same assignment"): ["1/0/1", "1/0/2"]},
        lambda: twice(seek=True),
        {("delivery-duplicate", "after seek"): ["1/0/1", "1/0/2"]},
    ),
    Pair(
        "stall",
        lambda: waited(15.5),
        {("stall", "resumed"): ["orders-0"]},
        lambda: waited(14.5),
        NOTHING,
    ),
    Pair(
        "stall under a fault",
        lambda: waited(30).fault("kill", "kafka-1", 5_000, 15_000),
        {("stall", "resumed"): ["orders-0"]},
        lambda: waited(30).fault("kill", "kafka-1", 5_000, 25_000),
        NOTHING,
    ),
    Pair(
        "a share group that knew of its dead member",
        lambda: missed(36.0),
        {("stall", "resumed"): ["orders-0"]},
        lambda: missed(34.0),
        NOTHING,
    ),
    Pair(
        "held by nobody",
        given_back,
        {("stall", "held by nobody"): ["orders-0"], **NEVER_GIVEN},
        lambda: given_back(taken=True),
        NOTHING,
    ),
    Pair(
        "given back as the last act",  # when the producer is closed, consumers are, too
        lambda: given_back(closed_s=16.5),
        {("stall", "held by nobody"): ["orders-0"], **NEVER_GIVEN},
        lambda: given_back(closed_s=15.5),
        NEVER_GIVEN,
        by_class=True,
    ),
    Pair(
        "nobody was there to be given it",
        lambda: given_back(runs_s=16.5),
        {("stall", "held by nobody"): ["orders-0"], **NEVER_GIVEN},
        lambda: given_back(runs_s=15.5),
        NEVER_GIVEN,
        by_class=True,
    ),
    Pair(
        "nothing waited",  # nobody knows that message 3 is there
        lambda: waited(40),
        {("stall", "resumed"): ["orders-0"]},
        lambda: waited(40, acked=False),
        {("info-stored", ""): ["1/0/3"]},
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_class_and_innocent_twin(pair: Pair) -> None:
    pair.check()


def aborted_delivered() -> History:
    return aborted("fail").deliver(0, 1, 2, 3)


def test_aborted_read_depends_on_what_the_consumer_asked_for() -> None:
    strict = found(aborted_delivered(), committed_only=True)
    assert strict == {("aborted-read", "read committed"): ["1/0/2"]}
    lenient = found(aborted_delivered(), committed_only=False)
    assert lenient == {("aborted-read", "read uncommitted"): ["1/0/2"]}
    assert status_of("aborted-read", "read committed", None) is Status.VIOLATION
    assert status_of("aborted-read", "read uncommitted", None) is Status.PERMITTED


def test_what_a_group_skips_by_beginning_at_the_latest_message_again_is_not_known() -> None:
    """Nothing was committed when the partition was assigned again, so the client may have begun
    anew."""
    again = from_latest().deliver(0, 1).revoke(0).assign(0).deliver(4)
    assert list(labels(judged(again))) == [
        ("not-dispatched", "not given", frozenset({"start-known"}), f"1/0/{seq}") for seq in (2, 3)
    ]
    assert status_of("not-dispatched", "before the start", None) == Status.PERMITTED
