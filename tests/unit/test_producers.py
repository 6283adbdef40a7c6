"""The producers in the report of a run."""

from __future__ import annotations

from typing import Any

from analysis.capture.producers import producers_of

DURABLE = {"delivery": "durable", "order": True, "dedup": True}
LEADER = {"delivery": "leader", "order": False, "dedup": False}


def producer(number: int, promise: dict[str, Any] = DURABLE, **options: str) -> dict[str, Any]:
    return {
        "name": f"p-{number}",
        "instance": number,
        "client": "confluent-kafka",
        "client_version": "2.15.0",
        "options": options,
        "promise": promise,
    }


def test_each_producer_with_client_options_and_promise() -> None:
    unknown = {"delivery": "unknown", "order": None, "dedup": None}
    plan = {
        "producers": [
            producer(1, acks="all", linger="5"),
            producer(2, LEADER, acks="1"),
            producer(3, unknown),
        ]
    }
    assert producers_of(plan, {}) == {
        "producer p-1": "confluent-kafka 2.15.0; acks=all, linger=5; promises: an acknowledged message is on "
        "every in-sync replica, order is kept, nothing is stored twice",
        "producer p-2": "confluent-kafka 2.15.0; acks=1; promises: an acknowledged message is on the leader "
        "only, order is not promised, duplicates are allowed",
        "producer p-3": "confluent-kafka 2.15.0; promises: what an acknowledgement promises is not known, "
        "whether order is kept is not known, whether duplicates are allowed is not known",
    }


def test_the_version_is_the_one_that_the_client_told() -> None:
    worker = {"role": "producer", "instance": 1, "client_version": "2.15.0 (librdkafka 2.15.1)"}
    (text,) = producers_of({"producers": [producer(1)]}, {"workers": [worker]}).values()
    assert text.startswith("confluent-kafka 2.15.0 (librdkafka 2.15.1); promises: ")


def test_producers_that_differ_in_nothing_share_a_line() -> None:
    plan = {"producers": [*(producer(n) for n in range(1, 6)), producer(6, acks="0")]}
    assert list(producers_of(plan, {})) == ["producers p-1, p-2, p-3 and 2 more", "producer p-6"]


def test_no_producers() -> None:
    assert producers_of({}, {}) == {}
