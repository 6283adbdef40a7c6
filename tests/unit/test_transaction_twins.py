"""Classes of transactions: a tiny history each, and its near-miss."""

from __future__ import annotations

import pytest

from analysis.classes import status_of
from analysis.findings import Status
from tests.planted.pairs import Pair, aborted, found
from tests.planted.tiny import History
from tests.planted.tiny_transactions import stored, transaction


def both(first: str, second: str, *, outcome: str = "ok", asked: str = "commit") -> History:
    """Messages 0 and 1 of two partitions in one transaction; what the log makes of each partition."""
    h = transaction(History(partitions=2), 1, 0, 1, outcome=outcome, asked=asked, partitions=(0, 1))
    for partition, how in enumerate((first, second)):
        if how:
            stored(h, 0, 1, how=how, partition=partition, marker=how != "open")
    return h


def in_turn(*ends: tuple[int, ...], numbers: tuple[int, ...] = (1, 2)) -> History:
    """Transactions of two messages each; every tuple of sequences has a marker behind it."""
    h = History()
    for at, number in enumerate(numbers):
        transaction(h, number, 2 * at, 2 * at + 1)
    for seqs in ends:
        stored(h, *seqs)
    return h


def read(*, before: bool) -> History:
    """A reader of committed data is given message 0 before or after its commit was asked for."""
    h = History()
    h.send(0, transaction=1)
    asked = h.now_ns + 10_000_000
    h.transactions.append({"instance": 1, "number": 1, "asked": 1, "t_asked_ns": asked, "outcome": 1})
    stored(h, 0)
    return h.deliver(0, at_ms=5 if before else 50)


PAIRS = [
    Pair(
        "visible in the log though aborted",
        lambda: both("committed", "committed", outcome="aborted", asked="abort"),
        {("aborted-read", "in the log"): ["1/0/0", "1/0/1", "1/1/0", "1/1/1"]},
        lambda: both("aborted", "aborted", outcome="aborted", asked="abort"),
        {},
    ),
    Pair(
        "visible in the log though nobody asked for a commit",
        lambda: both("committed", "", outcome="info", asked=""),
        {
            ("aborted-read", "in the log"): ["1/0/0", "1/0/1"],
            ("info-not-stored", ""): ["1/1/0", "1/1/1"],
        },
        lambda: both("committed", "committed", outcome="info"),
        {("info-stored", ""): ["1/0/0", "1/0/1", "1/1/0", "1/1/1"]},
    ),
    Pair(
        "a part is visible",
        lambda: both("committed", "aborted"),
        {("torn-transaction", "committed"): ["1/1/0"]},
        lambda: both("committed", "committed"),
        {},
    ),
    Pair(
        "a part is visible of a commit without an answer",
        lambda: both("aborted", "committed", outcome="info"),
        {
            ("torn-transaction", "commit not answered"): ["1/0/0"],
            ("info-not-stored", ""): ["1/0/0", "1/0/1"],
            ("info-stored", ""): ["1/1/0", "1/1/1"],
        },
        lambda: both("aborted", "aborted", outcome="info"),
        {("info-not-stored", ""): ["1/0/0", "1/0/1", "1/1/0", "1/1/1"]},
    ),
    Pair(
        "nothing is visible of a commit",
        lambda: both("aborted", "aborted"),
        {("lost-commit", ""): ["1/0/0"]},
        lambda: both("aborted", "aborted", outcome="aborted", asked="both"),
        {},
    ),
    Pair(
        "one transaction, two ends in a stream",
        lambda: in_turn((0,), (1,), (2, 3)),
        {("mixed-transaction", "ended in parts"): ["orders-0@2"]},
        lambda: in_turn((0, 1), (2, 3)),
        {},
    ),
    Pair(
        "two transactions, one end",
        lambda: in_turn((0, 1, 2, 3)),
        {("mixed-transaction", "ended with another"): ["orders-0@2"]},
        lambda: in_turn((0, 1), (2, 3)),
        {},
    ),
    Pair(
        "ended for the client, open in the log",
        lambda: both("open", "open"),
        {("hanging-transaction", "ended"): ["1/0/0", "1/0/1", "1/1/0", "1/1/1"]},
        lambda: both("open", "committed", outcome="info"),
        {
            ("hanging-transaction", "never ended"): ["1/0/0", "1/0/1"],
            ("info-stored", ""): ["1/1/0", "1/1/1"],
        },
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_class_and_innocent_twin(pair: Pair) -> None:
    pair.check(Status.INFO)


def test_a_reader_of_committed_data_sees_nothing_before_the_commit_was_asked_for() -> None:
    assert found(read(before=True), committed_only=True) == {("intermediate-read", ""): ["1/0/0"]}
    assert found(read(before=False), committed_only=True) == {}
    assert found(read(before=True), committed_only=False) == {}
    assert found(read(before=True), committed_only=True, clock_bound_ns=60 * 10**9) == {}


def test_rows_of_which_nobody_knows_the_end_are_neither_seen_nor_lost() -> None:
    assert found(both("unknown", "committed")) == {}
    assert found(both("unknown", "unknown", outcome="aborted", asked="abort")) == {}
    assert found(both("unknown", "unknown", outcome="info")) == {}


def test_a_reader_of_committed_data_that_was_given_an_aborted_message_proves_it_without_the_marker() -> None:
    def given(outcome: str, asked: str) -> History:
        end = "committed" if asked == "commit" else "aborted"
        return both("unknown", end, outcome=outcome, asked=asked).deliver(0)

    unread = given("aborted", "abort")
    assert found(unread, committed_only=True) == {("aborted-read", "read committed"): ["1/0/0"]}
    assert found(unread, committed_only=False) == {("aborted-read", "read uncommitted"): ["1/0/0"]}
    committed = given("ok", "commit").deliver(0, 1, partition=1)
    assert found(committed, committed_only=True) == {}


def test_an_acknowledged_message_of_no_known_transaction_is_suspect_where_the_log_withholds_it() -> None:
    """The near-miss: another attempt of the application is visible."""
    lost = aborted("ok")
    assert found(lost) == {("acked-lost", "withheld"): ["1/0/2"]}
    assert status_of("acked-lost", "withheld", None) is Status.SUSPECT
    again = aborted("ok").send(2, attempt=1).log(2, attempt=1)
    assert found(again) == {}


def test_markers_that_were_not_read_prove_no_hanging_transaction() -> None:
    h = both("open", "open")
    for partition in (0, 1):
        h.bounds(partition, marked=0)
    assert {cls for cls, _ in found(h)} == {"hanging-transaction"}
    assert status_of("hanging-transaction", "ended", None, ("markers-read",)) is Status.SUSPECT
