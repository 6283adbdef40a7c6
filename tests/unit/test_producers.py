"""The producers in the report of a run."""

from __future__ import annotations

from typing import Any

from analysis.capture.producers import producers_of
from harness.contracts.plan import Plan, ProducerPlan
from harness.contracts.rows import Manifest, WorkerRow
from tests.planted.plans import DURABLE, build_plan

LEADER = {"delivery": "leader", "order": False, "dedup": False}


def producer(number: int, promise: dict[str, Any] | None = None, **options: str) -> ProducerPlan:
    (one,) = build_plan(topics={"orders": 1}).producers
    changed = {"promise": DURABLE.model_copy(update=promise or {}), "options": options}
    return one.model_copy(
        update={"name": f"p-{number}", "instance": number, "client_version": "2.15.0", **changed}
    )


def plan_of(*producers: ProducerPlan) -> Plan:
    return build_plan(topics={"orders": 1}).model_copy(update={"producers": list(producers)})


def test_each_producer_with_client_options_and_promise() -> None:
    unknown = {"delivery": "unknown", "order": None, "dedup": None}
    plan = plan_of(
        producer(1, acks="all", linger="5"), producer(2, LEADER, acks="1"), producer(3, unknown)
    )
    assert producers_of(plan, Manifest()) == {
        "producer p-1": "confluent-kafka 2.15.0; acks=all, linger=5; promises: an acknowledged message is on "
        "every in-sync replica, order is kept, nothing is stored twice",
        "producer p-2": "confluent-kafka 2.15.0; acks=1; promises: an acknowledged message is on the leader "
        "only, order is not promised, duplicates are allowed",
        "producer p-3": "confluent-kafka 2.15.0; promises: what an acknowledgement promises is not known, "
        "whether order is kept is not known, whether duplicates are allowed is not known",
    }


def test_the_version_is_the_one_that_the_client_told() -> None:
    worker = WorkerRow(
        name="p-1", role="producer", instance=1, client_version="2.15.0 (librdkafka 2.15.1)"
    )
    (text,) = producers_of(plan_of(producer(1)), Manifest(workers=[worker])).values()
    assert text.startswith("confluent-kafka 2.15.0 (librdkafka 2.15.1); promises: ")


def test_producers_that_differ_in_nothing_share_a_line() -> None:
    plan = plan_of(*(producer(n) for n in range(1, 6)), producer(6, acks="0"))
    assert list(producers_of(plan, Manifest())) == [
        "producers p-1, p-2, p-3 and 2 more",
        "producer p-6",
    ]


def test_no_producers() -> None:
    assert producers_of(plan_of(), Manifest()) == {}
