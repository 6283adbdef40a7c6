"""A load from several machines: what rests on an order of two clocks is not said within their
bound."""

from __future__ import annotations

import pytest

from harness.contracts.plan import ConsumerPromise
from tests.planted.pairs import Pair, found
from tests.planted.tiny import EPOCH_NS, History
from tests.unit.test_delivery_twins import PAIRS as DELIVERED
from tests.unit.test_pulsar_twins import DELIVERY_PAIRS as PULSAR
from tests.unit.test_queue_twins import PAIRS as QUEUED

#: Classes that say that one session saw something after another had done something.
ORDERED = {
    "redelivered-after-ack",
    "committed-and-redelivered",
    "premature-redelivery",
    "rewind-past-commit",
}
PAIRS = [
    pair for pair in (*DELIVERED, *PULSAR, *QUEUED) if ORDERED & {cls for cls, _ in pair.shows}
]
MINUTE_NS = 60 * 10**9


def keyed_history() -> History:
    """Two messages of one key, stored in order; two consumers share the keys."""
    reading = ConsumerPromise(subscription="key_shared", order="key")
    h = History(system="pulsar", mode="key", keys=1, sessions=2, reading=reading, settle="ack")
    return h.sent(2, lane=0).log(0, 1, lane=0)


def test_there_is_one_of_each() -> None:
    assert {cls for pair in PAIRS for cls, _ in pair.shows} - {"delivery-duplicate"} == ORDERED


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_nothing_is_said_of_what_is_closer_together_than_the_clocks(pair: Pair) -> None:
    assert found(pair.planted(), clock_bound_ns=1) == pair.shows
    closer = found(pair.planted(), clock_bound_ns=MINUTE_NS)
    assert {cls for cls, _ in closer} == {"delivery-duplicate"}


MS = 10**6


def by_turns(late_ms: float, *, sessions: tuple[int, int]) -> History:
    """Message 0 of a key is given to one consumer, and 1 to another (or the same) ``late_ms``
    before that. 0 is acknowledged at once: of two that overlap, one is out of order whatever came
    first."""
    h = keyed_history()
    h.deliver(1, lane=0, session=sessions[1], at_ms=100)
    h.deliver(0, lane=0, session=sessions[0], at_ms=100 + late_ms)
    return h.acked(0, session=sessions[0], at_ms=100.5 + late_ms)


@pytest.mark.parametrize(
    ("late_ms", "sessions", "is_told"),
    [(5, (1, 2), False), (15, (1, 2), True), (5, (1, 1), True)],
)
def test_two_consumers_give_an_order_beyond_their_clocks_only(
    late_ms: float, sessions: tuple[int, int], is_told: bool
) -> None:
    told = found(by_turns(late_ms, sessions=sessions), clock_bound_ns=10 * MS)
    assert ("per-key-reorder" in {cls for cls, _ in told}) is is_told


def held(settled_ms: float) -> History:
    """Message 0 of a key is acknowledged by its consumer ``settled_ms`` after another was given
    1."""
    h = (
        keyed_history()
        .deliver(0, lane=0, session=1, at_ms=100)
        .deliver(1, lane=0, session=2, at_ms=200)
    )
    return h.acked(0, session=1, at_ms=200 + settled_ms)


@pytest.mark.parametrize(("settled_ms", "is_told"), [(5, False), (15, True)])
def test_a_message_is_held_elsewhere_beyond_the_clocks_only(
    settled_ms: float, is_told: bool
) -> None:
    told = found(held(settled_ms), clock_bound_ns=10 * MS)
    assert ("per-key-reorder" in {cls for cls, _ in told}) is is_told


def given_to_another(why: str, late_ms: float) -> History:
    """Message 0 is given to a consumer, and 0.5 s later to another; the first one refuses it or
    ends ``late_ms`` after that, as its own clock says. Its ack timeout is 3 s."""
    reading = ConsumerPromise(subscription="shared", order="none", ack_timeout_s=3.0)
    h = History(system="pulsar", sessions=2, reading=reading, settle="ack").sent(1).log(0)
    h.deliver(0, session=1, at_ms=100).deliver(0, session=2, at_ms=600)
    if why == "nack":
        return h.nack(0, session=1, at_ms=600 + late_ms)
    h.workers["c-1"] = {"t_start_ns": EPOCH_NS, "t_end_ns": EPOCH_NS + round((600 + late_ms) * 1e6)}
    return h


@pytest.mark.parametrize("why", ["nack", "end"])
@pytest.mark.parametrize(("late_ms", "is_told"), [(5, False), (15, True)])
def test_a_reason_of_another_machine_may_have_come_before(
    why: str, late_ms: float, is_told: bool
) -> None:
    told = found(given_to_another(why, late_ms), clock_bound_ns=10 * MS)
    assert ("premature-redelivery" in {cls for cls, _ in told}) is is_told
