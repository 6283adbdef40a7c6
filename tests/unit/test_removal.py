"""A fault that took messages out of a log: no class of transactions or pipelines misses them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from analysis.classes import status_of
from analysis.findings import Status
from analysis.kernels.replicas import stretches
from harness.contracts.plan import PromisePlan
from harness.contracts.rows import ReplicaRow, ReplicaSpan
from tests.oracles.judging import context_from, judged, labels
from tests.planted.plans import DURABLE
from tests.planted.tiny import EPOCH_NS, History
from tests.planted.tiny_pipelines import committed, made, piped
from tests.planted.tiny_transactions import stored
from tests.unit.test_pulsar_twins import confirmed

UNSYNCED = DURABLE.model_copy(update={"synced": False, "required": {}})
Told = dict[tuple[str, str], tuple[Status, int]]


def told(h: History) -> Told:
    """Class and split -> status and count, without what breaks no promise."""
    context = context_from(h)
    found: Told = {}
    for each in judged(h, context).episodes:
        status = status_of(each.cls, each.split, context.promise(each.instance), each.unmet)
        if status is not Status.INFO:
            before = found.get((each.cls, each.split), (status, 0))[1]
            found[each.cls, each.split] = status, before + each.count
    return found


# -- transactions


def in_a_power_loss(h: History, *streams: str, lied: Sequence[str] = ()) -> History:
    """Every node loses its power at 5 s, and is back at 10 s; the next leaders begin at 1."""
    details = {"unkept": list(streams), "lied": list(lied)}
    h.fault("power-loss", "kafka-3", 5_000, 10_000, details=details)
    for partition in range(h.partitions):
        h.led("kafka-1", 0, at_ms=0, partition=partition, first=0)
        h.led("kafka-2", 1, at_ms=9_000, partition=partition, first=1)
    return h


def transacted(
    partitions: tuple[int, ...], *, done_ms: float = 4_000, promise: PromisePlan = UNSYNCED
) -> History:
    """Message 0 of both partitions in no transaction; 1 of some of them in one, committed by
    ``done_ms``."""
    h = History(partitions=2, promise=promise)
    for partition in (0, 1):
        h.send(0, partition=partition, at_ms=1_000)
    for partition in partitions:
        h.send(1, partition=partition, at_ms=2_000, transaction=1, position=1)
    times = {"t_asked_ns": EPOCH_NS + 3_000_000_000, "t_done_ns": EPOCH_NS + round(done_ms * 1e6)}
    h.transactions.append({"instance": 1, "number": 1, "asked": 1, "outcome": 1, **times})
    for partition in (0, 1):
        h.log(0, partition=partition)
    return h


@pytest.mark.parametrize(
    ("unkept", "status", "split"),
    [(("orders-0", "orders-1"), Status.PERMITTED, "power"), (("orders-0",), Status.VIOLATION, "")],
)
def test_a_commit_that_went_with_the_power_is_held_to_what_is_synced(
    unkept: tuple[str, ...], status: Status, split: str
) -> None:
    h = in_a_power_loss(transacted((0, 1)), *unkept)
    for partition in (0, 1):
        h.bounds(partition, end=5)
    found = told(h)
    assert found["lost-commit", split] == (status, 1)


@pytest.mark.parametrize(("unkept", "split"), [("orders-1", "power"), ("orders-0", "committed")])
def test_a_transaction_that_the_power_tore_is_held_to_what_is_synced(
    unkept: str, split: str
) -> None:
    h = stored(in_a_power_loss(transacted((0, 1)), unkept), 1, partition=0)
    status = Status.PERMITTED if split == "power" else Status.VIOLATION
    assert told(h.bounds(1, end=5))["torn-transaction", split] == (status, 1)


@pytest.mark.parametrize(
    ("lied", "status"),
    [
        ("orders-1", Status.SUSPECT),
        ("__transaction_state-7", Status.SUSPECT),
        ("orders-0", Status.VIOLATION),  # has its part of it
    ],
)
def test_a_transaction_is_excused_by_a_disk_that_lied_about_the_part_that_is_gone(
    lied: str, status: Status
) -> None:
    synced = DURABLE.model_copy(update={"synced": True, "required": {}})
    h = in_a_power_loss(transacted((0, 1), promise=synced), "orders-0", "orders-1", lied=[lied])
    h = stored(h, 1, partition=0)
    assert told(h.bounds(1, end=5))["torn-transaction", "power"] == (status, 1)


@pytest.mark.parametrize(("cut_at", "split"), [(2, "power"), (4, "")])
def test_a_message_that_was_aborted_when_the_power_had_taken_its_commit_is_held_to_what_is_synced(
    cut_at: int, split: str
) -> None:
    """The log ends it by a marker at 2, of the leader after the power loss or of the one before."""
    h = stored(in_a_power_loss(transacted((0,)), "orders-0"), 1, how="aborted", partition=0)
    h.leaderships[1]["first"] = cut_at
    status = Status.PERMITTED if split else Status.VIOLATION
    assert told(h)["lost-commit", split] == (status, 1)


# -- pipelines: inputs 0 1 2 are read at 1, 2 and 3 s


def worked(*outputs: int, at: int = 3, **where: Any) -> History:
    """Three inputs, handed to the pipeline; outputs of some of them in the log."""
    h = piped(promise=UNSYNCED, sessions=0, **where)
    h.send(0, at_ms=100).send(1, at_ms=101).send(2, at_ms=102).log(0, 1, 2)
    member = h.plan.pipelines[0].session
    for seq in range(3):
        h.deliver(seq, session=member, at_ms=1_000.0 * (seq + 1))
    h.at(3_100)
    return committed(made(h, *outputs), at)


SKIPPED = ("input-skipped", "no output")
REMADE: dict[str, Any] = {"details": {"remade": ["invoices"]}}
CUT: dict[str, Any] = {"details": {"cut": {"invoices-0": 1}}}
UNKEPT: dict[str, Any] = {"details": {"unkept": ["invoices-0"]}}


@pytest.mark.parametrize(
    ("remade_ms", "expected"),
    [
        (2_500, {("input-skipped", "removed"): (Status.PERMITTED, 2)}),
        (
            1_500,
            {("input-skipped", "removed"): (Status.PERMITTED, 1), SKIPPED: (Status.VIOLATION, 1)},
        ),
        (500, {SKIPPED: (Status.VIOLATION, 2)}),
    ],
)
def test_outputs_from_before_their_topic_was_made_again_are_not_missed(
    remade_ms: float, expected: Told
) -> None:
    h = worked(2).fault("recreate-topic", "invoices", remade_ms - 200, remade_ms, **REMADE)
    assert told(h) == expected


def test_outputs_that_a_fault_cut_off_are_not_missed() -> None:
    """Input 0 went before the cut; nothing of input 2 was ever behind it."""
    h = worked(1, at=3).fault("truncate", "invoices", 3_500, 3_600, **CUT).bounds(1, begin=1)
    for row in h.rows["log"]:
        row["position"] += row["stream"] == 2
    h.bounds(1, begin=1, end=2, read_to=2)
    assert told(h) == {
        ("input-skipped", "removed"): (Status.PERMITTED, 1),
        SKIPPED: (Status.VIOLATION, 1),
    }


@pytest.mark.parametrize(
    ("from_ms", "expected"),
    [
        (5_000, {("input-skipped", "power"): (Status.PERMITTED, 1)}),
        (500, {SKIPPED: (Status.VIOLATION, 1)}),
    ],
)
def test_outputs_that_went_with_the_power_are_held_to_what_is_synced(
    from_ms: float, expected: Told
) -> None:
    h = worked(0, 1).fault("power-loss", "kafka-3", from_ms, from_ms + 1_000, **UNKEPT)
    h.led("kafka-1", 0, at_ms=0, partition=1, first=0)
    h.led("kafka-2", 1, at_ms=from_ms + 900, partition=1, first=2)
    assert told(h) == expected


def test_outputs_of_a_source_that_was_made_again_are_told_apart() -> None:
    """Two topics of one name had a message at position 0, and an output of each is there."""
    h = piped(promise=UNSYNCED, sessions=0).send(0, at_ms=100).send(1, at_ms=101)
    member = h.plan.pipelines[0].session
    h.deliver(0, session=member, position=0, at_ms=200).deliver(
        1, session=member, position=1, at_ms=201
    )
    made(h.at(300), 0, 1)
    h.fault("recreate-topic", "orders", 1_000, 1_200, details={"remade": ["orders"]})
    h.send(2, at_ms=1_300).send(3, at_ms=1_301).log(2, 3)
    h.deliver(2, session=member, position=0, at_ms=1_400).deliver(
        3, session=member, position=1, at_ms=1_401
    )
    assert told(committed(made(h.at(1_500), 0, 1, first=2), 2)) == {
        ("acked-lost", "removed"): (Status.PERMITTED, 2)
    }
    skips = piped(promise=UNSYNCED, sessions=0).send(0, at_ms=100)
    skips.deliver(0, session=member, position=0, at_ms=200)
    made(skips.at(300), 0)
    skips.fault("recreate-topic", "orders", 1_000, 1_200, details={"remade": ["orders"]})
    skips.send(1, at_ms=1_300).log(1).deliver(1, session=member, position=0, at_ms=1_400)
    assert told(committed(skips, 1))[SKIPPED] == (Status.VIOLATION, 1), (
        "its output is that of another message"
    )


def test_what_was_acknowledged_as_a_repeat_by_a_topic_that_is_gone_is_not_lost() -> None:
    h = History(system="pulsar").fault(
        "recreate-topic", "orders", 1_000, 1_200, details={"remade": ["orders"]}
    )
    h.send(0, at_ms=100, dropped=True)
    assert told(h.send(1, at_ms=1_300).log(1)) == {("acked-lost", "removed"): (Status.PERMITTED, 1)}


# -- compaction


def compacted(*, later: bool = True, holder: bool = False) -> History:
    """Key 0 was sent three times: 0 at position 0 and 1 at 1 are not in the log, 2 is at position
    2."""
    h = History(mode="key", keys=1)
    topics = [h.plan.topics[0].model_copy(update={"config": {"cleanup.policy": "compact"}})]
    h.planned(h.plan.model_copy(update={"topics": topics}))
    h.send(0, at_ms=100, position=0).send(1, at_ms=101, position=1)
    if holder:
        h.send(3, at_ms=103).log(3, position=1)
    if later:
        h.send(2, at_ms=102, position=2).log(2, position=2)
    return h


def test_what_a_later_message_of_its_key_replaced_is_no_loss() -> None:
    assert told(compacted()) == {("acked-lost", "compacted"): (Status.PERMITTED, 2)}


def test_the_last_message_of_a_key_is_never_compacted() -> None:
    assert told(compacted(later=False)) == {("acked-lost", "all"): (Status.VIOLATION, 2)}


def test_a_place_that_holds_another_message_was_not_compacted() -> None:
    found = told(compacted(holder=True))
    assert found[("acked-lost", "compacted")] == (Status.PERMITTED, 1)
    assert (
        sum(count for (cls, _), (status, count) in found.items() if status is Status.VIOLATION) >= 1
    )


# -- at the border of a fault


def test_a_message_of_unknown_outcome_was_not_acknowledged_by_a_topic_that_is_gone() -> None:
    """It was given out of the second topic of the name, and is not in it any more."""
    h = History().fault("recreate-topic", "orders", 1_000, 1_200, details={"remade": ["orders"]})
    h.send(0, at_ms=1_300).send(1, "open", at_ms=1_301).log(0)
    h.deliver(0, at_ms=1_400).deliver(1, position=1, at_ms=1_401).bounds(end=5)
    assert told(h)["delivered-then-lost", "seen"] == (Status.VIOLATION, 1)


@pytest.mark.parametrize(
    ("acked_ms", "status"), [(9_900, Status.PERMITTED), (10_100, Status.VIOLATION)]
)
@pytest.mark.parametrize("is_led", [True, False])
def test_what_was_acknowledged_when_the_power_was_back_did_not_go_with_it(
    acked_ms: float, status: Status, is_led: bool
) -> None:
    """The power is back at 10 s. Where leaders began is known, or the log itself tells what was
    kept."""
    h = History(promise=UNSYNCED)
    h.fault("power-loss", "kafka-3", 5_000, 10_000, details={"unkept": ["orders-0"]})
    if is_led:
        h.led("kafka-1", 0, at_ms=0, first=0).led("kafka-2", 1, at_ms=10_500, first=1)
    h.send(0, at_ms=1_000).log(0).send(1, position=1, at_ms=acked_ms - 1).bounds(end=5)
    ((_, found),) = told(h).items()
    assert found == (status, 1)


@pytest.mark.parametrize(
    ("cut_ms", "status"), [(11_900, Status.PERMITTED), (12_100, Status.VIOLATION)]
)
def test_a_leader_that_began_long_after_the_power_was_back_cut_nothing_off_for_it(
    cut_ms: float, status: Status
) -> None:
    """Leaders of before are elected within 2 s of the recovery."""
    h = History(promise=UNSYNCED)
    h.fault("power-loss", "kafka-3", 5_000, 10_000, details={"unkept": ["orders-0"]})
    h.led("kafka-1", 0, at_ms=0, first=0).led("kafka-2", 1, at_ms=cut_ms, first=1)
    h.send(0, at_ms=1_000).log(0).send(1, position=1, at_ms=4_000).bounds(end=5)
    ((_, found),) = told(h).items()
    assert found == (status, 1)


def test_the_first_message_that_a_fault_left_is_missed_by_a_group_that_was_not_given_it() -> None:
    h = History().sent(4).log(0, 1, 2, 3).deliver(3)
    h.fault("truncate", "orders", 500, 600, details={"cut": {"orders-0": 2}})
    assert told(h) == {("not-dispatched", "not given"): (Status.VIOLATION, 1)}


def test_rows_behind_the_end_of_a_log_that_was_read_again_are_none() -> None:
    """The reader had read two messages before the log was cut there, and was then at its end."""
    h = History().send(0).send(1, "info").send(2, "info").log(0, 1, 2)
    h.bounds(end=1, read_to=1)
    h._bounds[1]["again"] = 1
    assert {cls for cls, _, _, _ in labels(judged(h))} == {"info-not-stored"}
    h._bounds[1] |= {"end": 2, "read_to": 2}
    assert Counter(cls for cls, _, _, _ in labels(judged(h))) == {
        "info-not-stored": 1,
        "info-stored": 1,
    }


def test_a_fault_of_unknown_effect_around_a_confirmation_leaves_it_in_doubt() -> None:
    """Whether it took effect is not known: it began before the confirmation, and was over after
    it."""
    around = confirmed(2_200, 3_000)
    around.fault("restart", "broker-1", 1_000, 2_500, acks="at-risk", effective=False)
    before = confirmed(2_200, 3_000)
    before.fault("restart", "broker-1", 1_000, 1_100, acks="at-risk", effective=False)
    cls = "redelivered-after-ack", "confirmed"
    assert (told(around)[cls], told(before)[cls]) == ((Status.SUSPECT, 1), (Status.VIOLATION, 1))


def test_a_replica_refuses_nothing_behind_its_own_end() -> None:
    """The other one has more, which nobody asked this one for."""
    span = ReplicaSpan(first=5, last=11, digest="a", intact=True)
    common: dict[str, Any] = {"stream": "orders-0", "in_sync": True, "begin": 0}
    short = ReplicaRow(node="kafka-2", leads=False, end=8, read_to=6, refused=True, **common)
    long = ReplicaRow(node="kafka-1", leads=True, end=12, read_to=12, odd=(span,), **common)
    found = [(one.replica.node, one.first, one.last, one.split) for one in stretches([long, short])]
    assert ("kafka-2", 6, 7, "unreadable") in found
    assert not [one for one in found if one[0] == "kafka-2" and one[2] >= 8]
