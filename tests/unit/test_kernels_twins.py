"""One tiny history a class, beside its innocent twin: almost the same, and nothing (or nothing bad) in it."""

from __future__ import annotations

import pytest

from analysis.classes import CLASSES, status_of
from analysis.findings import Status
from harness.records import Check, Kind, Txn
from tests.planted.pairs import Found, Pair, found
from tests.planted.tiny import EPOCH_NS, History


def five(**where: int) -> History:
    """Five messages sent, stored in order."""
    return History(**where).sent(5).log(0, 1, 2, 3, 4)


def corrupt_in_log() -> History:
    h = History().sent(5).log(0, 1).log(2, check=Check.CORRUPT).log(3, 4)
    h.rows["sends"][2] |= {"position": 2}
    return h


def lost_under_corrupt_neighbour() -> History:
    """Message 1 is corrupt at its place; 3 is lost elsewhere: both are told."""
    h = History().sent(5).log(0).log(1, check=Check.CORRUPT).log(2, 4)
    for seq, position in ((1, 1), (3, 9)):
        h.rows["sends"][seq] |= {"position": position}
    return h


def corrupt_delivery() -> History:
    h = five().deliver(0, 1, 2, 3, 4)
    h.rows["deliveries"][2] |= {"check": Check.CORRUPT, "seq": 0, "instance": 0, "kind": 0}
    return h


def died(history: History) -> History:
    history.workers["p-1"] = {"done": False, "exit_code": -9}
    return history


def hole(stored: bool) -> History:
    h = History()
    for seq in (0, 1, 3, 4):
        h.send(seq)
    return h.log(0, 1, 2, 3, 4) if stored else h.log(0, 1, 3, 4)


def keyed(*partitions: int) -> History:
    """Messages 0, 1, 2 ... of key 0, each in the given partition."""
    h = History(partitions=2, mode="key")
    for seq, partition in enumerate(partitions):
        h.send(seq, lane=0, partition=partition).log(seq, lane=0, partition=partition)
    return h


def routed(*partitions: int) -> History:
    h = History(partitions=2, mode="routed")
    for seq, partition in enumerate(partitions):
        h.send(seq, lane=0, partition=partition).log(seq, lane=0, partition=partition)
    return h


def acked_at(position: int) -> History:
    h = History()
    for seq in range(5):
        h.send(seq, position=position if seq == 2 else seq)
    return h.log(0, 1, 2, 3, 4)


def opened(for_s: float) -> History:
    """Message 2 is never answered; the producer ends ``for_s`` seconds after the call. Deadline: 130 s."""
    h = History()
    for seq in range(5):
        h.send(seq, "open" if seq == 2 else "ok", at_ms=float(seq))
    h.log(0, 1, 2, 3, 4)
    h.workers["p-1"] = {"t_end_ns": EPOCH_NS + 2_000_000 + round(for_s * 1e9)}
    return h


def frozen(history: History) -> History:
    row = {"worker": "p-1", "kind": "frozen", "t_ns": EPOCH_NS + 100 * 10**9, "frozen_ns": 60 * 10**9}
    history.events.append(row)
    return history


def rebalanced(commit: int, start: int) -> History:
    """0..3 delivered, ``commit`` committed, then another session is given the partition from ``start``."""
    h = History(sessions=2).sent(5).log(0, 1, 2, 3, 4)
    h.assign(0).deliver(0, 1, 2, 3).commit(commit).revoke(0)
    return h.assign(0, session=2).deliver(*range(start, 5), session=2)


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
    h.log(0, 1, 2, 3).assign(0, at_ms=0).deliver(0, at_ms=400).deliver(1, at_ms=500).deliver(2, at_ms=700)
    return h.deliver(3, at_ms=900 + for_s * 1e3)


def aborted(outcome: str) -> History:
    h = History()
    for seq in range(4):
        h.send(seq, outcome if seq == 2 else "ok", position=seq)
    h.log(0, 1, 2, 3)
    h.rows["log"][2]["txn"] = Txn.ABORTED
    return h


