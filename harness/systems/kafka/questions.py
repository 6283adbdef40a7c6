"""A Kafka cluster that somebody else started, asked by librdkafka, which follows coordinators by
itself and says best why no broker accepts its login."""

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

from harness.admin.probe import PROBE_KEY, probe_payload
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint
from harness.waiting import wait_until

ASK_S: Final = 15.0
_POLL_S: Final = 0.1
_TURN_S: Final = 0.5
_TRIES: Final = 5
_GONE: Final = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART)
#: A consumer's session timeout by default (45 s), and what a busy coordinator needs.
_SESSION_S: Final = 60.0
#: What no second attempt changes.
_LOCKED_OUT: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)
#: How long connections may be refused; brokers that start take some seconds.
_AWAY_S: Final = 5.0
#: A word of librdkafka's -> what to look at.
_HINTS: Final = {
    "OAuth": "look at auth of the connection file: a token is a JWT that has not run out",
    "SASL": "look at auth of the connection file: mechanism, user and secret",
    "SSL": "look at tls of the connection file, and at the brokers' certificates",
    "ssl.": "look at tls of the connection file: PEM files that can be read, and key_password",
    "resolve": "look at bootstrap of the connection file: no such host",
    "": "is the cluster up, and its address right?",
}


@dataclass(frozen=True, slots=True)
class KafkaIdentity:
    """The facts that a cluster reports about itself: its id, and broker number -> address for
    clients."""

    cluster_id: str
    brokers: Mapping[int, Endpoint]


