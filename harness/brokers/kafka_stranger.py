"""A Kafka cluster that somebody else started, asked by librdkafka, which follows coordinators by itself and
says best why nobody lets it in."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from harness.brokers.probe import probe_payload
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint

ASK_S: Final = 15.0
_POLL_S: Final = 0.1
_TRIES: Final = 5
_GONE: Final = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART)
#: What no second attempt changes.
_LOCKED_OUT: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)
#: A word of librdkafka's -> what to look at.
_HINTS: Final = {
    "SASL": "look at auth of the connection file: mechanism, user and secret",
    "SSL": "look at tls of the connection file, and at the brokers' certificates",
    "resolve": "look at bootstrap of the connection file: no such host",
    "": "is the cluster up, and its address right?",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What a cluster says of itself: its id, and broker number -> where clients find it."""

    cluster_id: str
    brokers: Mapping[int, Endpoint]


class KafkaStranger:
    """Questions to a cluster. Not for several threads.

    Args:
        options: of librdkafka, for security.
    """

    def __init__(self, bootstrap: str, options: Mapping[str, Any]) -> None:
        quiet = logging.getLogger(f"{__name__}.client")
        quiet.setLevel(logging.CRITICAL)  # what it logs comes as errors, too
        self._bootstrap = bootstrap
        self._errors: list[KafkaError] = []
        self._config = {
            "bootstrap.servers": bootstrap,
            "client.id": "brokerstorm-admin",
            "socket.timeout.ms": 5000,
            "reconnect.backoff.max.ms": 1000,
            "error_cb": self._errors.append,
            "logger": quiet,
            **options,
        }
        self._client = AdminClient(self._config)

    def identity(self) -> Identity:
        """Who it is.

        Raises:
            EnvironmentNotReady: nobody answers, or nobody lets us in.
        """
        found = self._answer(self._client.describe_cluster(request_timeout=ASK_S))
        brokers = {node.id: Endpoint(node.host, node.port) for node in found.nodes}
        return Identity(found.cluster_id, dict(sorted(brokers.items())))

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete groups of consumers; those that are not there are no error.

        Raises:
            EnvironmentNotReady: one could not be deleted.
        """
        if not groups:
            return
        for group, future in self._client.delete_consumer_groups(list(groups), request_timeout=ASK_S).items():
            try:
                self._answer(future)
            except _Refused as error:
                if error.code not in _GONE:
                    raise EnvironmentNotReady(f"group {group} cannot be deleted: {error}") from error

    def settings(self, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Topic -> the settings that it has, its own and the brokers'.

        Raises:
            EnvironmentNotReady: as `identity`, or we may not know.
        """
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        asked = self._client.describe_configs(resources, request_timeout=ASK_S)
        return {
            one.name: {key: entry.value for key, entry in self._answer(future).items()}
            for one, future in asked.items()
        }

    def clocks(self, topic: str, partitions: int) -> dict[int, tuple[float, float]]:
        """Partition of a topic that brokers stamp -> how far its leader's clock is ahead of ours, and within
        what: half the shortest round trip. Seconds; partitions of which nothing came back are left out."""
        found: dict[int, tuple[float, float]] = {}
        producer = Producer({**self._config, "acks": "all", "linger.ms": 0, "message.timeout.ms": 5000})

        def note(partition: int, sent_s: float, error: KafkaError | None, message: Message) -> None:
            kind, stamp_ms = message.timestamp()
            if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
                within_s = (time.time() - sent_s) / 2
                if within_s < found.get(partition, (0.0, math.inf))[1]:
                    found[partition] = (stamp_ms / 1000 - sent_s - within_s, within_s)

        for _ in range(_TRIES):
            for partition in range(partitions):
                told = partial(note, partition, time.time())
                producer.produce(topic, probe_payload(1), partition=partition, on_delivery=told)
                producer.flush(ASK_S)
        return found

    def _answer(self, future: Future[Any]) -> Any:
        """The answer, or the first reason why none can come.

        Raises:
            EnvironmentNotReady: as `identity`.
            _Refused: the brokers' own refusal.
        """
        deadline = time.monotonic() + ASK_S
        while not future.done():
            self._client.poll(_POLL_S)
            fatal = next((error for error in self._errors if error.code() in _LOCKED_OUT), None)
            if fatal or time.monotonic() > deadline:
                raise self._no_answer(fatal)
        try:
            return future.result()
        except KafkaException as error:
            with suppress(KafkaException):
                self._client.poll(0)
            reason: KafkaError = error.args[0]
            if reason.code() < 0:  # of the client, not of a broker
                raise self._no_answer(None) from None
            raise _Refused(reason) from error

    def _no_answer(self, fatal: KafkaError | None) -> EnvironmentNotReady:
        reason = fatal or (self._errors[-1] if self._errors else None)
        said = reason.str() if reason else "nothing listens there, or it does not speak Kafka"
        hint = next((hint for word, hint in _HINTS.items() if word in said), _HINTS[""])
        return EnvironmentNotReady(
            f"{self._bootstrap}: {said}",
            hint=hint,
        )


class _Refused(EnvironmentNotReady):
    """A broker answered, and refuses."""

    def __init__(self, reason: KafkaError) -> None:
        super().__init__(reason.str())
        self.code = reason.code()