def vanished(outcome: str) -> History:
    """Message 4 was delivered from position 4 and is not in the log."""
    h = History()
    for seq in range(5):
        h.send(seq, outcome if seq == 4 else "ok")
    return h.log(0, 1, 2, 3).deliver(0, 1, 2, 3).deliver(4, position=4)


def resent(attempts: int) -> History:
    h = History().send(0).send(1, "info")
    for attempt in range(1, attempts):
        h.send(1, attempt=attempt)
    h.log(0, 1)
    for attempt in range(1, attempts):
        h.log(1, attempt=attempt)
    return h


INFO_STORED = {("info-stored", ""): ["1/0/1"]}
AFTER_REBALANCE = ("delivery-duplicate", "after rebalance")
NOT_MINE: Found = {}

PAIRS = [
    Pair(
        "corrupt",
        corrupt_in_log,
        {("corrupt", "in the log"): ["1/0/2"]},
        five,
        NOT_MINE,
    ),
    Pair(
        "corrupt beside a loss",
        lost_under_corrupt_neighbour,
        {("corrupt", "in the log"): ["1/0/1"], ("acked-lost", "middle"): ["1/0/3"]},
        five,
        NOT_MINE,
    ),
    Pair(
        "corrupt in delivery",
        corrupt_delivery,
        {("corrupt", "in delivery"): ["1/0/1"]},
        lambda: five().deliver(0, 1, 2, 3, 4),
        NOT_MINE,
    ),
    Pair(
        "phantom",
        lambda: History().sent(3).log(0, 1, 97, 2),
        {("phantom", "never sent"): ["1/0/97"]},
        lambda: History().sent(3).log(0, 1).log(97, kind=Kind.PROBE).log(2),  # a readiness probe
        NOT_MINE,
    ),
    Pair(
        "phantom of nobody",
        lambda: History().sent(3).log(0, 1).log(0, instance=9).log(2),
        {("phantom", "never sent"): ["9/0/0"]},
        lambda: History(producers=2).sent(3).sent(1, instance=2).log(0, 1).log(0, instance=2).log(2),
        NOT_MINE,
    ),
    Pair(
        "foreign payload",
        lambda: History().sent(2).log(0).log(0, check=Check.FOREIGN).log(1),
        {("phantom", "foreign"): ["orders-0@1"]},
        lambda: History().sent(2).log(0, 1),
        NOT_MINE,
    ),
    Pair(
        "record missing, not phantom",  # the same row as a phantom, but the journal is not whole
        lambda: died(History().sent(3).log(0, 1, 2, 3)),
        {("send-record-missing", "stored"): ["1/0/3"]},
        lambda: died(History().sent(4).log(0, 1, 2, 3)),
        NOT_MINE,
    ),
    Pair(
        "hole in the journal, stored",
        lambda: hole(stored=True),
        {("send-record-missing", "stored"): ["1/0/2"]},
        five,
        NOT_MINE,
    ),
    Pair(
        "hole in the journal, not stored",
        lambda: hole(stored=False),
        {("send-record-missing", "not stored"): ["1/0/2"]},
        five,
        NOT_MINE,
    ),
    Pair(
        "wrong partition",
        lambda: History(partitions=2).sent(3).log(0, 1).log(2, lane=0, partition=1),
        {("wrong-partition", "partition"): ["1/0/2"]},
        lambda: History(partitions=2).sent(3).log(0, 1, 2).send(0, partition=1).log(0, partition=1),
        NOT_MINE,
    ),
    Pair(
        "key in two partitions",
        lambda: keyed(1, 1, 0, 1),
        {("wrong-partition", "key"): ["1/0/2"]},
        lambda: routed(1, 1, 0, 1),
        NOT_MINE,
    ),
    Pair(
        "false nack",
        lambda: History().send(0).send(1, "fail").send(2).log(0, 1, 2),
        {("false-nack", ""): ["1/0/1"]},
        lambda: History().send(0).send(1, "fail").send(2).log(0, 2),
        NOT_MINE,
    ),
    Pair(
        "time-out stored",
        lambda: History().send(0).send(1, "info").send(2).log(0, 1, 2),
        INFO_STORED,
        lambda: History().send(0).send(1, "info").send(2).log(0, 2),
        {("info-not-stored", ""): ["1/0/1"]},
    ),
    Pair(
        "acked lost",
        lambda: History().sent(5).log(0, 1, 3, 4),
        {("acked-lost", "middle"): ["1/0/2"]},
        lambda: History().send(0).send(1).send(2, "fail").send(3).send(4).log(0, 1, 3, 4),
        NOT_MINE,
    ),
    Pair(
        "lost in an aborted transaction",
        lambda: aborted("ok"),
        {("acked-lost", "middle"): ["1/0/2"]},
        lambda: aborted("fail"),
        NOT_MINE,
    ),
    Pair(
        "delivered, then lost",
        lambda: vanished("info"),
        {("delivered-then-lost", ""): ["1/0/4"]},
        lambda: vanished("ok").log(4),
        NOT_MINE,
    ),
    Pair(
        "delivered, acknowledged, then lost",  # the acknowledgement is the root, the delivery a symptom
        lambda: vanished("ok"),
        {("acked-lost", "tail"): ["1/0/4"]},
        lambda: vanished("ok").log(4),
        NOT_MINE,
    ),
    Pair(
        "premature, then repeated",
        lambda: History().sent(5).log(0, 3, 1, 2, 3, 4),
        {("premature-then-repeat", ""): ["1/0/3"]},
        lambda: History().sent(5).log(0, 1, 2, 3, 3, 4),
        {("write-duplicate", "same send"): ["1/0/3"]},  # a duplicate, but nothing was out of order
    ),
    Pair(
        "premature, repeated out of place",  # 3 is not where it belongs the second time either
        lambda: History().sent(5).log(0, 3, 1, 3, 2, 4),
        {("producer-reorder", ""): ["1/0/1", "1/0/2"], ("write-duplicate", "same send"): ["1/0/3"]},
        lambda: five(),
        NOT_MINE,
    ),
    Pair(
        "producer reorder",
        lambda: History().sent(4).log(0, 2, 1, 3),
        {("producer-reorder", ""): ["1/0/1"]},
        # the same jump, but the application sent 1 again: attempts are not ordered
        lambda: History().send(0).send(1, "fail").send(2).send(1, attempt=1).log(0, 2).log(1, attempt=1),
        NOT_MINE,
    ),
    Pair(
        "reorder of one of two producers",
        lambda: History(producers=2).sent(2).sent(2, instance=2).log(1).log(0, 1, instance=2).log(0),
        {("producer-reorder", ""): ["1/0/0"]},
        lambda: History(producers=2).sent(2).sent(2, instance=2).log(0).log(0, 1, instance=2).log(1),
        NOT_MINE,
    ),
    Pair(
        "routed reorder",
        lambda: History(partitions=2, mode="routed").sent(4).log(2, 0).log(1, 3, lane=0, partition=1),
        {("producer-reorder", ""): ["1/0/0"]},
        # 3 before 0 by partition number only: order is promised within a partition
        lambda: History(partitions=2, mode="routed").sent(4).log(1, 3).log(0, 2, lane=0, partition=1),
        NOT_MINE,
    ),
    Pair(
        "write duplicate",
        lambda: History().sent(4).log(0, 1, 2, 1, 2, 3),
        {("write-duplicate", "same send"): ["1/0/1", "1/0/2"]},
        lambda: resent(2),
        {("write-duplicate", "application re-send"): ["1/0/1.1"], **INFO_STORED},
    ),
    Pair(
        "acknowledged elsewhere",
        lambda: acked_at(4),
        {("wrong-ack-position", ""): ["1/0/2"]},
        lambda: acked_at(-1),  # the client told no position
        NOT_MINE,
    ),
    Pair(
        "hang",
        lambda: opened(131),
        {("hang", "never completed"): ["1/0/2"]},
        lambda: opened(129),
        {("info-stored", ""): ["1/0/2"]},
    ),
    Pair(
        "hang past a freeze",
        lambda: frozen(opened(191)),
        {("hang", "never completed"): ["1/0/2"]},
        lambda: frozen(opened(189)),
        {("info-stored", ""): ["1/0/2"]},
    ),
    Pair(
        "completed past the deadline",
        lambda: History().send(0, took_ms=131_000).log(0),
        {("hang", "completed late"): ["1/0/0"]},
        lambda: History().send(0, took_ms=129_000).log(0),
        NOT_MINE,
    ),
    Pair(
        "rewind past commit",
        lambda: rebalanced(commit=4, start=2),
        {("rewind-past-commit", ""): ["1/0/2", "1/0/3"]},
        lambda: rebalanced(commit=2, start=2),
        {AFTER_REBALANCE: ["1/0/2", "1/0/3"]},
    ),
    Pair(
        "not dispatched",
        lambda: five().deliver(0, 1, 3, 4),
        {("not-dispatched", ""): ["1/0/2"]},
        lambda: History().sent(3).log(0, 1, 2, 2).deliver(0, 1, 2),  # one copy of two is enough
        {("write-duplicate", "same send"): ["1/0/2"]},
    ),
    Pair(
        "delivery reorder",
        lambda: five().deliver(0, 2, 1, 3, 4),
        {("delivery-reorder", ""): ["1/0/1"]},
        lambda: History().sent(4).log(0, 2, 1, 3).deliver(0, 2, 1, 3),  # as the log has it
        {("producer-reorder", ""): ["1/0/1"]},
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
        NOT_MINE,
    ),
    Pair(
        "stall under a fault",
        lambda: waited(30).fault("kill", "kafka-1", 5_000, 15_000),
        {("stall", "resumed"): ["orders-0"]},
        lambda: waited(30).fault("kill", "kafka-1", 5_000, 25_000),
        NOT_MINE,
    ),
    Pair(
        "nothing waited",  # nobody knows that message 3 is there
        lambda: waited(40),
        {("stall", "resumed"): ["orders-0"]},
        lambda: waited(40, acked=False),
        {("info-stored", ""): ["1/0/3"]},
    ),
]