class KafkaQuestions:
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
        try:
            self._client = AdminClient(self._config)
        except KafkaException as error:
            # what it is to prove who we are with is not there, or no such thing
            raise self._not_reached(error.args[0].str()) from None

    def identity(self) -> KafkaIdentity:
        """Return the cluster's identity.

        Raises:
            EnvironmentNotReady: no broker answers, or none accepts our login.
        """
        found = self._metadata()
        brokers = {number: Endpoint(node.host, node.port) for number, node in found.brokers.items()}
        return KafkaIdentity(found.cluster_id, dict(sorted(brokers.items())))

    def _metadata(self) -> Any:
        """Return the metadata from any broker. `describe_cluster` waits for the controller, and
        brokers may still take one that has just died for the controller.

        Raises:
            EnvironmentNotReady: as `identity`.
        """
        begun, before, turn_s = time.monotonic(), len(self._errors), _TURN_S
        while True:
            try:
                return self._client.list_topics(timeout=turn_s)
            except KafkaException:
                self._client.poll(0)
                self._check_reachable(begun, before)
                turn_s *= 2  # many topics take long

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete groups of consumers; it is not an error if one does not exist. Who crashed is a
        member until its session is over, which is waited for.

        Raises:
            EnvironmentNotReady: one could not be deleted.
        """
        left = dict.fromkeys(groups, "")

        def are_deleted() -> bool:
            nonlocal left
            left = self._not_deleted([*left])
            return not left

        if not wait_until(are_deleted, _SESSION_S, every_s=1.0):
            group, why = next(iter(left.items()))
            raise EnvironmentNotReady(f"group {group} cannot be deleted: {why}")

    def _not_deleted(self, groups: Sequence[str]) -> dict[str, str]:
        """Groups that still have members -> what the broker says of them."""
        if not groups:
            return {}
        members = {}
        for group, future in self._client.delete_consumer_groups(
            list(groups), request_timeout=ASK_S
        ).items():
            try:
                self._answer(future)
            except _Refused as error:
                if error.code == KafkaError.NON_EMPTY_GROUP:
                    members[group] = str(error)
                elif error.code not in _GONE:
                    raise EnvironmentNotReady(
                        f"group {group} cannot be deleted: {error}"
                    ) from error
        return members

    def group_members(self, group: str) -> dict[str, list[str]]:
        """Member id -> ``TOPIC-PARTITION`` of each assigned partition; empty if the group has no
        member.

        Raises:
            EnvironmentNotReady: as `identity`, or we may not know.
        """
        (future,) = self._client.describe_consumer_groups([group], request_timeout=ASK_S).values()
        try:
            found = self._answer(future)
        except _Refused as error:
            if error.code in _GONE:
                return {}
            raise EnvironmentNotReady(
                f"the members of group {group} cannot be read: {error}",
                hint="the user must be allowed to describe this group",
            ) from error
        return {
            member.member_id: [
                f"{at.topic}-{at.partition}" for at in member.assignment.topic_partitions
            ]
            for member in found.members
        }

    def settings(self, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Topic -> the settings that it has, its own and the brokers'.

        Not every broker knows a topic that was just made: they are asked until they do.

        Raises:
            EnvironmentNotReady: as `identity`, or we may not know.
        """
        deadline = time.monotonic() + ASK_S
        while True:
            try:
                return self._settings(topics)
            except _Refused as error:
                if error.code != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                    raise EnvironmentNotReady(
                        f"the settings of {', '.join(topics)} cannot be read: {error}",
                        hint="the user must be allowed to describe the settings of topics and brokers",
                    ) from error
                time.sleep(_POLL_S)

    def _settings(self, topics: Sequence[str]) -> dict[str, dict[str, str | None]]:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        asked = self._client.describe_configs(resources, request_timeout=ASK_S)
        return {
            one.name: {key: entry.value for key, entry in self._answer(future).items()}
            for one, future in asked.items()
        }

    def clocks(self, topic: str, partitions: int) -> dict[int, tuple[float, float]]:
        """Partition of a topic that brokers stamp -> how far its leader's clock is ahead of ours,
        and within what: half the shortest round trip. Seconds; partitions of which nothing came
        back are left out."""
        found: dict[int, tuple[float, float]] = {}
        producer = Producer(
            {**self._config, "acks": "all", "linger.ms": 0, "message.timeout.ms": 5000}
        )

        def note(partition: int, sent_s: float, error: KafkaError | None, message: Message) -> None:
            kind, stamp_ms = message.timestamp()
            if error is None and kind == TIMESTAMP_LOG_APPEND_TIME:
                within_s = (time.time() - sent_s) / 2
                if within_s < found.get(partition, (0.0, math.inf))[1]:
                    found[partition] = (stamp_ms / 1000 - sent_s - within_s, within_s)

        for _ in range(_TRIES):
            for partition in range(partitions):
                told = partial(note, partition, time.time())
                producer.produce(
                    topic, probe_payload(1), key=PROBE_KEY, partition=partition, on_delivery=told
                )
                producer.flush(ASK_S)
        return found

    def _answer(self, future: Future[Any]) -> Any:
        """The answer, or the first reason why none can come.

        Raises:
            EnvironmentNotReady: as `identity`.
            _Refused: the brokers' own refusal.
        """
        begun, before = time.monotonic(), len(self._errors)
        while not future.done():
            self._client.poll(_POLL_S)
            self._check_reachable(begun, before)
        try:
            return future.result()
        except KafkaException as error:
            with suppress(KafkaException):
                self._client.poll(0)
            reason: KafkaError = error.args[0]
            if reason.code() < 0:  # of the client, not of a broker
                raise self._no_answer(None) from None
            raise _Refused(reason) from error

    def _check_reachable(self, begun: float, before: int) -> None:
        """Whether an answer may still come to a question of then, before which so many errors were
        seen.

        Raises:
            EnvironmentNotReady: as `identity`.
        """
        fatal = next((error for error in self._errors if error.code() in _LOCKED_OUT), None)
        away = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in self._errors[before:])
        if fatal or time.monotonic() - begun > (_AWAY_S if away else ASK_S):
            raise self._no_answer(fatal)

    def _no_answer(self, fatal: KafkaError | None) -> EnvironmentNotReady:
        told = [error for error in self._errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
        reason = fatal or (told[-1] if told else None)
        return self._not_reached(
            reason.str() if reason else "nothing listens there, or it does not speak Kafka"
        )

    def _not_reached(self, said: str) -> EnvironmentNotReady:
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
