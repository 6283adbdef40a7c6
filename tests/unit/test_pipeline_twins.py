"""Classes of pipelines and of fencing: a tiny history each, and its near-miss."""

from __future__ import annotations

import pytest

from analysis.classes import status_of
from analysis.findings import Status
from harness.contracts.plan import PromisePlan
from harness.records import Outcome, Txn
from tests.oracles.judging import context_from, judged
from tests.planted.pairs import Pair, found
from tests.planted.tiny import History
from tests.planted.tiny_pipelines import committed, hidden, made, piped
from tests.planted.tiny_transactions import stored, transaction


def plain(*sources: int, at: int = 3, **where: object) -> History:
    """Three inputs; outputs of these; the group committed ``at``."""
    h = piped(**where).sent(3).log(0, 1, 2)  # type: ignore[arg-type]
    return committed(made(h, *sources), at)


def aborted_between(how: str) -> History:
    """Inputs 0 1 2, output 1 in a transaction of its own that ended so, and then again."""
    h = piped().sent(3).log(0, 1, 2)
    made(h, 0, how="committed", number=1)
    ended = {"aborted": ("aborted", "abort"), "committed": ("ok", "commit")}[how]
    made(h, 1, how=how, number=2, first=1, outcome=ended[0], asked=ended[1])
    return committed(made(h, 1, 2, how="committed", number=3, first=2), 3)


def skipped(how: str, at: int = 3) -> History:
    """The output of input 1 is in a transaction of its own that the log holds so."""
    h = piped().sent(3).log(0, 1, 2)
    made(h, 0, how="committed", number=1)
    made(
        h,
        1,
        how=how,
        number=2,
        first=1,
        outcome="aborted" if how == "aborted" else "info",
        asked="abort",
    )
    return committed(made(h, 2, how="committed", number=3, first=2), at)


def unseen(how: Txn, *, committed_only: bool = True) -> History:
    """Input 1 was written in a transaction that ended so, and there is no output of it."""
    h = hidden(plain(0, 2, committed_only=committed_only), 1, how)
    h.rows["sends"][1]["outcome"] = Outcome.ABORTED if how is Txn.ABORTED else Outcome.INFO
    return h


def two_lives(*order: tuple[int, int], partition: int = 0, system: str = "kafka") -> History:
    """Producers 1 and 2 are two lives of one client; (instance, seq) as stored, each in a
    transaction."""
    h = History(producers=2, partitions=2, system=system, sessions=0)
    h.workers["p-1"] = {"t_start_ns": 1}
    h.workers["p-2"] = {"life_of": "p-1", "t_start_ns": 2}
    for last, (instance, seq) in enumerate(order, start=1 - len(order)):
        where = 0 if last else partition
        transaction(h, seq + 1, 0 if where else seq, instance=instance, partitions=(where,))
        stored(h, 0 if where else seq, instance=instance, partition=where)
    return h


def epochs(epoch: int, *, is_marker: bool) -> History:
    """A batch, or the marker behind it, that the scan of the log found behind epoch 4."""
    h = transaction(History(), 1, 0, 1)
    stored(h, 0, 1)
    at = 2 if is_marker else 0
    write = {
        "first": at,
        "last": at + (not is_marker),
        "producer_id": 7,
        "epoch": epoch,
        "newest": 4,
    }
    return h.bounds(stale=[write | {"is_marker": is_marker}] if epoch < 4 else [])


