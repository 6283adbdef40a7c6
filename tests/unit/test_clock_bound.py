"""A load from several machines: what rests on an order of two clocks is not said within their bound."""

from __future__ import annotations

import pytest

from tests.planted.pairs import Pair, found
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
PAIRS = [pair for pair in (*DELIVERED, *PULSAR, *QUEUED) if ORDERED & {cls for cls, _ in pair.shows}]
MINUTE_NS = 60 * 10**9


def test_there_is_one_of_each() -> None:
    assert {cls for pair in PAIRS for cls, _ in pair.shows} == ORDERED


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_nothing_is_said_of_what_is_closer_together_than_the_clocks(pair: Pair) -> None:
    assert found(pair.planted(), clock_bound_ns=1) == pair.shows
    closer = found(pair.planted(), clock_bound_ns=MINUTE_NS)
    assert {cls for cls, _ in closer} == {"delivery-duplicate"}
