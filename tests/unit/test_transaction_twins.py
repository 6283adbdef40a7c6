"""Classes of transactions: a tiny history each, and its near-miss."""

from __future__ import annotations

import pytest

from analysis.classes import status_of
from analysis.findings import Status
from analysis.kernels import atomicity
from harness.records import Txn
from tests.oracles.judging import context_from, judged, labels
from tests.planted.pairs import Found, Pair, aborted, found
from tests.planted.plans import DURABLE
from tests.planted.tiny import EPOCH_NS, History
from tests.planted.tiny_transactions import stored, transaction


def both(first: str, second: str, *, outcome: str = "ok", asked: str = "commit") -> History:
    """Messages 0 and 1 of two partitions in one transaction; what the log makes of each
    partition."""
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
    h.transactions.append(
        {"instance": 1, "number": 1, "asked": 1, "t_asked_ns": asked, "outcome": 1}
    )
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


def test_a_reader_of_committed_data_that_was_given_an_aborted_message_proves_it_without_the_marker() -> (
    None
):
    def given(outcome: str, asked: str) -> History:
        end = "committed" if asked == "commit" else "aborted"
        return both("unknown", end, outcome=outcome, asked=asked).deliver(0)

    unread = given("aborted", "abort")
    assert found(unread, committed_only=True) == {("aborted-read", "read committed"): ["1/0/0"]}
    assert found(unread, committed_only=False) == {("aborted-read", "read uncommitted"): ["1/0/0"]}
    committed = given("ok", "commit").deliver(0, 1, partition=1)
    assert found(committed, committed_only=True) == {}


def test_an_acknowledged_message_of_no_known_transaction_is_suspect_where_the_log_withholds_it() -> (
    None
):
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


def long_transaction(
    given_s: float, *, ended: str = "committed", committed_s: float = 25.0
) -> History:
    """Message 0 is read; 1 and 2 are sent in a transaction from 1 s to ``committed_s``, and 3
    without one at 2 s. What the log shows of them is given out ``given_s`` after the start."""
    h = History(producers=2)
    h.send(0, at_ms=0).log(0).assign(0, at_ms=0).deliver(0, at_ms=100)
    outcome = {"committed": "ok", "aborted": "info"}[ended]
    h.send(1, outcome, at_ms=1_000, transaction=1).send(2, outcome, at_ms=1_500, transaction=1)
    h.send(0, instance=2, at_ms=2_000)
    done_ns = EPOCH_NS + round(committed_s * 1e9) if ended == "committed" else 0
    row = {"instance": 1, "number": 1, "t_asked_ns": done_ns, "t_done_ns": done_ns}
    h.transactions.append(
        row | ({"asked": 1, "outcome": 1} if done_ns else {"asked": 0, "outcome": 3})
    )
    h.log(1, 2)
    for stored_row in h.rows["log"][1:]:
        stored_row["txn"] = Txn[ended.upper()]
    h.log(0, instance=2)
    if ended == "committed":
        h.deliver(1, 2, at_ms=given_s * 1e3)
    return h.deliver(0, instance=2, at_ms=given_s * 1e3)


STALLED: Found = {("stall", "resumed"): ["orders-0"]}


@pytest.mark.parametrize(
    ("history", "stalls"),
    [
        (long_transaction(39.0), False),
        (long_transaction(41.0), True),
        (long_transaction(16.0, committed_s=3.0), False),
        (long_transaction(19.0, committed_s=3.0), True),
        # its producer died: nobody knows when it ended
        (long_transaction(61.0, ended="aborted"), False),
    ],
)
def test_a_reader_of_committed_data_waits_for_the_end_of_every_transaction_before_a_message(
    history: History, stalls: bool
) -> None:
    harmless = {("info-not-stored", ""): ["1/0/1", "1/0/2"]}
    told = {
        key: names
        for key, names in found(history, committed_only=True).items()
        if key not in harmless
    }
    assert told == (STALLED if stalls else {})
    assert STALLED.items() <= found(history, committed_only=False).items() or not stalls


def test_a_reader_of_everything_waits_for_no_transaction() -> None:
    assert found(long_transaction(39.0), committed_only=False) == STALLED


