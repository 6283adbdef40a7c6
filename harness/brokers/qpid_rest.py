"""Broker-J's REST management, one node a question, every answer within a fixed time.

Objects are addressed by type and path, ``queue/<virtual host node>/<virtual host>/<name>`` (Broker-J's own
documentation, "REST API"). The virtual host node has the name of our node, the virtual host is always ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import urllib3

from harness.brokers.failover import NotThere
from harness.brokers.tls import context_of
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY, Auth, Security
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node

VIRTUAL_HOST = "brokerstorm"
#: Of a broker that asks nobody for more.
GUEST = Auth("user", Secret("guest"), "guest")
_CONNECT_S = 0.75
_ANSWER_S = 2.5  # a healthy broker answers in milliseconds; a starved one in about a second
_GLANCE_S = 1.0
_GONE = 404
Answer = TypeVar("Answer")


class Rest:
    """Requests to the nodes of a cluster. Thread-safe."""

    def __init__(self, nodes: Sequence[Node], security: Security = ANYBODY.admin) -> None:
        self._scheme = "https" if security.tls else "http"
        self._nodes = {node.name: node for node in nodes}
        self._security = security

    @cached_property
    def _http(self) -> urllib3.PoolManager:
        """Opened at the first question: certificates are made when the cluster starts."""
        auth = self._security.auth or GUEST
        return urllib3.PoolManager(
            num_pools=len(self._nodes) + 1,
            retries=False,
            ssl_context=context_of(self._security.tls),
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S),
            headers={
                **urllib3.make_headers(basic_auth=f"{auth.user}:{auth.secret.reveal()}"),
                "Content-Type": "application/json",
            },
        )

    def get(self, node: str, path: str) -> Any:
        """What is at a path: one object, or a list of them."""
        return self._ask("GET", node, path)

    def answers(self, node: str) -> bool:
        """Whether a node answers anything, within a second."""
        url = f"{self._scheme}://{self._nodes[node].admin}/api/latest/broker"
        try:
            self._http.request("GET", url, timeout=urllib3.Timeout(total=_GLANCE_S))
        except (urllib3.exceptions.HTTPError, OSError):
            return False
        return True

    def put(self, node: str, path: str, body: Mapping[str, Any]) -> Any:
        return self._ask("PUT", node, path, body)

    def post(self, node: str, path: str, body: Mapping[str, Any]) -> Any:
        return self._ask("POST", node, path, body)

    def delete(self, node: str, path: str) -> None:
        self._ask("DELETE", node, path)

    def close(self) -> None:
        """Drop all connections. Idempotent; a later question opens them again."""
        self._http.clear()

    def _ask(self, method: str, node: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One request.

        Raises:
            EnvironmentNotReady: no answer, or the node cannot do it now.
            NotThere: there is no such object.
            UsageError: it refuses (its words).
        """
        url = f"{self._scheme}://{self._nodes[node].admin}/api/latest/{path}"
        try:
            answer = self._http.request(method, url, body=json.dumps(body) if body is not None else None)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise EnvironmentNotReady(
                f"{node} does not answer at its admin endpoint ({type(error).__name__})"
            ) from error
        said = _parsed(answer.data)
        if answer.status < 400:
            return said
        words = said.get("errorMessage", "") if isinstance(said, dict) else ""
        text = f"{node} refuses {method} {path}: {answer.status} {words}".rstrip()
        if answer.status == _GONE:
            raise NotThere(text)
        if answer.status >= 500:
            raise EnvironmentNotReady(text)
        raise UsageError(text)


def each(names: Iterable[str], question: Callable[[str], Answer]) -> dict[str, Answer]:
    """Ask nodes beside each other; those that give no answer are left out."""
    asked = list(names)
    found: dict[str, Answer] = {}

    def ask(name: str) -> None:
        try:
            found[name] = question(name)
        except (EnvironmentNotReady, UsageError):
            return

    if len(asked) < 2:
        for name in asked:
            ask(name)
        return found
    with ThreadPoolExecutor(len(asked)) as pool:
        list(pool.map(ask, asked))
    return found


def one(said: Any) -> dict[str, Any]:
    """The object in an answer that may be a list of one; empty when there is none."""
    found = said[0] if isinstance(said, list) and said else said
    return found if isinstance(found, dict) else {}


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
