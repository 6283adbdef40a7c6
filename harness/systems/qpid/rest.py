"""Broker-J's REST management, one node a question, every answer within a fixed time.

Objects are addressed by type and path, ``queue/<virtual host node>/<virtual host>/<name>``
(Broker-J's own documentation, "REST API").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import urllib3

from harness.admin.failover import AlreadyThere, NotThere
from harness.admin.tls import context_of
from harness.connections.secret import Secret
from harness.connections.security import ANYBODY, Auth, Security
from harness.errors import EnvironmentNotReady, UsageError
from harness.rundir import Document
from harness.systems.qpid import VIRTUAL_HOST

#: For a broker that needs no more from clients.
GUEST = Auth("user", Secret("guest"), "guest")
_CONNECT_S = 0.75
_ANSWER_S = 2.5  # a healthy broker answers in milliseconds; a starved one in about a second
_GLANCE_S = 1.0
_GONE, _THERE = 404, 409
#: What is quickly answered.
_SHORT = "querybroker/virtualhostnode?select=name"
_LOCKED_OUT = 401


class LockedOut(UsageError):
    """The user is not known there, or the password is another one."""


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where queues are, in the brokers' words.

    Attributes:
        virtual_host: its name, the same on every node of a group.
        hosts: by node, its virtual host node; one that is not named has the name of the node.
    """

    virtual_host: str = VIRTUAL_HOST
    hosts: Mapping[str, str] = field(default_factory=dict)

    def host(self, node: str) -> str:
        """The virtual host node of a node."""
        return self.hosts.get(node, node)

    def nodes(self, hosts: Iterable[str]) -> list[str]:
        """The nodes of virtual host nodes."""
        back = {host: node for node, host in self.hosts.items()}
        return [back.get(host, host) for host in hosts]


#: Of a cluster of our own.
OURS = QueuePlace()


class QpidRest:
    """Requests to the nodes of a cluster. Thread-safe.

    Args:
        urls: node -> where its management answers, ``https://host:8443``.
    """

    def __init__(self, urls: Mapping[str, str], security: Security = ANYBODY.admin) -> None:
        self._urls = urls
        self._security = security

    @cached_property
    def _http(self) -> urllib3.PoolManager:
        """Opened at the first question: certificates are made when the cluster starts."""
        auth = self._security.auth or GUEST
        return urllib3.PoolManager(
            num_pools=len(self._urls) + 1,
            retries=False,
            ssl_context=context_of(self._security.tls),
            timeout=urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S),
            headers={
                **urllib3.make_headers(basic_auth=f"{auth.user}:{auth.secret.reveal()}"),
                "Content-Type": "application/json",
            },
        )

    def get(self, node: str, path: str) -> Any:
        """Return what is at a path: one object, or a list of objects."""
        return self._ask("GET", node, path)

    def answers(self, node: str) -> bool:
        """Whether a node answers anything, within a second."""
        url = f"{self._urls[node]}/api/latest/broker"
        try:
            self._http.request("GET", url, timeout=urllib3.Timeout(total=_GLANCE_S))
        except (urllib3.exceptions.HTTPError, OSError):
            return False
        return True

    def date(self, node: str) -> str:
        """The header `Date` of an answer of a node; empty = it has none.

        Raises:
            EnvironmentNotReady: no answer.
        """
        return str(self._request("GET", node, _SHORT).headers.get("Date", ""))

    def put(self, node: str, path: str, body: Document) -> Any:
        """Create or replace an object of a node."""
        return self._ask("PUT", node, path, body)

    def post(self, node: str, path: str, body: Document) -> Any:
        """Change an object of a node, or call one of its operations."""
        return self._ask("POST", node, path, body)

    def delete(self, node: str, path: str) -> None:
        """Delete an object of a node."""
        self._ask("DELETE", node, path)

    def close(self) -> None:
        """Drop all connections. Idempotent; a later question opens them again."""
        self._http.clear()

    def _ask(self, method: str, node: str, path: str, body: Document | None = None) -> Any:
        """One request.

        Raises:
            EnvironmentNotReady: no answer, or the node cannot do it now.
            NotThere: the object does not exist.
            UsageError: it refuses (its words).
        """
        answer = self._request(method, node, path, json.dumps(body) if body is not None else None)
        said = _parsed(answer.data)
        if answer.status < 400:
            return said
        words = said.get("errorMessage", "") if isinstance(said, dict) else ""
        text = f"{node} refuses {method} {path}: {answer.status} {words}".rstrip()
        if answer.status == _GONE:
            raise NotThere(text)
        if answer.status == _THERE:
            raise AlreadyThere(text)
        if answer.status == _LOCKED_OUT:
            user = (self._security.auth or GUEST).user
            raise LockedOut(f"{node} does not let {user} in: {answer.status} at {self._urls[node]}")
        if answer.status >= 500:
            raise EnvironmentNotReady(text)
        raise UsageError(text)

    def _request(
        self, method: str, node: str, path: str, body: str | None = None
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._http.request(method, f"{self._urls[node]}/api/latest/{path}", body=body)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise EnvironmentNotReady(
                f"{node} does not answer at its admin endpoint, {self._urls[node]} "
                f"({_reason(error)})"
            ) from error


def one(said: Any) -> Document:
    """The object in an answer that may be a list of one; empty when there is none."""
    found = said[0] if isinstance(said, list) and said else said
    return found if isinstance(found, dict) else {}


def _reason(error: Exception) -> str:
    """Return the meaning of an error if it is known, otherwise its name."""
    if isinstance(error, urllib3.exceptions.SSLError):
        return str(error)
    known = {
        urllib3.exceptions.NameResolutionError: "no such host",
        urllib3.exceptions.NewConnectionError: "nothing listens there",
        urllib3.exceptions.ConnectTimeoutError: f"no connection within {_CONNECT_S:g} s",
        urllib3.exceptions.ReadTimeoutError: f"no answer within {_ANSWER_S:g} s",
    }
    return next(
        (text for kind, text in known.items() if isinstance(error, kind)), type(error).__name__
    )


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
