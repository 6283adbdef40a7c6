"""Classes of applications under test: a tiny history each, and its near-miss."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.classes import status_of
from analysis.findings import NOT_APPLICABLE, Status
from analysis.verdict.untested import untested
from harness.records import Check, Txn
from tests.oracles.judging import context_from, judged
from tests.planted.pairs import Pair, found
from tests.planted.tiny import EPOCH_NS, History
from tests.planted.tiny_applications import applied, made
from tests.planted.tiny_pipelines import committed, hidden
from tests.planted.tiny_transactions import stored, transaction


def plain(*seqs: int, at: int = 3, **application: Any) -> History:
    """Three inputs; outputs of these; the group committed ``at``."""
    h = applied(application=application).sent(3).log(0, 1, 2)
    return committed(made(h, *seqs), at)


def stored_twice() -> History:
    """The log holds input 1 twice, so an application is given it twice."""
    return committed(made(applied().sent(3).log(0, 1, 1, 2), 0, 1, 1, 2), 4)


def one_failed(outcome: str) -> History:
    """The log does not hold message 1; there is an output of it."""
    h = applied().send(0).send(1, outcome).send(2).log(0, 2)
    return committed(made(h, 0, 1, 2), 2)


def one_aborted(how: Txn) -> History:
    h = hidden(applied().sent(3).log(0, 1, 2), 1, how)
    return committed(made(h, 0, 1, 2), 3)


def aborted_and_open() -> History:
    """The log holds input 1 twice: aborted, and in a transaction without an end."""
    h = hidden(applied().sent(3).log(0, 1, 1, 2), 2, Txn.ABORTED)
    copies = [row for row in h.rows["log"] if row["seq"] == 1]
    copies[0] |= {"txn": Txn.OPEN, "txn_end": -1}
    return committed(made(h, 0, 1, 2), 4)


def uncommitted(*, after: bool = False, **application: Any) -> History:
    """Inputs 0 and 1 in a transaction whose commit is requested 2 s after they were sent; their
    outputs are stored 1 s before or after that."""
    h = stored(transaction(applied(application=application), 1, 0, 1), 0, 1)
    asked_ms = 3_000
    h.transactions[0] |= {"t_asked_ns": EPOCH_NS + asked_ms * 1_000_000}
    h.transactions[0] |= {"t_done_ns": EPOCH_NS + (asked_ms + 1) * 1_000_000}
    return committed(made(h, 0, 1, at_ms=asked_ms + (1_000 if after else -1_000)), 3)


def two_partitions(*seqs: int) -> History:
    """Inputs 0 and 1 of each of two partitions; outputs of the first partition in this order."""
    h = applied(2).sent(2).sent(2, partition=1).log(0, 1).log(0, 1, partition=1)
    made(h, 0, partition=1)
    made(h, *seqs)
    made(h, 1, partition=1)
    return committed(committed(h, 2), 2, partition=1)


PAIRS = [
    Pair(
        "two outputs of an input",
        lambda: plain(0, 1, 1, 2),
        {("input-twice", "promised once"): ["1/0/1"]},
        lambda: plain(0, 1, 2),
        {},
    ),
    Pair(
        "two outputs where the application promises at least one",
        lambda: plain(0, 1, 1, 2),
        {("input-twice", "promised once"): ["1/0/1"]},
        lambda: plain(0, 1, 1, 2, promise="at-least-once"),
        {("input-twice", "repeated"): ["1/0/1"]},
        by_class=True,
    ),
    Pair(
        "an input without an output",
        lambda: plain(0, 2),
        {("input-skipped", "promised"): ["1/0/1"]},
        lambda: plain(0, 1, at=2),  # the group would continue with it
        {},
    ),
    Pair(
        "an input that the application may drop",
        lambda: plain(0, 2),
        {("input-skipped", "promised"): ["1/0/1"]},
        lambda: plain(0, 2, makes="at-most-one"),
        {},
    ),
    Pair(
        "outputs in another order than their inputs",
        lambda: two_partitions(1, 0),
        {("input-reordered", "promised order"): ["1/0/0"]},
        lambda: two_partitions(0, 1),
        {},
    ),
    Pair(
        "an output of what was never sent",
        lambda: plain(0, 1, 2, 80),
        {("phantom-output", "never sent"): ["1/0/80"]},
        lambda: plain(0, 1, 2),
        {},
    ),
    Pair(
        "an output of what brokers refused",
        lambda: one_failed("fail"),
        {("phantom-output", "refused"): ["1/0/1"]},
        lambda: one_failed("info"),  # it may have been stored, and lost after it was read
        {("info-not-stored", ""): ["1/0/1"]},
    ),
    Pair(
        "an output of what was aborted",
        lambda: one_aborted(Txn.ABORTED),
        {("phantom-output", "aborted"): ["1/0/1"]},
        lambda: one_aborted(Txn.COMMITTED),
        {},
    ),
    Pair(
        "an output of what was aborted in one copy",  # the other copy may yet be committed
        lambda: one_aborted(Txn.ABORTED),
        {("phantom-output", "aborted"): ["1/0/1"]},
        aborted_and_open,
        {("acked-lost", "withheld"): ["1/0/1"]},
        by_class=True,
    ),
    Pair(
        "an output before its input was committed",
        uncommitted,
        {("phantom-output", "not committed yet"): ["1/0/0", "1/0/1"]},
        lambda: uncommitted(after=True),
        {},
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_class_and_innocent_twin(pair: Pair) -> None:
    pair.check()


def test_an_input_that_is_stored_twice_may_have_two_outputs() -> None:
    assert {cls for cls, _ in found(stored_twice())} == {"write-duplicate"}


def test_a_repeat_keeps_the_order_of_first_outputs() -> None:
    assert found(plain(0, 1, 0, 1, 2)) == {("input-twice", "promised once"): ["1/0/0", "1/0/1"]}


def test_other_partitions_of_the_output_have_an_order_of_their_own() -> None:
    h = applied(to=2).sent(3).log(0, 1, 2)
    made(made(h, 1, 2, to=1), 0, to=0)
    assert found(committed(h, 3)) == {}


def test_with_any_number_of_outputs_only_phantoms_are_judged() -> None:
    assert found(plain(0, 2, 2, 80, makes="any", order="none")) == {
        ("phantom-output", "never sent"): ["1/0/80"]
    }


def test_nothing_is_promised_about_another_topic_that_the_program_reads() -> None:
    """A program may join its input with a second topic, and name messages of that one often."""
    h = plain(0, 1, 2, 2)
    assert ("input-twice", "promised once") in found(h)
    (own,) = h.plan.applications
    elsewhere = own.model_copy(update={"source": "invoices"})
    h.plan = h.plan.model_copy(update={"applications": [elsewhere]})
    assert found(h) == {}


def test_inputs_of_one_key_in_two_partitions_have_no_order() -> None:
    """Two producers may partition a key differently: positions of two partitions say nothing."""
    h = applied(2, mode="key", application={"order": "key"})
    one: dict[str, int] = {"lane": 0}
    other = {"lane": 0, "partition": 1, "instance": 2}  # the same key
    h.sent(2, **one).sent(1, **other).log(0, 1, **one).log(0, **other)
    made(made(h, 1, 0, **one), 0, **other)
    assert found(committed(committed(h, 2), 1, partition=1)) == {
        ("input-reordered", "promised order"): ["1/0/0"]
    }


@pytest.mark.parametrize(
    ("application", "judged_classes"),
    [
        ({}, {"input-twice", "input-skipped", "input-reordered"}),
        ({"order": "none"}, {"input-twice", "input-skipped"}),
        ({"makes": "at-most-one", "order": "none"}, {"input-twice"}),
        ({"makes": "any", "order": "none"}, set()),
    ],
)
def test_a_class_that_is_not_judged_counts_as_not_tested(
    application: dict[str, str], judged_classes: set[str]
) -> None:
    h = plain(0, 1, 2, **application)
    h.manifest["outputs_read"] = ["billing"]
    reasons = untested(context_from(h), judged(h).counts)
    about = {"input-twice", "input-skipped", "input-reordered"}
    assert {name for name in about if name not in reasons} == judged_classes
    assert all(reasons[name].startswith(NOT_APPLICABLE) for name in about - judged_classes)


@pytest.mark.parametrize(
    "changes", [{"nameless_outputs": {"billing": 1}}, {"outputs_read": []}], ids=str
)
def test_skipped_inputs_are_not_tested_without_all_outputs(changes: dict[str, object]) -> None:
    h = plain(0, 1, 2)
    h.manifest |= {"outputs_read": ["billing"], **changes}
    reasons = untested(context_from(h), judged(h).counts)
    assert reasons["input-skipped"].startswith("not shown that ")


def statuses(h: History, cls: str) -> set[Status]:
    context = context_from(h)
    episodes = [e for e in judged(h, context).episodes if e.cls == cls]
    return {status_of(cls, e.split, context.promise(e.instance), e.unmet) for e in episodes}


def test_what_was_refused_is_a_phantom_only_if_the_whole_input_was_read() -> None:
    """The brokers may have stored what they refused: then it is an input."""
    assert statuses(one_failed("fail"), "phantom-output") == {Status.VIOLATION}
    cut = one_failed("fail").bounds(end=9, read_to=3, why="deadline")
    assert statuses(cut, "phantom-output") == {Status.SUSPECT}


def test_an_early_output_is_not_proved_where_a_fault_set_clocks() -> None:
    """Brokers and databases say when they stored an output, by a clock that a fault may have
    set."""
    assert statuses(uncommitted(), "phantom-output") == {Status.VIOLATION}
    jumped = uncommitted().fault("clock-jump", "kafka-1", 0, 9_000, details={"moved_clocks": True})
    assert statuses(jumped, "phantom-output") == {Status.SUSPECT}


@pytest.mark.parametrize("permits", ["damage", "reposition"])
def test_a_name_that_was_damaged_on_its_way_to_the_application_accuses_no_one(permits: str) -> None:
    """A client that checks nothing passes damaged bytes on."""
    h = plain(0, 1, 2, 80).fault("wrong-bytes", "kafka-1", 0, 9_000, details={"permits": permits})
    expected = Status.SUSPECT if permits == "damage" else Status.VIOLATION
    assert statuses(h, "phantom-output") == {expected}


def test_an_output_whose_time_is_not_known_is_not_early() -> None:
    h = uncommitted()
    for row in h.rows["deliveries"]:
        row["t_ns"] = 0
    assert found(h) == {}


@pytest.mark.parametrize(
    ("promise", "twice", "skipped"),
    [
        ("exactly-once", Status.VIOLATION, Status.VIOLATION),
        ("at-least-once", Status.PERMITTED, Status.VIOLATION),
        ("at-most-once", Status.VIOLATION, Status.PERMITTED),
    ],
)
def test_the_promise_of_the_application_decides(
    promise: str, twice: Status, skipped: Status
) -> None:
    assert statuses(plain(0, 1, 1, 2, promise=promise), "input-twice") == {twice}
    assert statuses(plain(0, 2, promise=promise), "input-skipped") == {skipped}


def test_nothing_is_skipped_without_evidence() -> None:
    unasked = plain(0, 2)
    unasked.committed.clear()
    assert statuses(unasked, "input-skipped") == {Status.SUSPECT}
    assert statuses(plain(0, 2).bounds(1, read_to=1), "input-skipped") == {Status.SUSPECT}
    assert statuses(plain(0, 2).bounds(1, begin=1), "input-skipped") == {Status.SUSPECT}
    for topic in ("orders", "invoices"):
        recreated = plain(0, 2)
        remade = {"details": {"remade": [topic]}}
        recreated.fault("recreate-topic", topic, 1_000, 1_200, **remade)
        assert statuses(recreated, "input-skipped") == {Status.SUSPECT}
    nameless = made(plain(0, 2), 1, check=Check.FOREIGN)
    nameless.manifest["nameless_outputs"] = {"billing": 1}
    assert statuses(nameless, "input-skipped") == {Status.SUSPECT}


def test_an_instance_that_ends_by_itself_and_stays_away_has_died() -> None:
    h = plain(0, 1, 2, restarts="never")
    h.manifest["applications"][0] |= {"ended_by_itself": True, "exit_code": 1, "t_end_ns": h.now_ns}
    assert found(h) == {("client-died", "ended"): ["application-billing-1"]}
    again = plain(0, 1, 2)
    again.manifest["applications"][0] |= {
        "ended_by_itself": True,
        "exit_code": 1,
        "t_end_ns": again.now_ns,
    }
    assert found(again) == {}


def test_an_application_that_runs_and_commits_nothing_stalls() -> None:
    h = plain(0, at=1)
    h.events.append(
        {"t_ns": h.now_ns, "kind": "application-stalled", "worker": "billing", "since_ns": 1}
    )
    assert found(h) == {("stall", "application"): ["billing"]}


@pytest.mark.parametrize(
    ("permits", "begins_ms", "status"),
    [
        ("rejoin", 1_000, Status.SUSPECT),
        ("rejoin", 30_000, Status.VIOLATION),  # told when the stall was over
        ("give-up", 1_000, Status.VIOLATION),
    ],
)
def test_a_group_may_wait_for_an_instance_that_a_false_error_made_join_again(
    permits: str, begins_ms: int, status: Status
) -> None:
    h = plain(0, at=1)
    stalled = {"kind": "application-stalled", "worker": "billing", "since_ns": h.now_ns}
    h.events.append({**stalled, "t_ns": h.now_ns + 15_000_000_000})
    details = {"permits": permits, "false_errors": True}
    h.fault("request-error", "kafka-1", begins_ms, begins_ms + 2_000, details=details)
    assert statuses(h, "stall") == {status}