PAIRS = [
    Pair(
        "an input is made into two outputs",
        lambda: plain(0, 1, 1, 2),
        {("input-twice", ""): ["2/1/2"]},
        lambda: aborted_between("aborted"),
        {},
    ),
    Pair(
        "both outputs of an input are committed",
        lambda: aborted_between("committed"),
        {("input-twice", ""): ["2/1/2"]},
        lambda: plain(0, 1, 2),
        {},
    ),
    Pair(
        "an input of which there is no output",
        lambda: plain(0, 2),
        {("input-skipped", "no output"): ["1/0/1"]},
        lambda: plain(0, 1, at=2),  # the group would go on with it
        {},
    ),
    Pair(
        "an input whose output was aborted",
        lambda: skipped("aborted"),
        {("input-skipped", "aborted"): ["1/0/1"]},
        lambda: aborted_between("aborted"),
        {},
    ),
    Pair(
        "an input that a reader of everything was given",
        lambda: unseen(Txn.ABORTED, committed_only=False),
        {("input-skipped", "no output"): ["1/0/1"]},
        lambda: unseen(Txn.ABORTED),
        {},
    ),
    Pair(
        "outputs in another order than their inputs",
        lambda: plain(0, 2, 1),
        {("input-reordered", ""): ["2/1/2"]},
        lambda: plain(0, 1, 2),
        {},
    ),
    Pair(
        "written behind a later life",
        lambda: two_lives((1, 0), (2, 0), (1, 1)),
        {("fence-breach", "older life"): ["orders-0@4"]},
        lambda: two_lives((1, 0), (1, 1), (2, 0)),
        {},
    ),
    Pair(
        "a batch of an older epoch",
        lambda: epochs(3, is_marker=False),
        {("fence-breach", "older epoch"): ["orders-0@0"]},
        lambda: epochs(4, is_marker=False),
        {},
    ),
    Pair(
        "a marker of an older epoch",
        lambda: epochs(3, is_marker=True),
        {("fence-breach", "older epoch"): ["orders-0@1"]},
        lambda: epochs(4, is_marker=True),
        {},
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_class_and_innocent_twin(pair: Pair) -> None:
    assert pair.twin == {}
    pair.check()


def test_a_repeat_keeps_the_order_of_first_outputs() -> None:
    assert found(plain(0, 1, 0, 1, 2)) == {("input-twice", ""): ["2/1/2", "2/1/3"]}


def test_a_write_to_another_stream_proves_no_order() -> None:
    assert found(two_lives((1, 0), (2, 0), (1, 1), partition=1)) == {}


def test_without_transactional_ids_no_life_is_fenced() -> None:
    assert found(two_lives((1, 0), (2, 0), (1, 1), system="pulsar")) == {}


@pytest.mark.parametrize("how", ["open", "unknown"])
def test_an_output_that_may_be_seen_yet_proves_no_skip(how: str) -> None:
    assert {cls for cls, _ in found(skipped(how))}.isdisjoint({"input-skipped"})


def statuses(h: History, cls: str) -> set[Status]:
    context = context_from(h)
    episodes = [e for e in judged(h, context).episodes if e.cls == cls]
    return {status_of(cls, e.split, context.promise(e.instance), e.unmet) for e in episodes}


@pytest.mark.parametrize(
    ("transactional", "required", "status"),
    [
        (True, {}, Status.VIOLATION),
        (False, {}, Status.PERMITTED),
        (False, {"dedup": True, "order": True}, Status.VIOLATION),
    ],
)
@pytest.mark.parametrize(
    ("sources", "cls"), [((0, 1, 1, 2), "input-twice"), ((0, 2, 1), "input-reordered")]
)
def test_positions_in_the_transaction_promise_one_output_in_order(
    transactional: bool,
    required: dict[str, str | bool | None],
    status: Status,
    sources: tuple[int, ...],
    cls: str,
) -> None:
    promise = PromisePlan(delivery="durable", order=True, dedup=True, because={}, required=required)
    assert statuses(plain(*sources, transactional=transactional, promise=promise), cls) == {status}


def test_nothing_is_skipped_without_evidence() -> None:
    unasked = plain(0, 2)
    unasked.committed.clear()
    assert statuses(unasked, "input-skipped") == {Status.SUSPECT}
    unread = plain(0, 2).bounds(1, read_to=1)
    assert statuses(unread, "input-skipped") == {Status.SUSPECT}
    behind = plain(0, 1)
    behind.committed.clear()
    assert found(behind) == {}, "nothing was made of what comes after it"
    assert found(plain(0, 1, at=-1)) == {}


def test_an_output_that_only_the_leader_had_may_be_lost() -> None:
    leader = PromisePlan(delivery="leader", order=False, dedup=False, because={}, required={})
    assert found(plain(0, 2, promise=leader)) == {("input-skipped", "not durable"): ["1/0/1"]}
    assert statuses(plain(0, 2, promise=leader), "input-skipped") == {Status.PERMITTED}


def test_an_input_in_a_partition_that_is_not_its_own_is_not_missed_there() -> None:
    """Its output is in the bucket of the partition where it was read."""
    stray = piped(2).sent(2).log(0, 1).send(0, partition=1).log(0, partition=0, lane=1)
    committed(made(stray, 0, 1, instance=2), 3)
    (episode,) = (e for e in judged(stray).episodes if e.cls == "wrong-partition")
    assert episode.witnesses[0].symptoms == ()
    own = piped(2).sent(3).log(0, 1, 2)
    assert found(committed(made(own, 0, 1), 3))["input-skipped", "no output"] == ["1/0/2"]


def test_outputs_that_retention_may_have_taken_are_not_missed_for_certain() -> None:
    assert statuses(plain(0, 2).bounds(1, begin=1), "input-skipped") == {Status.SUSPECT}


Two = tuple[int, int]


def lives(first: Two, second: Two, *, starts: Two, ids: Two) -> History:
    """Two lives of one client. (instance, seq) of two messages behind each other, then one more of
    the first; each is in a transaction. ``starts``, ``ids``: start time and number of the
    transactional id by life."""
    h = History(producers=2, sessions=0)
    h.workers["p-1"] = {"t_start_ns": starts[0], "life_of": "shop"}
    h.workers["p-2"] = {"t_start_ns": starts[1], "life_of": "shop"}
    for instance, seq in (first, second, (first[0], first[1] + 1)):
        transaction(h, seq + 1, seq, instance=instance)
        h.transactions[-1]["id"] = ids[instance - 1]
        stored(h, seq, instance=instance)
    return h


def test_the_later_life_is_the_one_that_began_later() -> None:
    breach = {("fence-breach", "older life"): ["orders-0@4"]}
    assert found(lives((1, 0), (2, 0), starts=(1, 2), ids=(0, 0))) == breach
    assert found(lives((1, 0), (2, 0), starts=(2, 1), ids=(0, 0))) == {
        ("fence-breach", "older life"): ["orders-0@2"]
    }, "the second instance began before the first"
    assert found(lives((2, 0), (1, 0), starts=(2, 1), ids=(0, 0))) == breach


def test_a_life_fences_its_own_transactional_ids_only() -> None:
    assert found(lives((1, 0), (2, 0), starts=(1, 2), ids=(0, 1))) == {}


def test_a_late_write_of_which_nobody_read_the_end_is_late_all_the_same() -> None:
    h = two_lives((1, 0), (2, 0), (1, 1))
    h.rows["log"][2]["txn"] = Txn.UNKNOWN
    assert found(h)["fence-breach", "older life"] == ["orders-0@4"]


@pytest.mark.parametrize(
    ("is_marker", "splits"), [(False, {"older life"}), (True, {"older life", "older epoch"})]
)
def test_a_late_batch_counts_once_and_its_marker_as_well(is_marker: bool, splits: set[str]) -> None:
    h = two_lives((1, 0), (2, 0), (1, 1))
    at = 5 if is_marker else 4
    write = {"first": at, "last": at, "producer_id": 7, "epoch": 1, "newest": 2}
    h.bounds(stale=[write | {"is_marker": is_marker}])
    assert {split for cls, split in found(h) if cls == "fence-breach"} == splits
