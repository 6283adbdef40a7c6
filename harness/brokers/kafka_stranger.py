"""A Kafka cluster that somebody else started, asked by librdkafka, which follows coordinators by itself and
says best why nobody lets it in."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint

ASK_S: Final = 15.0
_POLL_S: Final = 0.1
_GONE: Final = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART)
#: What no second attempt changes -> what to look at.
_LOCKED_OUT: Final = {
    KafkaError._AUTHENTICATION: "look at auth of the connection file: mechanism, user and secret",
    KafkaError._SSL: "look at tls of the connection file, and at the brokers' certificates",
    KafkaError._RESOLVE: "look at bootstrap of the connection file",
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
        self._client = AdminClient(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "brokerstorm-admin",
                "socket.timeout.ms": 5000,
                "reconnect.backoff.max.ms": 1000,
                "error_cb": self._errors.append,
                **options,
            },
            logger=quiet,
        )

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
        return EnvironmentNotReady(
            f"{self._bootstrap}: {said}",
            hint=_LOCKED_OUT.get(reason.code(), "")
            if reason and fatal
            else "is the cluster up, and its address right?",
        )


class _Refused(EnvironmentNotReady):
    """A broker answered, and refuses."""

    def __init__(self, reason: KafkaError) -> None:
        super().__init__(reason.str())
        self.code = reason.code()