HARMLESS = {Status.PERMITTED, Status.INFO}
#: Twins that differ by their class only: told for what they are, which the promise decides.
OTHER_CLASS = {"premature, then repeated", "not dispatched", "delivery reorder"}


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_class_and_innocent_twin(pair: Pair) -> None:
    assert found(pair.guilty()) == pair.shows
    assert found(pair.innocent()) == pair.twin
    if pair.name not in OTHER_CLASS:
        assert {status_of(cls, split, None) for cls, split in pair.twin} <= HARMLESS


def aborted_delivered() -> History:
    return aborted("fail").deliver(0, 1, 2, 3)


def test_aborted_read_depends_on_what_the_consumer_asked_for() -> None:
    strict = found(aborted_delivered(), committed_only=True)
    assert strict == {("aborted-read", "read committed"): ["1/0/2"]}
    lenient = found(aborted_delivered(), committed_only=False)
    assert lenient == {("aborted-read", "read uncommitted"): ["1/0/2"]}
    assert status_of("aborted-read", "read committed", None) is Status.VIOLATION
    assert status_of("aborted-read", "read uncommitted", None) is Status.PERMITTED


#: Classes with their pairs in test_pulsar_twins.py and test_queue_twins.py.
ELSEWHERE = {
    "backlog-stuck",
    "client-sequence-regression",
    "committed-and-redelivered",
    "dedup-silent-loss",
    "given-up",
    "lost-after-rollback",
    "per-key-reorder",
    "premature-redelivery",
    "redelivered-after-ack",
    "rollback-order",
    "twice-in-transaction",
    "unchecked-failure",
}


def test_every_class_has_a_pair() -> None:
    shown = {cls for pair in PAIRS for cls, _ in (*pair.shows, *pair.twin)}
    assert shown | {"aborted-read"} | ELSEWHERE == set(CLASSES)
