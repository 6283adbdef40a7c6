"""Classes of sending: a tiny history each, and its near-miss: almost the same, and nothing bad in
it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.capture.context import Context
from analysis.classes import status_of
from analysis.findings import Status
from harness.contracts.plan import PromisePlan
from harness.records import Check, Kind
from tests.oracles.judging import context_from, judged
from tests.planted.pairs import Found, Pair, aborted, five
from tests.planted.plans import DURABLE
from tests.planted.tiny import EPOCH_NS, History


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


def died(history: History) -> History:
    history.workers["p-1"] = {"done": False, "exit_code": -9}
    return history


def killed(history: History) -> History:
    """By a fault: what it had written is kept."""
    history.workers["p-1"] = {"done": False, "killed": True, "exit_code": -9}
    return history


def wiped(node: str) -> History:
    return five().fault("file-damage", node, 1_000, 2_000, details={"wiped": {node: "ended"}})


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


SHARED = DURABLE.model_copy(update={"required": {"keys": True}})


def two_writers(
    first: tuple[int, ...],
    second: tuple[int, ...],
    *,
    promise: PromisePlan = DURABLE,
    partitions: int = 2,
    grows_at_s: float = 0,
) -> History:
    """Messages of key 0 of two producers in turn, one a second from 1 s on, each in the given
    partition."""
    h = History(partitions=partitions, mode="key", producers=2, promise=promise)
    if grows_at_s:
        details = {"grown": {"orders": partitions - 1}}
        h.fault(
            "grow-partitions", "orders", grows_at_s * 1e3, grows_at_s * 1e3 + 100, details=details
        )
    for seq in range(max(len(first), len(second))):
        for instance, own in ((1, first), (2, second)):
            if seq < len(own):
                at_ms = 1_000 * (seq + 1) + 100 * instance
                h.send(seq, lane=0, partition=own[seq], instance=instance, at_ms=at_ms)
                h.log(seq, lane=0, partition=own[seq], instance=instance)
    return h


def grown(*partitions: int) -> History:
    """As `keyed`, one message a second from 1 s on; the topic grew from two partitions to three at
    2.5 s."""
    details = {"grown": {"orders": 2}}
    h = History(partitions=3, mode="key").fault(
        "grow-partitions", "orders", 2_500, 2_600, details=details
    )
    for seq, partition in enumerate(partitions):
        h.send(seq, lane=0, partition=partition, at_ms=1_000 * (seq + 1))
        h.log(seq, lane=0, partition=partition)
    return h


def strange_growth(h: History) -> History:
    return h.fault("grow-partitions", "carts", 0, 100, details={"grown": {"carts": 2}})


def late_after_growth(partition: int) -> History:
    """2 is stored behind 3, which is in partition 1; 2 in the given one."""
    h = grown(1, 1).send(2, lane=0, partition=partition, at_ms=4_000)
    h.send(3, lane=0, partition=1, at_ms=4_001).log(3, lane=0, partition=1)
    return h.log(2, lane=0, partition=partition)


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
    """Message 2 is never answered; the producer ends ``for_s`` seconds after the call. Deadline:
    130 s."""
    h = History()
    for seq in range(5):
        h.send(seq, "open" if seq == 2 else "ok", at_ms=float(seq))
    h.log(0, 1, 2, 3, 4)
    h.workers["p-1"] = {"t_end_ns": EPOCH_NS + 2_000_000 + round(for_s * 1e9)}
    return h


def moved(history: History, at_s: float, oldest_ms: int) -> History:
    """The client has no limit for a send: an earlier one was answered late."""
    at_ns, since_ns = EPOCH_NS + round(at_s * 1e9), EPOCH_NS + oldest_ms * 1_000_000
    row = {"worker": "p-1", "kind": "calls-moved", "t_ns": at_ns, "since_ns": since_ns}
    history.events.append(row)
    return history


def frozen(history: History) -> History:
    row = {
        "worker": "p-1",
        "kind": "frozen",
        "t_ns": EPOCH_NS + 100 * 10**9,
        "frozen_ns": 60 * 10**9,
    }
    history.events.append(row)
    return history


def resent(attempts: int) -> History:
    h = History().send(0).send(1, "info")
    for attempt in range(1, attempts):
        h.send(1, attempt=attempt)
    h.log(0, 1)
    for attempt in range(1, attempts):
        h.log(1, attempt=attempt)
    return h


INFO_STORED = {("info-stored", ""): ["1/0/1"]}
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
        lambda: (
            History(producers=2).sent(3).sent(1, instance=2).log(0, 1).log(0, instance=2).log(2)
        ),
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
        "key that two producers put into two partitions",
        lambda: two_writers((1, 1, 1), (0, 0), promise=SHARED),
        {("wrong-partition", "shared"): ["2/0/0", "2/0/1"]},
        lambda: two_writers((1, 1, 1), (0, 0)),
        {},
    ),
    Pair(
        "key that one of two producers spreads",
        lambda: two_writers((1, 0, 1), (1, 1), promise=SHARED),
        {("wrong-partition", "key"): ["1/0/1"]},
        lambda: two_writers((1, 1, 1), (1, 1), promise=SHARED),
        {},
    ),
    Pair(
        "key that one producer keeps in the partition of another's stray",
        lambda: two_writers((1, 1, 1, 0), (0, 0), promise=SHARED),
        {
            ("wrong-partition", "key"): ["1/0/3"],
            ("wrong-partition", "shared"): ["1/0/0", "1/0/1", "1/0/2"],
        },
        lambda: two_writers((1, 1, 1), (1, 1), promise=SHARED),
        {},
    ),
    Pair(
        "key that two producers put into three partitions of a topic that grew once",
        lambda: two_writers((1, 1, 2), (1, 1, 0), promise=SHARED, partitions=3, grows_at_s=2.5),
        {("wrong-partition", "shared"): ["2/0/2"]},
        lambda: two_writers((1, 1, 2), (1, 1, 2), promise=SHARED, partitions=3, grows_at_s=2.5),
        {},
    ),
    Pair(
        "key in a third partition though its topic grew once",
        lambda: grown(1, 1, 2, 0, 2),
        {("wrong-partition", "key"): ["1/0/3"]},
        lambda: grown(1, 1, 2, 1, 2),
        {},
    ),
    Pair(
        "key in two partitions, and a topic grew that is none of the run's",
        lambda: strange_growth(keyed(1, 1, 0, 1)),
        {("wrong-partition", "key"): ["1/0/2"]},
        lambda: strange_growth(keyed(1, 1, 1, 1)),
        {},
    ),
    Pair(
        "key moved before its topic grew",
        lambda: grown(1, 2, 2),
        {("wrong-partition", "key"): ["1/0/1"]},
        lambda: grown(1, 1, 2),
        {},
    ),
    Pair(
        "order of a key whose topic grew, within a partition",
        lambda: late_after_growth(1),
        {("producer-reorder", ""): ["1/0/2"]},
        lambda: late_after_growth(2),
        {},
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
        # stored or not: nobody was told
        "lost of a process that the run killed, not what was open then",
        lambda: killed(History().sent(4).send(4, "open").log(0, 1, 3)),
        {("acked-lost", "middle"): ["1/0/2"], ("info-not-stored", ""): ["1/0/4"]},
        lambda: killed(History().sent(3).send(3, "open").send(4, "open").log(0, 1, 2, 3)),
        {("info-stored", ""): ["1/0/3"], ("info-not-stored", ""): ["1/0/4"]},
    ),
    Pair(
        "never sent by a process that the run killed: its rows are whole",
        lambda: killed(History().sent(3).log(0, 1, 2, 3)),
        {("phantom", "never sent"): ["1/0/3"]},
        lambda: killed(History().sent(4).log(0, 1, 2, 3)),
        NOT_MINE,
    ),
    Pair(
        "lost, not in a transaction that was aborted after its acknowledgement",
        lambda: History().sent(5).log(0, 1).log(3, 4, position=3),
        {("acked-lost", "middle"): ["1/0/2"]},
        lambda: aborted("aborted"),
        NOT_MINE,
    ),
    Pair(
        "stored twice, not read twice at one position",
        lambda: History().sent(3).log(0, 1, 1, 2),
        {("write-duplicate", "same send"): ["1/0/1"]},
        lambda: History().sent(3).log(0, 1, 2).log(1, 2, position=1),
        NOT_MINE,
    ),
    Pair(
        "premature, then repeated",
        lambda: History().sent(5).log(0, 3, 1, 2, 3, 4),
        {("premature-then-repeat", ""): ["1/0/3"]},
        lambda: History().sent(5).log(0, 1, 2, 3, 3, 4),
        {("write-duplicate", "same send"): ["1/0/3"]},  # a duplicate, but nothing was out of order
        by_class=True,
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
        lambda: (
            History().send(0).send(1, "fail").send(2).send(1, attempt=1).log(0, 2).log(1, attempt=1)
        ),
        NOT_MINE,
    ),
    Pair(
        "reorder of one of two producers",
        lambda: (
            History(producers=2).sent(2).sent(2, instance=2).log(1).log(0, 1, instance=2).log(0)
        ),
        {("producer-reorder", ""): ["1/0/0"]},
        lambda: (
            History(producers=2).sent(2).sent(2, instance=2).log(0).log(0, 1, instance=2).log(1)
        ),
        NOT_MINE,
    ),
    Pair(
        "routed reorder",
        lambda: (
            History(partitions=2, mode="routed").sent(4).log(2, 0).log(1, 3, lane=0, partition=1)
        ),
        {("producer-reorder", ""): ["1/0/0"]},
        # 3 before 0 by partition number only: order is promised within a partition
        lambda: (
            History(partitions=2, mode="routed").sent(4).log(1, 3).log(0, 2, lane=0, partition=1)
        ),
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
        "hang after an earlier call was answered",
        lambda: moved(opened(191), 60, oldest_ms=2),
        {("hang", "never completed"): ["1/0/2"]},
        lambda: moved(opened(189), 60, oldest_ms=2),
        {("info-stored", ""): ["1/0/2"]},
    ),
    Pair(
        "hang while only later calls are answered",
        lambda: moved(opened(189), 60, oldest_ms=3),
        {("hang", "never completed"): ["1/0/2"]},
        lambda: moved(moved(opened(189), 60, oldest_ms=1), 70, oldest_ms=3),
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
        "client died, not its process",
        lambda: five().client_died("p-1"),
        {("client-died", "gave up"): ["p-1"]},
        lambda: died(five()),  # killed: nobody says that the client gave itself up
        NOT_MINE,
    ),
    Pair(
        "client died, not as its settings ask",
        lambda: five().client_died("p-1").client_died("p-1", why="asked"),  # the first word counts
        {("client-died", "gave up"): ["p-1"]},
        lambda: five().client_died("p-1", why="asked"),
        {("client-died", "as configured"): ["p-1"]},
    ),
    Pair(
        "a replica without what another has",
        lambda: five().replica("kafka-1", (3, 4, "a"), leads=True).replica("kafka-2"),
        {("replica-divergence", "missing"): ["orders-0@3"]},
        lambda: (
            five().replica("kafka-1", (3, 4, "a"), leads=True).replica("kafka-2", in_sync=False)
        ),
        NOT_MINE,  # it is catching up
    ),
    Pair(
        "a replica of a wiped node that is in sync again",
        lambda: wiped("kafka-2").replica("kafka-1", (3, 4, "a"), leads=True).replica("kafka-2"),
        {("replica-divergence", "missing"): ["orders-0@3"]},
        lambda: wiped("b-2").replica("b-1", (3, 4, "a"), ledger=7).replica("b-2", ledger=7),
        {("replica-divergence", "not copied again"): ["orders-0@7:3"]},
    ),
    Pair(
        "a replica whose bytes do not match their checksum",
        lambda: five().replica("kafka-1", (2, 2, "a"), leads=True).replica("kafka-2", (2, 2, "")),
        {("replica-divergence", "damaged"): ["orders-0@2"]},
        lambda: five().replica("kafka-1", (2, 2, "a"), leads=True).replica("kafka-2", (2, 2, "a")),
        NOT_MINE,
    ),
    Pair(
        "replicas with other messages than the leader's",
        lambda: five().replica("kafka-1", (2, 3, "a")).replica("kafka-2", (2, 3, "b"), leads=True),
        {("replica-divergence", "other"): ["orders-0@2"]},
        lambda: (
            five()
            .replica("kafka-1", (2, 3, "a"), begin=4)
            .replica("kafka-2", (2, 3, "b"), leads=True)
        ),
        NOT_MINE,  # before where all of them begin
    ),
    Pair(
        "a replica that its broker cannot read",
        lambda: five().replica("kafka-1", leads=True).replica("kafka-2", read_to=6, refused=True),
        {("replica-divergence", "unreadable"): ["orders-0@6"]},
        lambda: five().replica("kafka-1", leads=True).replica("kafka-2", read_to=6),
        NOT_MINE,  # nobody knows what follows
    ),
]


def statuses(cls: str, h: History, context: Context | None = None) -> list[Status]:
    """The status of each episode of a class."""
    context = context or context_from(h)
    return [
        status_of(cls, e.split, context.promise(e.instance), e.unmet)
        for e in judged(h, context).episodes
        if e.cls == cls
    ]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_class_and_innocent_twin(pair: Pair) -> None:
    pair.check()


@pytest.mark.parametrize(
    ("why", "status"), [("error", Status.SUSPECT), ("crashed", Status.VIOLATION)]
)
def test_errors_that_a_fault_made_up_accuse_no_client_that_reports_them(
    why: str, status: Status
) -> None:
    """The broker stored the message, and a fault changed its answer to an error. A client that is
    given a fatal error may give up; it may not crash."""

    def refused() -> History:
        return History().send(0).send(1, "fail").send(2).log(0, 1, 2).client_died("p-1", why=why)

    assert statuses("false-nack", refused()) == [Status.VIOLATION]
    assert statuses("client-died", refused()) == [Status.VIOLATION]
    details = {"false_errors": True}
    tried = refused().fault("request-error", "kafka-1", 0, 9_000, details=details)
    assert statuses("client-died", tried) == [Status.VIOLATION]  # it should have tried again
    details["permits"] = "give-up"
    told = refused().fault("request-error", "kafka-1", 0, 9_000, details=details)
    assert statuses("false-nack", told) == [Status.SUSPECT]
    assert statuses("client-died", told) == [status]


@pytest.mark.parametrize(
    ("system", "outcome", "status"),
    [
        ("nats", "info", Status.SUSPECT),
        ("nats", "ok", Status.VIOLATION),
        ("kafka", "info", Status.VIOLATION),
    ],
)
def test_what_was_on_a_connection_that_ended_may_come_late_where_order_is_by_connection(
    system: str, outcome: str, status: Status
) -> None:
    """An unanswered message was on its way by the old connection, while the client sent the next
    one by a new connection."""
    h = History(system=system).send(0).send(1, outcome).send(2).log(0, 2, 1)
    assert statuses("producer-reorder", h) == [status]


@pytest.mark.parametrize(
    ("permits", "status"),
    [("wait", Status.SUSPECT), ("give-up", Status.VIOLATION), ("", Status.VIOLATION)],
)
def test_a_dropped_answer_excuses_a_client_that_has_no_time_limit_for_it(
    permits: str, status: Status
) -> None:
    h = opened(131)
    h.fault("answer-drop", "kafka-1", 0, 9_000, details={"permits": permits})
    assert statuses("hang", h) == [status]


@pytest.mark.parametrize(
    ("permits", "status"), [("damage", Status.SUSPECT), ("renumber", Status.VIOLATION)]
)
def test_damage_excuses_a_consumer_that_goes_back(permits: str, status: Status) -> None:
    """It does not check the batch, and the next position follows from damaged bytes."""
    h = History().sent(3).log(0, 1, 2).assign(0).deliver(0, 1, 2, 1, 2)
    h.fault("wrong-bytes", "kafka-1", 0, 9_000, details={"permits": permits})
    assert statuses("delivery-duplicate", h) == [status]


@pytest.mark.parametrize(
    ("permits", "status"), [("damage", Status.SUSPECT), ("renumber", Status.VIOLATION)]
)
def test_damage_excuses_a_consumer_that_passes_on_a_wrong_place(
    permits: str, status: Status
) -> None:
    """It does not check the batch; the place of a message is in the damaged bytes."""
    h = History().send(0).send(1, "fail").log(0).assign(0).deliver(0).deliver(1, position=7)
    h.fault("wrong-bytes", "kafka-1", 0, 9_000, details={"permits": permits})
    assert statuses("delivered-then-lost", h) == [status]


@pytest.mark.parametrize(
    ("permits", "status"), [("damage", Status.SUSPECT), ("renumber", Status.VIOLATION)]
)
def test_damage_excuses_a_consumer_that_misses_that_a_batch_was_aborted(
    permits: str, status: Status
) -> None:
    """It does not check the batch; whose transaction it is of is in the damaged bytes."""
    h = aborted("aborted").assign(0).deliver(2, position=2)
    h.fault("wrong-bytes", "kafka-1", 0, 9_000, details={"permits": permits})
    context = context_from(h)
    committed = {n: replace(s, committed_only=True) for n, s in context.sessions.items()}
    context = replace(context, sessions=committed)
    assert statuses("aborted-read", h, context) == [status]


@pytest.mark.parametrize(
    ("permits", "lasts", "status"),
    [
        ("acknowledge", (0, 9_000), Status.SUSPECT),
        ("acknowledge", (8_000, 9_000), Status.VIOLATION),
        ("renumber", (0, 9_000), Status.VIOLATION),
        ("", (0, 9_000), Status.VIOLATION),
    ],
)
def test_a_false_error_excuses_what_it_permits_while_it_is_believed(
    permits: str, lasts: tuple[int, int], status: Status
) -> None:
    """A client that is told of a duplicate acknowledges a message that no broker stored."""
    h = History().send(0).send(1).send(2).log(0, 2)
    h.fault("request-error", "kafka-1", *lasts, details={"permits": permits})
    assert statuses("acked-lost", h) == [status]


@pytest.mark.parametrize(
    ("permits", "cls", "stored", "status"),
    [
        ("overtake", "premature-then-repeat", (0, 2, 1, 2), Status.SUSPECT),
        ("overtake", "producer-reorder", (0, 2, 1), Status.SUSPECT),
        ("", "premature-then-repeat", (0, 2, 1, 2), Status.VIOLATION),
        ("overtake", "acked-lost", (0, 2), Status.VIOLATION),
    ],
)
def test_a_message_may_overtake_one_that_a_fault_kept_from_the_broker(
    permits: str, cls: str, stored: tuple[int, ...], status: Status
) -> None:
    """A broker that refuses a message takes none of the later ones; the relay passed them on."""
    h = History().send(0).send(1).send(2).log(*stored)
    h.fault("request-error", "kafka-1", 0, 9_000, details={"permits": permits})
    assert statuses(cls, h) == [status]
