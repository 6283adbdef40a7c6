"""A message through the master of a Qpid cluster and out again: proof that its store takes and
gives."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pika
from pika.exceptions import AMQPError, ChannelError

from harness.admin.pika_errors import reason_of
from harness.admin.probe import probe_payload
from harness.admin.tls import context_of
from harness.connections.security import ANYBODY, Security
from harness.protocols.cluster import Endpoint
from harness.systems.qpid.rest import GUEST

_PERSISTENT = 2
_CONNECT_S = 2.0
_ANSWER_S = 5.0


def proof(host: str, security: Security) -> dict[str, Any]:
    """Return the arguments for pika that a cluster's security requires."""
    auth, tls = security.auth or GUEST, context_of(security.tls)
    return {
        "credentials": pika.PlainCredentials(auth.user, auth.secret.reveal()),
        "ssl_options": pika.SSLOptions(tls, host) if tls else None,
    }


class Probe:
    """AMQP 0-9-1 at one broker's client endpoint.

    The message goes through a queue of its own: in a queue under test it would be handed to the
    application. All queues of a virtual host share one store, and each of them is asked for by
    name.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        run_tag: int,
        security: Security = ANYBODY.clients,
        virtual_host: str = "",
    ) -> None:
        self._run_tag = run_tag
        self._parameters = pika.ConnectionParameters(
            host=endpoint.host,
            port=endpoint.port,
            virtual_host=virtual_host,
            **proof(endpoint.host, security),
            socket_timeout=_CONNECT_S,
            stack_timeout=_ANSWER_S,
            blocked_connection_timeout=_ANSWER_S,
            heartbeat=2,  # a frozen broker ends the wait after two of them
            client_properties={"instance": "brokerstorm-probe"},
        )

    def failure(self, queues: Sequence[str], *, through: str) -> str:
        """Why a message could not be stored and taken, or which queue is not there; empty = all
        works.

        Args:
            through: the queue that it goes through, made when it is not there; empty = none is
                sent.
        """
        # Refused and lost connections are expected here; the caller reports what matters.
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        try:
            connection = pika.BlockingConnection(self._parameters)
        except (AMQPError, ChannelError, OSError) as error:
            return f"no AMQP connection ({reason_of(error)})"
        try:
            return self._through(connection, queues, through)
        except (AMQPError, ChannelError, OSError) as error:
            return f"no message through the broker ({type(error).__name__}: {error})"
        finally:
            if connection.is_open:
                connection.close()

    def _through(self, connection: pika.BlockingConnection, queues: Sequence[str], own: str) -> str:
        channel = connection.channel()
        for queue in queues:
            channel.queue_declare(queue, passive=True)
        if not own:
            return ""
        channel.queue_declare(own, durable=True)
        channel.queue_purge(own)
        channel.tx_select()  # a commit is answered when the store, and a group's majority, has it
        payload = probe_payload(self._run_tag)
        properties = pika.BasicProperties(delivery_mode=_PERSISTENT)
        channel.basic_publish("", own, payload, properties)
        channel.tx_commit()
        method, _properties, found = channel.basic_get(own)
        if method is None or found != payload:
            return "a message that was committed did not come out again"
        channel.basic_ack(method.delivery_tag)
        channel.tx_commit()
        return ""