def refused(outcome: str, asked: str) -> History:
    """Message 1 of a transaction is refused by the client and is in the log all the same."""
    h = transaction(History(), 1, 0, outcome=outcome, asked=asked).send(1, "fail", transaction=1)
    how = "committed" if outcome == "ok" else "aborted"
    return stored(stored(h, 0, how=how, marker=False), 1, how="committed")


def test_a_refused_message_belongs_to_its_transaction_only_if_that_was_aborted() -> None:
    assert found(refused("aborted", "abort")) == {("aborted-read", "in the log"): ["1/0/1"]}
    shown = found(refused("ok", "commit"))
    assert shown == {("false-nack", ""): ["1/0/1"]}


def test_a_refused_message_that_is_absent_tears_no_transaction() -> None:
    h = transaction(History(), 1, 0).send(1, "fail", transaction=1)
    assert found(stored(h, 0)) == {}


def test_a_message_that_is_visible_elsewhere_does_not_hang() -> None:
    h = stored(transaction(History(), 1, 0), 0, how="open", marker=False)
    h.rows["sends"][0]["position"] = 1
    assert found(h) == {("hanging-transaction", "ended"): ["1/0/0"]}
    assert found(stored(h, 0)) == {}


def test_a_transaction_whose_abort_was_acknowledged_has_ended() -> None:
    assert found(both("open", "open", outcome="aborted", asked="abort")) == {
        ("hanging-transaction", "ended"): ["1/0/0", "1/0/1", "1/1/0", "1/1/1"]
    }


def test_only_a_commit_is_waited_for() -> None:
    """An abort that comes after a delivery makes it no intermediate read; where the copy lies that
    was given, nobody read."""
    h = History().send(0, "aborted", transaction=1)
    asked = h.now_ns + 10_000_000
    h.transactions.append(
        {"instance": 1, "number": 1, "asked": 2, "t_asked_ns": asked, "outcome": 4}
    )
    stored(h, 0, how="unknown", marker=False)
    assert found(h.deliver(0, position=7, at_ms=5), committed_only=True) == {}


def unmet_of(h: History) -> set[tuple[str, frozenset[str]]]:
    return {(cls, unmet) for cls, _, unmet, _ in labels(judged(h, context_from(h)))}


def test_what_needs_markers_says_so() -> None:
    h = both("open", "open").bounds(0, marked=0).bounds(1, marked=9)
    by_stream = {
        (message[:3], unmet)
        for cls, _, unmet, message in labels(judged(h))
        if cls == "hanging-transaction"
    }
    assert by_stream == {("1/0", frozenset({"markers-read"})), ("1/1", frozenset())}


def absent(*, ended: bool = True, read_to: int | None = None, seen: bool = False) -> History:
    """A committed transaction of which one message is not in the log, or neither is."""
    h = transaction(History(promise=DURABLE), 1, 0, 1)
    if seen:
        stored(h, 0)
    h.workers["p-1"] = {"t_end_ns": EPOCH_NS + 10**9 if ended else 0}
    return h.bounds(end=5, read_to=read_to) if read_to is not None else h.bounds(end=5)


@pytest.mark.parametrize("seen", [True, False])
def test_what_is_not_shown_to_be_absent_proves_no_torn_or_lost_transaction(seen: bool) -> None:
    cls = "torn-transaction" if seen else "lost-commit"
    assert (cls, frozenset()) in unmet_of(absent(seen=seen))
    for unproved in (absent(seen=seen, ended=False), absent(seen=seen, read_to=int(seen))):
        assert cls not in {told for told, _ in unmet_of(unproved)}


def test_a_commit_of_which_a_part_may_be_seen_yet_is_not_shown_to_be_lost() -> None:
    assert ("lost-commit", frozenset({"audit-complete"})) in unmet_of(both("unknown", "aborted"))
    assert ("lost-commit", frozenset()) in unmet_of(both("aborted", "aborted"))


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_commit_is_not_shown_to_be_lost_where_a_bucket_is_missing(is_whole: bool) -> None:
    h = both("aborted", "aborted")
    context = context_from(h)
    atoms = judged(h, context).atoms
    assert atoms is not None
    (episode,) = atomicity.judge(context, [atoms], is_whole=is_whole).episodes
    assert episode.unmet == (() if is_whole else ("audit-complete",))
