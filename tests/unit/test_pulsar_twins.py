"""Classes of Pulsar and of applications that do not look: a tiny history each, and its
near-miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.classes import status_of
from analysis.findings import Status
from harness.contracts.plan import ConsumerPromise
from harness.contracts.rows import DropLimit
from harness.records import Event
from tests.oracles.judging import context_from, judged
from tests.planted.pairs import Found, Pair, found
from tests.planted.pulsar_stories import (
    DEAD_LETTERS,
    FAILOVER,
    NO_DEDUP,
    RECEIPTS,
    REFUSING,
    SHARED,
    confirmed,
    deduplicated,
    five,
    given_twice,
    half_a_batch,
    half_a_batch_between_unloads,
    handed_over,
    never_again,
    one_key,
    pulsar,
    reconnected,
    reconnecting,
    refused,
    refused_in_between,
    sought,
    swapped,
    threads,
    timed,
)
from tests.planted.tiny import EPOCH_NS, History

NOTHING: Found = {}
GONE: Found = {("refused-not-redelivered", "gone from the backlog"): ["1/0/1"]}
TO_BE_ACKED = {("delivery-duplicate", "not acknowledged"): ["1/0/1"]}
IN_DOUBT = {("delivery-duplicate", "confirmed after a fault"): ["1/0/1"]}


# -- the log


def resent(first: str, *attempts_stored: int) -> History:
    """Message 1 ends with ``first``; the application sends it again, which succeeds."""
    h = pulsar(results="resent", promise=NO_DEDUP).send(0).send(1, first, error="TimeoutException")
    h.send(1, attempt=1).send(2).log(0)
    for attempt in attempts_stored:
        h.log(1, attempt=attempt)
    return h.log(2)


def tried(*outcomes: str) -> History:
    """Message 1 sent as often as there are outcomes, stored if the last one is ok."""
    h = pulsar(results="resent", promise=NO_DEDUP).send(0)
    for attempt, outcome in enumerate(outcomes):
        error = "" if outcome == "ok" else "ProducerQueueIsFullError"
        h.send(1, outcome, attempt=attempt, error=error)
    h.send(2).log(0)
    if outcomes[-1] == "ok":
        h.log(1, attempt=len(outcomes) - 1)
    return h.log(2)


def failing(results: str) -> History:
    h = pulsar(results=results)
    h.send(0).send(1, "fail", error="ProducerQueueIsFullError").send(
        2, "info", error="TimeoutException"
    )
    return h.send(3, "info", error="TimeoutException").send(4).log(0, 3, 4)


LOG_PAIRS = [
    Pair(
        "premature, then repeated",
        lambda: reconnected(0, 3, 1, 2, 3, 4),
        {("premature-then-repeat", ""): ["1/0/3"]},
        # a block sent again: permitted without deduplication
        lambda: reconnected(0, 1, 2, 1, 2, 3, 4),
        {("write-duplicate", "same send"): ["1/0/1", "1/0/2"]},
    ),
    Pair(
        "dedup silent loss",
        lambda: deduplicated(0, 3, 4),
        {("dedup-silent-loss", ""): ["1/0/1", "1/0/2"]},
        lambda: deduplicated(0, 1, 2, 3, 4, copies_of=(2,)),  # the first copy is in the log
        NOTHING,
    ),
    Pair(
        "sequence ids go back",
        lambda: threads(10, 12, 11, 13),
        {("client-sequence-regression", ""): ["1/0/2"]},
        lambda: threads(10, 12, 15, 16),
        NOTHING,
    ),
    Pair(
        "unchecked failure",
        lambda: failing("ignored"),
        {
            ("unchecked-failure", "ProducerQueueIsFullError"): ["1/0/1"],
            ("unchecked-failure", "TimeoutException, not stored"): ["1/0/2"],
            ("unchecked-failure", "TimeoutException, stored after all"): ["1/0/3"],
        },
        lambda: failing("checked"),
        {("info-not-stored", ""): ["1/0/2"], ("info-stored", ""): ["1/0/3"]},
    ),
    Pair(
        "given up",
        lambda: tried("fail", "fail", "fail"),
        {("given-up", ""): ["1/0/1"]},
        lambda: tried("fail", "fail", "ok"),
        NOTHING,
    ),
    Pair(
        "sent again, and lost all the same",
        lambda: resent("fail"),
        {("acked-lost", "middle"): ["1/0/1.1"]},
        lambda: resent("fail", 1),
        NOTHING,
    ),
    Pair(
        "sent again, and only the first try stored",
        lambda: resent("info"),
        {("acked-lost", "middle"): ["1/0/1.1"], ("info-not-stored", ""): ["1/0/1"]},
        lambda: resent("info", 0),
        {("info-stored", ""): ["1/0/1"]},
    ),
]


# -- deliveries


def waited(reading: ConsumerPromise, *given: int, for_s: float = 20.0) -> History:
    """Deliveries, then nothing until the consumer ends."""
    h = five(reading)
    h.deliver(*given, at_ms=1_500)
    h.workers["c-1"] = {"t_start_ns": EPOCH_NS, "t_end_ns": EPOCH_NS + round((1.5 + for_s) * 1e9)}
    h.manifest["drained"] = False
    return h


@pytest.mark.parametrize("at_broker", [False, True])
def test_a_timeout_that_a_broker_measures_may_have_passed_in_the_buffer_of_a_client(
    at_broker: bool,
) -> None:
    """It is given 2 s after it was sent, acknowledged at once, and given again soon after that."""
    h = timed(2_050, 2_900)
    context = replace(context_from(h), brokers_time_acks=at_broker)
    found = {(e.cls, e.split) for e in judged(h, context).episodes if e.cls != "not-dispatched"}
    early = ("premature-redelivery", "acknowledged in time")
    assert found == {("delivery-duplicate", "after ack timeout") if at_broker else early}


DELIVERY_PAIRS = [
    Pair(
        "premature redelivery",
        lambda: timed(2_050, 6_000),
        {("premature-redelivery", "acknowledged in time"): ["1/0/1"]},
        lambda: timed(3_200, 3_600),  # acknowledged after 1.2 s
        {("delivery-duplicate", "after ack timeout"): ["1/0/1"]},
    ),
    Pair(
        "premature redelivery of a message at work",
        lambda: timed(9_000, 2_600),
        {("premature-redelivery", "before the timeout"): ["1/0/1"]},
        lambda: timed(9_000, 3_600),
        {("delivery-duplicate", "after ack timeout"): ["1/0/1"]},
    ),
    Pair(
        "given again after a reconnect is not premature",
        lambda: timed(2_050, 2_900),
        {("premature-redelivery", "acknowledged in time"): ["1/0/1"]},
        lambda: timed(2_050, 2_900, fault=True),
        {("delivery-duplicate", "no receipt"): ["1/0/1"]},
    ),
    Pair(
        "refused, so it comes again",
        lambda: timed(9_000, 2_500),
        {("premature-redelivery", "before the timeout"): ["1/0/1"]},
        refused,
        {("delivery-duplicate", "after nack"): ["1/0/1"]},
    ),
    Pair(
        "redelivered after its acknowledgement",
        lambda: confirmed(2_200, 3_000),
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        lambda: confirmed(3_500, 3_000),
        TO_BE_ACKED,
    ),
    Pair(
        "a crash forgets",
        lambda: confirmed(2_200, 3_000).fault("unload", "orders", 2_400, 2_500, acks="kept"),
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        lambda: confirmed(2_200, 3_000).fault("kill", "broker-1", 2_400, 2_500, acks="at-risk"),
        {("redelivered-after-ack", "after a crash"): ["1/0/1"]},
    ),
    Pair(
        "a copy under way",
        lambda: confirmed(2_200, 3_000),
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        lambda: confirmed(2_200, 3_000).fault("unload", "orders", 2_050, 2_060),
        IN_DOUBT,
    ),
    Pair(
        "a copy sent out while clients reconnected",
        lambda: confirmed(2_200, 3_000),
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        lambda: confirmed(2_200, 3_000).fault(
            "connection-close", "client", 1_400, 1_500, acks="kept"
        ),
        IN_DOUBT,
    ),
    Pair(
        "no receipt, no proof",
        lambda: confirmed(2_200, 3_000),
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        lambda: confirmed(
            2_200, 3_000, reading=RECEIPTS.model_copy(update={"acks_confirmed": False})
        ),
        {("delivery-duplicate", "no receipt"): ["1/0/1"]},
    ),
    Pair(
        "half a batch",
        lambda: half_a_batch(0, 1),
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        lambda: half_a_batch(1),
        TO_BE_ACKED,
    ),
    Pair(
        "the application sought, which undid its acknowledgements",
        sought,
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        lambda: sought(to=1),
        {("delivery-duplicate", "after seek"): ["1/0/1"]},
    ),
    Pair(
        "half a batch between two unloads",
        lambda: half_a_batch_between_unloads(2_200, 1_900),
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        lambda: half_a_batch_between_unloads(2_200, 1_600),  # it may be of the connection before
        IN_DOUBT,
    ),
    Pair(
        "one of a batch is confirmed, another refused",
        lambda: half_a_batch_between_unloads(2_200, 1_900, nacked=True),
        {("redelivered-after-ack", "confirmed"): ["1/0/1"]},
        # confirmed while the topic was unloaded
        lambda: half_a_batch_between_unloads(2_550, 1_900),
        IN_DOUBT,
    ),
    Pair(
        "refused, and gone from the backlog",
        never_again,
        GONE,
        lambda: never_again().deliver(1, position=1, redelivery=1, at_ms=3_000).acked(1),
        {("delivery-duplicate", "after nack"): ["1/0/1"]},
    ),
    Pair(
        "refused, and never given again",
        lambda: never_again(drained=False),
        {("refused-not-redelivered", "not given again"): ["1/0/1"]},
        lambda: never_again(drained=False, for_s=16.0),  # due for 14 s, less than limits.stall
        NOTHING,
    ),
    Pair(
        "refused, and acknowledged later",
        never_again,
        GONE,
        lambda: never_again().acked(1, at_ms=2_500),
        NOTHING,
    ),
    Pair(
        "refused as often as the dead letter policy allows",
        lambda: given_twice(REFUSING),
        GONE,
        lambda: given_twice(DEAD_LETTERS),
        {("refused-not-redelivered", "delivery limit"): ["1/0/1"]},
    ),
    Pair(
        "key held elsewhere",
        lambda: handed_over(settled=False),
        {("per-key-reorder", "held elsewhere"): ["1/0/1"]},
        lambda: handed_over(settled=True),
        NOTHING,
    ),
    Pair(
        "key overtaken",
        lambda: one_key(0, 2, 1, 3),
        {("per-key-reorder", "overtaken"): ["1/0/1"]},
        lambda: one_key(0, 2, 1, 3, reading=SHARED),
        NOTHING,
    ),
    Pair(
        "delivery reorder",
        lambda: swapped(FAILOVER),
        {("delivery-reorder", ""): ["1/0/1"]},
        lambda: swapped(SHARED),
        NOTHING,
    ),
    Pair(
        "delivery reorder after a reconnect",
        lambda: reconnecting(2, 3, 1, 4),  # 1 is a repeat too, but its second round is out of order
        {("delivery-reorder", ""): ["1/0/1"]},
        lambda: reconnecting(1, 2, 3, 4),
        TO_BE_ACKED,
    ),
    Pair(
        "backlog stuck",
        lambda: waited(FAILOVER, 0, 1, 2),
        {("backlog-stuck", ""): ["orders-0"], ("not-dispatched", "not given"): ["1/0/3", "1/0/4"]},
        lambda: waited(FAILOVER, 0, 1, 2, 3, 4),
        NOTHING,
    ),
]


@pytest.mark.parametrize("pair", [*LOG_PAIRS, *DELIVERY_PAIRS], ids=str)
def test_class_and_innocent_twin(pair: Pair) -> None:
    producer = pair.near_miss().promise
    promise = replace(context_from(pair.near_miss()).instance(1).promise, dedup=producer.dedup)
    pair.check(Status.PERMITTED, Status.INFO, Status.APPLICATION_ERROR, promise=promise)


@pytest.mark.parametrize(
    ("acks", "effective", "status"),
    [
        ("kept", True, Status.VIOLATION),
        ("kept", False, Status.VIOLATION),
        ("at-risk", True, Status.PERMITTED),
        ("at-risk", False, Status.SUSPECT),
        ("unknown", True, Status.SUSPECT),
        (None, True, Status.SUSPECT),
        ("forgotten", True, Status.SUSPECT),
    ],
)
def test_a_fault_excuses_a_redelivery_only_if_it_says_so(
    acks: str | None, effective: bool, status: Status
) -> None:
    """Whatever its kind is called. One that says nothing of acknowledgements neither excuses nor
    accuses."""
    h = confirmed(2_200, 3_000).fault(
        "restart", "broker-1", 2_400, 2_500, acks=acks, effective=effective
    )
    (episode,) = judged(h).episodes
    assert episode.cls == "redelivered-after-ack"
    assert status_of(episode.cls, episode.split, None, episode.unmet) is status


def test_of_several_faults_one_that_cost_acknowledgements_is_enough() -> None:
    h = confirmed(2_200, 3_000).fault("pause", "broker-1", 2_400, 2_500, acks="unknown")
    (episode,) = judged(h.fault("kill", "broker-1", 2_600, 2_700, acks="at-risk")).episodes
    assert (episode.split, episode.unmet) == ("after a crash", ())


def dropping(*limits: DropLimit, order: str = "none") -> ConsumerPromise:
    return REFUSING.model_copy(update={"may_drop": "limits", "drops": list(limits), "order": order})


@pytest.mark.parametrize(
    ("reading", "split", "unmet"),
    [
        pytest.param(REFUSING, "not given", (), id="no limit"),
        pytest.param(dropping(), "not given", ("settings-known",), id="limit not known"),
        pytest.param(dropping(DropLimit(setting="ttl", after_s=1)), "dropped", (), id="old enough"),
        pytest.param(dropping(DropLimit(setting="ttl", after_s=3600)), "not given", (), id="never so old"),
        pytest.param(dropping(DropLimit(setting="quota", beyond_bytes=2000)), "dropped", (), id="full"),
        pytest.param(
            dropping(DropLimit(setting="quota", beyond_bytes=1_000_000)), "not given", (), id="never full"
        ),
        pytest.param(
            dropping(DropLimit(setting="ttl", after_s=1), order="stream"), "not given", (),
            id="the group went past it before it was so old",
        ),
        pytest.param(
            dropping(DropLimit(setting="ttl", after_s=1, topic="other")), "not given", (), id="another topic"
        ),
    ],
)  # fmt: skip
def test_what_a_broker_may_drop_is_permitted_where_the_limit_could_be_reached(
    reading: ConsumerPromise, split: str, unmet: tuple[str, ...]
) -> None:
    h = History(reading=reading).sent(3).log(0, 1, 2).deliver(0, 2)
    h.workers["c-1"] = {"t_start_ns": EPOCH_NS, "t_end_ns": EPOCH_NS + 10_000_000_000}
    found = [episode for episode in judged(h).episodes if episode.cls == "not-dispatched"]
    assert [(episode.split, tuple(episode.unmet)) for episode in found] == [(split, unmet)]


def test_a_refused_message_that_grew_too_old_may_have_been_dropped() -> None:
    (episode,) = judged(never_again(dropping(DropLimit(setting="ttl", after_s=1)))).episodes
    assert (episode.cls, episode.split) == ("refused-not-redelivered", "dropped")
    assert status_of(episode.cls, episode.split, None, episode.unmet) is Status.PERMITTED


@pytest.mark.parametrize(
    ("reading", "faulty", "unmet"),
    [
        (REFUSING, False, ()),
        (REFUSING.model_copy(update={"max_deliveries": None}), False, ("settings-known",)),
        (REFUSING.model_copy(update={"may_drop": "ttl"}), False, ("settings-known",)),
        (DEAD_LETTERS, False, ()),
        (DEAD_LETTERS, True, ("attempts-known",)),
    ],
)
def test_what_may_have_taken_a_refused_message_makes_it_suspect(
    reading: ConsumerPromise, faulty: bool, unmet: tuple[str, ...]
) -> None:
    h = never_again(reading)
    if faulty:
        h.fault("unload", "orders", 2_500, 2_600)
    (episode,) = judged(h).episodes
    assert (episode.cls, tuple(episode.unmet)) == ("refused-not-redelivered", unmet)


def test_the_sequence_of_a_premature_message_is_told_by_both_counters() -> None:
    witness = judged(reconnected(0, 3, 1, 2, 3, 4)).episodes[0].witnesses[0]
    assert [(step.seq, step.mark) for step in witness.around] == [
        (0, ""), (3, "!"), (1, ""), (2, ""), (3, "+"), (4, "")
    ]  # fmt: skip
    assert witness.detail.endswith("the client's own sequence ids: 10 [13] 11 12 13")
    assert (
        "sequence ids"
        not in judged(reconnected(0, 3, 1, 2, 3, 4, ids=False)).episodes[0].witnesses[0].detail
    )


def test_sequence_ids_that_go_back_far_from_where_the_payload_does_are_told() -> None:
    def numbered(*ids: int) -> Found:
        return found(
            pulsar(promise=NO_DEDUP).sent(8).log(0, 3, 1, 2, 3, 4, 5, 6, 7, client_seqs=ids)
        )

    premature = {("premature-then-repeat", ""): ["1/0/3"]}
    assert numbered(10, 13, 11, 12, 13, 14, 15, 16, 17) == premature
    inverted = {("client-sequence-regression", ""): ["1/0/7"]}
    assert numbered(10, 13, 11, 12, 13, 14, 15, 17, 16) == premature | inverted


def test_a_reconnect_gives_a_consumer_no_streams_of_other_topics() -> None:
    """A client that lost its connection assigns itself stream 0: everything that it reads."""
    h = waited(SHARED)
    reading_another = h.plan.consumers[0].model_copy(update={"topics": ["clicks"]})
    h.plan = h.plan.model_copy(update={"consumers": [reading_another]})
    h.ends(Event.ASSIGN, at_ms=1_600)
    assert ("backlog-stuck", "") not in found(h)
    again = waited(SHARED).ends(Event.ASSIGN, at_ms=1_600)
    assert found(again)["backlog-stuck", ""] == ["orders-0"]


def test_a_silent_loss_names_what_overtook_it() -> None:
    h = pulsar()
    for seq in range(5):
        h.send(seq, dropped=seq in (1, 2))
        h.rows["sends"][-1] |= {"client_name": h.name("client", "p"), "client_seq": seq + 10}
    h.log(0, 3, 4, client_seqs=(10, 13, 14))
    witness = judged(h).episodes[0].witnesses[0]
    assert witness.acked_position == "-1:-1"
    assert witness.detail == "its sequence id 11; overtaken by 13, 1/0/3 at 7:1"


def test_a_gap_that_nobody_was_told_of_is_shown_as_a_consumer_sees_it() -> None:
    details = {e.split: e.witnesses[0].detail for e in judged(failing("ignored")).episodes}
    assert details["ProducerQueueIsFullError"] == "a consumer goes from 0 to 3: a gap of 2"
    assert details["TimeoutException, stored after all"] == ""
    assert (
        status_of("unchecked-failure", "TimeoutException, not stored", None)
        is Status.APPLICATION_ERROR
    )


def test_a_redelivery_shows_its_count_and_what_came_before() -> None:
    h = timed(2_050, 6_000)
    again = [row for row in h.rows["deliveries"] if row["event"] == 1 and row["seq"] == 1][1]
    again["redelivery"] = 2
    detail = judged(h).episodes[0].witnesses[0].detail
    assert "acknowledged 0.050 s after the hand-over" in detail
    assert detail.endswith("ack timeout 1 s, redelivery count 2")


def test_places_are_ledger_entry_and_batch_index() -> None:
    """A client that calls a batch of one 0 means the entry that the reader finds without a
    batch."""
    h = five()
    assert found(h) == NOTHING
    tables = h.tables()
    assert tables["log"]["ledger"].tolist() == [7, 7, 7, 7, 8]
    assert tables["log"]["batch"].tolist() == [-1] * 5
    for row in h.rows["sends"]:
        row["batch"] = 0
    assert found(h) == NOTHING


def test_a_later_cumulative_acknowledgement_covers_what_was_refused() -> None:
    assert found(refused_in_between(4)) == {}
    assert found(refused_in_between(0)) == {
        ("refused-not-redelivered", "gone from the backlog"): ["1/0/1"]
    }
