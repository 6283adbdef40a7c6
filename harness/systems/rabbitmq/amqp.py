"""AMQP 0-9-1 to one node: queues are declared and deleted, and a message goes in and comes out."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pika
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    ChannelError,
    ConnectionClosedByBroker,
)

from harness.admin.failover import AlreadyThere
from harness.admin.pika_errors import reason_of
from harness.admin.probe import probe_payload
from harness.admin.tls import context_of
from harness.connections.secret import Secret
from harness.connections.security import Auth, Security
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Endpoint
from harness.systems.rabbitmq import DELIVERY_LIMIT, QUORUM, TTL, TYPE, VIRTUAL_HOST

#: For a broker that asks no more of clients.
GUEST: Final = Auth("user", Secret("guest"), "guest")
_PERSISTENT: Final = 2
_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 8.0  # the declaration of a quorum queue starts a Raft group on three nodes
_NOT_FOUND: Final = 404
#: Words of a node that does not know the type of a queue yet, before it closes the connection.
_FLAG_OFF: Final = "feature flag is disabled"
#: Begins the names of the queues for messages of the harness.
PROBES: Final = "brokerstorm.probe."
#: Settings of a queue that are numbers; RabbitMQ refuses them as texts.
_NUMBERS: Final = frozenset(
    (
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-priority",
        "x-quorum-initial-group-size",
        "x-initial-cluster-size",
        "x-stream-max-segment-size-bytes",
        "x-max-in-memory-bytes",
        DELIVERY_LIMIT,
        TTL,
    )
)


def native(config: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a queue as AMQP has them.

    Raises:
        UsageError: a number that is none.
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key in _NUMBERS:
            if not re.fullmatch(r"-?\d+", value):
                raise UsageError(f"topics.config.{key}={value}: must be a whole number")
            found[key] = int(value)
        else:
            found[key] = {"true": True, "false": False}.get(value.lower(), value)
    return found


class Amqp:
    """Connections to the client endpoint of a node, one a question.

    Args:
        virtual_host: where the queues are.
    """

    def __init__(
        self, endpoint: Endpoint, security: Security, virtual_host: str = VIRTUAL_HOST
    ) -> None:
        self._endpoint = endpoint
        self._security = security
        self._virtual_host = virtual_host

    def parameters(self) -> pika.ConnectionParameters:
        """Made for each connection: certificates are made when the cluster starts."""
        auth, tls = self._security.auth or GUEST, context_of(self._security.tls)
        return pika.ConnectionParameters(
            host=self._endpoint.host,
            port=self._endpoint.port,
            virtual_host=self._virtual_host,
            credentials=pika.PlainCredentials(auth.user, auth.secret.reveal()),
            ssl_options=pika.SSLOptions(tls, self._endpoint.host) if tls else None,
            socket_timeout=_CONNECT_S,
            stack_timeout=_ANSWER_S,
            blocked_connection_timeout=_ANSWER_S,
            heartbeat=4,  # a frozen node ends the wait after two of them
            client_properties={"connection_name": "brokerstorm-admin"},
        )

    def log_in(self) -> None:
        """Connect once, as clients do.

        Raises:
            EnvironmentNotReady: it is not possible.
        """
        with self._channel():
            pass

    def declare(self, queue: str, config: Mapping[str, str]) -> None:
        """Declare a durable queue whose leader is on this node.

        Raises:
            AlreadyThere: a queue of that name exists.
            UsageError: refused (the node's words).
            EnvironmentNotReady: no answer, or a feature flag is off.
        """
        with self._channel() as channel:
            exists = self._exists(channel, queue)
        with self._channel() as channel:
            try:
                channel.queue_declare(queue, durable=True, arguments=native(config))
            except ChannelClosedByBroker as error:
                if exists:
                    raise AlreadyThere(
                        f"queue {queue} exists already with other arguments ({error.reply_text})",
                        hint="choose another topic name",
                    ) from None
                raise UsageError(
                    f"queue {queue}: {error.reply_text}", hint="see topics.config of the scenario"
                ) from None
            except ConnectionClosedByBroker as error:
                if _FLAG_OFF not in error.reply_text:
                    raise
                raise EnvironmentNotReady(
                    f"queue {queue}: {TYPE}={config.get(TYPE)}: the brokers have this type "
                    f"switched off ({error.reply_text})",
                    hint="`rabbitmqctl enable_feature_flag all` on one of them switches it on",
                ) from None
        if exists:
            raise AlreadyThere(f"queue {queue} exists already", hint="choose another topic name")

    def delete(self, queues: Sequence[str]) -> None:
        """Delete queues with what is in them; it is not an error if one does not exist.

        Raises:
            EnvironmentNotReady: no answer.
        """
        with self._channel() as channel:
            for queue in queues:
                channel.queue_delete(queue)

    def failure(self, queues: Sequence[str], probe: str, run_tag: int) -> str:
        """Why a message could not be stored and taken, or which queue is missing; empty = all
        works.

        Args:
            probe: the queue that the message goes through: in a queue under test it would be handed
                to the application. Empty = no message is stored.
        """
        try:
            with self._channel() as channel:
                for queue in queues:
                    channel.queue_declare(queue, passive=True)
                return _went_through(channel, probe, run_tag) if probe else ""
        except EnvironmentNotReady as error:
            return str(error)
        except ChannelClosedByBroker as error:
            return str(error.reply_text)

    def _exists(self, channel: Any, queue: str) -> bool:
        try:
            channel.queue_declare(queue, passive=True)
        except ChannelClosedByBroker as error:
            if error.reply_code == _NOT_FOUND:
                return False
            raise
        return True

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        # Refused and lost connections are expected here; the caller reports what matters.
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        where = str(self._endpoint)
        try:
            connection = pika.BlockingConnection(self.parameters())
        except (AMQPError, ChannelError, OSError) as error:
            raise EnvironmentNotReady(
                f"no AMQP connection to {where} ({reason_of(error)})"
            ) from error
        try:
            yield connection.channel()
        except ChannelClosedByBroker:
            raise
        except (AMQPError, ChannelError, OSError) as error:
            raise EnvironmentNotReady(f"{where} does not answer ({reason_of(error)})") from error
        finally:
            if connection.is_open:
                connection.close()


def _went_through(channel: Any, queue: str, run_tag: int) -> str:
    arguments = {TYPE: QUORUM}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.queue_purge(queue)
    channel.confirm_delivery()
    payload = probe_payload(run_tag)
    properties = pika.BasicProperties(delivery_mode=_PERSISTENT)
    channel.basic_publish("", queue, payload, properties, mandatory=True)
    method, _properties, found = channel.basic_get(queue)
    if method is None or found != payload:
        return "a message that was confirmed did not come out again"
    channel.basic_ack(method.delivery_tag)
    return ""
