"""Admin requests to a Kafka cluster of which some brokers may be dead or frozen: another one is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from kafka.errors import BrokerResponseError, KafkaError

from harness.brokers.kafka_single import SingleBrokerAdmin, connect
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node

Answer = TypeVar("Answer")
ASK_S = 8.0  # two frozen brokers in turn, then the third
POLL_S = 0.1


class FailoverAdmin:
    """One connection per node, opened when needed. Thread-safe.

    Args:
        is_reachable: whether a node can answer, as far as the runtime knows; decides whom to ask first.
    """

    def __init__(self, nodes: Sequence[Node], is_reachable: Callable[[str], bool]) -> None:
        self._nodes = tuple(nodes)
        self._is_reachable = is_reachable
        self._clients: dict[str, SingleBrokerAdmin] = {}
        self._lock = threading.Lock()
        self._last = ""

    def __call__(self, question: Callable[[SingleBrokerAdmin], Answer], *, only: str = "") -> Answer:
        """The first answer that a broker gives, asking one after the other until time is up.

        Args:
            only: the one node to ask, once.

        Raises:
            EnvironmentNotReady: none answers.
            UsageError: an answer that asking another broker would not change.
        """
        deadline = time.monotonic() + ASK_S
        failures: dict[str, str] = {}
        while True:
            for node in self._order(only):
                try:
                    answer = question(self._client(node))
                except BrokerResponseError as error:
                    if not error.retriable:
                        raise UsageError(f"{node.name} refuses: {error}") from error
                    failures[node.name] = type(error).__name__
                except (KafkaError, OSError, RuntimeError) as error:  # RuntimeError: closed under our feet
                    failures[node.name] = type(error).__name__
                    self._close(node.name)
                else:
                    self._last = self._last if only else node.name
                    return answer
                if time.monotonic() > deadline:
                    break
            if only or time.monotonic() > deadline:
                said = ", ".join(f"{name} {why}" for name, why in sorted(failures.items()))
                raise EnvironmentNotReady(f"no broker answers at its admin endpoint ({said})")
            time.sleep(POLL_S)

    def reachable(self) -> list[str]:
        """Names of the nodes that can answer, as far as the runtime knows."""
        return [node.name for node in self._nodes if self._is_reachable(node.name)]

    def close(self) -> None:
        """Close every connection. Idempotent; a later question opens connections again."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _order(self, only: str) -> list[Node]:
        """Nodes known to be away last. Before that the one that answered last: a node that was frozen
        until now still answers with the metadata of that time.
        """
        if only:
            return [node for node in self._nodes if node.name == only]
        return sorted(
            self._nodes, key=lambda node: (not self._is_reachable(node.name), node.name != self._last)
        )

    def _client(self, node: Node) -> SingleBrokerAdmin:
        client = self._clients.get(node.name)
        if client is not None:
            return client
        fresh = connect(node)
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
