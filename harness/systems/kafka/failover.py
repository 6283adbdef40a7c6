"""Kafka's admin client, one connection per broker, with another broker asked when one does not
answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from kafka.errors import BrokerResponseError, KafkaError

from harness.admin.failover import ASK_S, FailoverAdmin, NoAnswer
from harness.connections.security import ANYBODY, Security
from harness.errors import UsageError
from harness.protocols.cluster import Node
from harness.systems.kafka.security import admin_options
from harness.systems.kafka.single import SingleBrokerAdmin, connect

Answer = TypeVar("Answer")


class KafkaFailover(FailoverAdmin):
    """Connections are opened when needed."""

    def __init__(
        self,
        nodes: Sequence[Node],
        is_reachable: Callable[[str], bool],
        security: Security = ANYBODY.admin,
    ) -> None:
        super().__init__(nodes, is_reachable)
        self._security = security
        self._clients: dict[str, SingleBrokerAdmin] = {}
        self._lock = threading.Lock()

    def __call__(
        self, question: Callable[[SingleBrokerAdmin], Answer], *, only: str = ""
    ) -> Answer:
        """Ask brokers in turn; see `first_answer`.

        Raises:
            EnvironmentNotReady: none answers.
            UsageError: an answer that asking another broker would not change.
        """

        def ask(node: Node) -> Answer:
            try:
                return question(self._client(node))
            except BrokerResponseError as error:
                if not error.retriable:
                    raise UsageError(f"{node.name} refuses: {error}") from error
                raise NoAnswer(type(error).__name__) from error
            except (KafkaError, OSError, RuntimeError) as error:
                # RuntimeError: closed under our feet
                self._close(node.name)
                raise NoAnswer(type(error).__name__) from error

        return self.first_answer(ask, only=only, within_s=ASK_S)

    def close(self) -> None:
        """Close every connection. Idempotent; a later question opens connections again."""
        for name in list(self._clients):
            self._close(name)

    def _client(self, node: Node) -> SingleBrokerAdmin:
        client = self._clients.get(node.name)
        if client is not None:
            return client
        fresh = connect(node, admin_options(self._security))
        with self._lock:
            client = self._clients.setdefault(node.name, fresh)
        if client is not fresh:  # another thread was faster
            fresh.close()
        return client

    def _close(self, name: str) -> None:
        with self._lock:
            client = self._clients.pop(name, None)
        if client is not None:
            client.close()
