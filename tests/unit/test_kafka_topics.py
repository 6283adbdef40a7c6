"""Topics that Kafka says exist: those of another are refused, those of a request of ours are
not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from harness.errors import UsageError
from harness.protocols.cluster import TopicSettings
from harness.systems.kafka.failover import KafkaFailover
from harness.systems.kafka.topics import TopicAdmin


class Broker:
    """Knows some topics from the start, and repeats a request whose answer was lost, as a client
    does."""

    def __init__(self, known: Sequence[str]) -> None:
        self.known = list(known)

    def list_topics(self) -> list[str]:
        return list(self.known)

    def create_topics(self, request: dict[str, Any], **_: Any) -> Any:
        self.known += [name for name in request if name not in self.known]
        rows = [
            {"name": name, "error_code": 36, "error_message": f"{name} already exists"}
            for name in request
        ]
        return {"topics": rows}


class Ask:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def __call__(self, question: Callable[[Any], Any], *, only: str = "") -> Any:
        return question(self.broker)

    def reachable(self) -> list[str]:
        return ["kafka-1"]


def topics_on(*known: str) -> TopicAdmin:
    return TopicAdmin([], cast("KafkaFailover", Ask(Broker(known))))


def test_a_topic_of_a_request_whose_answer_was_lost_is_ours() -> None:
    topics_on("other").create_topics([TopicSettings("orders", 6, 3)])


def test_a_topic_that_was_there_before_is_refused() -> None:
    with pytest.raises(UsageError, match="orders already exists"):
        topics_on("orders").create_topics([TopicSettings("orders", 6, 3)])
