"""The leader change behind a loss: against a model of replicas that knows the truth, and single
stories."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from analysis.kernels.changes import (
    NONE,
    Because,
    LoggedRows,
    LostAcks,
    lost,
    reached,
    repeated,
)
from harness.contracts.rows import Leadership
from tests.oracles.led import Partition

VERBS = ("append", "append", "append", "replicate", "learn", "elect")
UNKNOWN = np.zeros(9, np.int64)  # nothing is known of what the log has of each term


def acks(*positions: int, at: int = 0, start: int = 0, ledger: int = 0) -> LostAcks:
    column = [np.full(len(positions), value, np.int64) for value in (start or at, at, ledger)]
    return LostAcks(column[0], column[1], np.array(positions, np.int64), column[2])


def test_a_leader_named_alone_is_the_one_that_acknowledged() -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        random = Random(seed)
        partition = Partition()
        for _ in range(80):
            what, node = random.choice(VERBS), random.randrange(3)
            partition.replicate(node, 2) if what == "replicate" else getattr(partition, what)(node)
        partition.settle()
        seen += _compared(partition, over=bool(seed % 2))
    wanted = ("alone", "with another", "late", "in time", "told apart by time")
    assert min(seen[name] for name in wanted) > 80, seen


def _compared(partition: Partition, *, over: bool) -> Counter[str]:
    """What is said of every lost message beside what happened to it."""
    gone, terms = partition.lost(), partition.terms(over=over)
    times = np.array([one.t_ns for one in gone], np.int64)
    positions = np.array([one.position for one in gone], np.int64)
    acks = LostAcks(times, times, positions, np.zeros_like(times))
    kept = [message for _, message in partition.logs[partition.leaders[partition.epoch][0]]]
    due_ns = np.array([partition.acked[message].t_ns for message in kept], np.int64)
    rows = LoggedRows(np.arange(len(kept)), due_ns, np.zeros_like(due_ns))
    found = lost(terms, acks, reached(terms, rows), has_offsets=True)
    timeless = lost(terms, acks, np.zeros(len(terms), np.int64), has_offsets=True)
    seen: Counter[str] = Counter()
    for i, one in enumerate(gone):
        term, alone = int(found.term[i]), found.other[i] == NONE
        assert found.because[i] == (Because.CHANGE if alone else Because.EITHER)
        seen["told apart by time"] += int(alone and timeless.other[i] != NONE)
        assert term == one.epoch if alone else term >= one.epoch
        began = terms[found.next[i]].first
        assert began is not None
        assert began <= one.position
        assert found.late[i] == (one.t_ns > terms[term + 1].t_ns)
        seen.update(["alone" if alone else "with another", "late" if found.late[i] else "in time"])
    return seen


EPOCHS = (
    Leadership(3, "kafka-2", t_ns=10, first=0, over_ns=60),
    Leadership(4, "kafka-3", t_ns=50, first=90),
    Leadership(5, "kafka-1", t_ns=80, first=100),
)


def test_the_leader_in_force_acknowledged_what_the_next_one_cut_off() -> None:
    found = lost(EPOCHS, acks(100, 104, at=70), UNKNOWN, has_offsets=True)
    assert found.because.tolist() == [Because.CHANGE] * 2
    assert (found.term.tolist(), found.next.tolist(), found.late.tolist()) == (
        [1, 1],
        [2, 2],
        [0, 0],
    )
    assert found.other.tolist() == [NONE, NONE]


def test_a_leader_that_does_not_know_it_was_deposed_acknowledges_late() -> None:
    found = lost(EPOCHS, acks(150, at=95), UNKNOWN, has_offsets=True)
    assert (found.term[0], found.next[0], found.late[0]) == (1, 2, 1)


def test_an_earlier_leader_that_may_have_acknowledged_it_is_told() -> None:
    found = lost(EPOCHS, acks(104, at=70, start=55), UNKNOWN, has_offsets=True)
    assert (found.because[0], found.term[0], found.other[0]) == (Because.EITHER, 1, 0)


def test_a_term_that_kept_what_came_after_the_acknowledgement_had_not_come_as_far() -> None:
    """Epoch 4 keeps a message at 99 that was due at 75: it gave out 104 later than that, so not at
    70."""
    position = np.arange(101)
    rows = LoggedRows(position, np.where(position == 99, 75, 1), np.zeros_like(position))
    due_ns = reached(EPOCHS, rows)
    assert due_ns.tolist() == [1, 75, 1]
    found = lost(EPOCHS, acks(104, at=70, start=55), due_ns, has_offsets=True)
    assert (found.because[0], found.term[0], found.next[0]) == (Because.CHANGE, 0, 1)
    assert (found.other[0], found.late[0]) == (NONE, 1)


@pytest.mark.parametrize(
    ("terms", "ack", "because"),
    [
        ((), acks(100, at=70), Because.NO_TERMS),
        (tuple(Leadership(n, "", first=n) for n in (0, 1)), acks(100, at=70), Because.NO_TERMS),
        (tuple(Leadership(n, "kafka-1", t_ns=n) for n in (0, 1)), acks(100, at=70), Because.NO_TERMS),
        (EPOCHS, acks(-1, at=70), Because.NO_PLACE),
        (EPOCHS, acks(95, at=70), Because.NOT_CUT),
        (EPOCHS[:1], acks(95, at=70), Because.NOT_CUT),
        (EPOCHS, acks(120, at=5), Because.NOT_CUT),
    ],
    ids=["nothing recorded", "no leaders", "no epochs of the log", "no offset", "before the cut", "one epoch",
         "acknowledged before anybody led"],
)  # fmt: skip
def test_no_cause_is_named_without_evidence(
    terms: tuple[Leadership, ...], ack: LostAcks, because: Because
) -> None:
    found = lost(terms, ack, UNKNOWN, has_offsets=True)
    assert (found.because[0], found.term[0]) == (because, NONE)


def test_a_term_without_a_leader_acknowledges_nothing() -> None:
    terms = (
        Leadership(0, "kafka-1", t_ns=10, first=0),
        Leadership(1, None, t_ns=20),
        Leadership(2, "kafka-2", t_ns=30, first=50),
    )
    found = lost(terms, acks(60, at=25), UNKNOWN, has_offsets=True)
    assert (found.term[0], found.next[0], found.late[0]) == (0, 2, 1)


LEDGERS = (
    Leadership(7, "broker-1", t_ns=10, entries=100),
    Leadership(9, "broker-2", t_ns=50, entries=40),
    Leadership(12, "broker-2", t_ns=90),
)


def test_a_ledger_closed_short_of_an_acknowledged_entry_names_its_owner() -> None:
    found = lost(LEDGERS, acks(100, at=49, ledger=7), UNKNOWN, has_offsets=False)
    assert (found.because[0], found.term[0], found.next[0]) == (Because.CHANGE, 0, 1)


@pytest.mark.parametrize(("entry", "ledger"), [(99, 7), (0, 8), (500, 12)])
def test_an_entry_that_its_ledger_should_have_is_no_leader_change(entry: int, ledger: int) -> None:
    found = lost(LEDGERS, acks(entry, at=49, ledger=ledger), UNKNOWN, has_offsets=False)
    assert found.because[0] == Because.NOT_CUT


def test_of_a_queue_the_time_alone_tells() -> None:
    terms = (
        Leadership(1, "qpid-1", t_ns=10),
        Leadership(2, None, t_ns=40),
        Leadership(3, "qpid-2", t_ns=50),
    )
    found = lost(terms, acks(-1, -1, at=30), UNKNOWN, has_offsets=False, has_positions=False)
    assert (found.because[0], found.term[0], found.next[0]) == (Because.CHANGE, 0, 2)
    late = lost(terms, acks(-1, at=60), UNKNOWN, has_offsets=False, has_positions=False)
    assert late.because[0] == Because.NOT_CUT


def one(value: int, ledger: int = 0) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return np.array([value], np.int64), np.array([ledger], np.int64)


@pytest.mark.parametrize(
    ("first", "second", "because", "terms"),
    [
        (one(95), one(130), Because.CHANGE, (1, 2)),
        (one(95), one(97), Because.SAME_LEADER, (1, 1)),
        (one(95), one(-1), Because.NO_PLACE, None),
    ],
)
def test_copies_are_told_by_the_epochs_that_they_lie_in(first, second, because, terms) -> None:  # type: ignore[no-untyped-def]
    found = repeated(EPOCHS, first, second, has_offsets=True)
    assert found.because[0] == because
    assert terms is None or (found.term[0], found.next[0]) == terms


def test_copies_in_two_ledgers_were_written_by_two_owners() -> None:
    found = repeated(LEDGERS, one(3, 7), one(5, 9), has_offsets=False)
    assert (found.because[0], found.term[0], found.next[0]) == (Because.CHANGE, 0, 1)
    assert repeated(LEDGERS, one(3, 7), one(5, 8), has_offsets=False).because[0] == Because.NO_TERMS
    assert repeated((), one(3), one(5), has_offsets=True).because[0] == Because.NO_TERMS
