"""A message through the master of a Qpid cluster and out again: proof that its store takes and gives."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pika
from pika.exceptions import AMQPError, ChannelError

from harness.brokers.probe import probe_payload
from harness.brokers.qpid_rest import GUEST, VIRTUAL_HOST
from harness.brokers.tls import context_of
from harness.connections.security import ANYBODY, Security
from harness.protocols.cluster import Endpoint

_QUEUE = "brokerstorm.probe"
_PERSISTENT = 2
_CONNECT_S = 2.0
_ANSWER_S = 5.0


class Probe:
    """AMQP 0-9-1 at one broker's client endpoint.

    The message goes through a queue of its own: in a queue under test it would be handed to the application.
    All queues of a virtual host share one store, and each of them is asked for by name.
    """

    def __init__(self, endpoint: Endpoint, run_tag: int, security: Security = ANYBODY.clients) -> None:
        auth, tls = security.auth or GUEST, context_of(security.tls)
        self._run_tag = run_tag
        self._parameters = pika.ConnectionParameters(
            host=endpoint.host,
            port=endpoint.port,
            virtual_host=VIRTUAL_HOST,
            credentials=pika.PlainCredentials(auth.user, auth.secret.reveal()),
            ssl_options=pika.SSLOptions(tls, endpoint.host) if tls else None,
            socket_timeout=_CONNECT_S,
            stack_timeout=_ANSWER_S,
            blocked_connection_timeout=_ANSWER_S,
            heartbeat=2,  # a frozen broker ends the wait after two of them
            client_properties={"instance": "brokerstorm-probe"},
        )

    def failure(self, queues: Sequence[str]) -> str:
        """Why a message could not be stored and taken, or which queue is not there; empty = all works."""
        # Refused and lost connections are expected here; the caller reports what matters.
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        try:
            connection = pika.BlockingConnection(self._parameters)
        except (AMQPError, ChannelError, OSError) as error:
            return f"no AMQP connection ({type(error).__name__})"
        try:
            return self._through(connection, queues)
        except (AMQPError, ChannelError, OSError) as error:
            return f"no message through the broker ({type(error).__name__}: {error})"
        finally:
            if connection.is_open:
                connection.close()

    def _through(self, connection: pika.BlockingConnection, queues: Sequence[str]) -> str:
        channel = connection.channel()
        for queue in queues:
            channel.queue_declare(queue, passive=True)
        channel.queue_declare(_QUEUE, durable=True)
        channel.queue_purge(_QUEUE)
        channel.tx_select()  # a commit is answered when the store, and a group's majority, has it
        payload = probe_payload(self._run_tag)
        properties = pika.BasicProperties(delivery_mode=_PERSISTENT)
        channel.basic_publish("", _QUEUE, payload, properties)
        channel.tx_commit()
        method, _properties, found = channel.basic_get(_QUEUE)
        if method is None or found != payload:
            return "a message that was committed did not come out again"
        channel.basic_ack(method.delivery_tag)
        channel.tx_commit()
        return ""
