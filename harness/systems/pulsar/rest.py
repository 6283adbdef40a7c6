"""Questions to Pulsar's brokers over HTTP, of which some may be dead, frozen or not the owner.

A broker that does not own what is asked about answers 307 with the owner's address, which is
followed with method and body. The owner may be dead by then: another broker is asked, until time is
up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import urllib3

from harness.admin.failover import ASK_S, FailoverAdmin, NoAnswer, NotThere
from harness.admin.oauth2 import AccessToken
from harness.admin.tls import context_of
from harness.connections.security import ANYBODY, Security
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Node

ACT_S = 60.0  # unloading a namespace of a hundred busy topics on a starved machine
_CONNECT_S, _ANSWER_S = 1.5, 3.0
_HOPS = 6  # leader, owner, and once more when ownership has just moved
#: The broker is starting, has lost ZooKeeper, is not the owner (any more), or is busy: ask again.
_INVALID = re.compile(r"\binvalid\b|not valid", re.IGNORECASE)  # a 412 that stays
_LOOKUP = "/lookup/v2/topic"
_LATER = frozenset({307, 408, 412, 425, 429, 500, 502, 503, 504})


class PulsarRest(FailoverAdmin):
    """Requests to the brokers' web endpoints.

    Args:
        ids: broker -> ``host:port`` as the brokers name it among themselves, where that differs:
            what they send us on to may mean nothing here.
    """

    def __init__(
        self,
        brokers: Sequence[Node],
        is_reachable: Callable[[str], bool],
        ids: Mapping[str, str] | None = None,
        security: Security = ANYBODY.admin,
    ) -> None:
        super().__init__(brokers, is_reachable)
        self._security = security
        self._scheme = "https" if security.tls else "http"
        self._by_address = {str(node.admin): node.name for node in brokers}
        self._by_address |= {address: name for name, address in (ids or {}).items()}
        self._admin = {node.name: str(node.admin) for node in brokers}

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        """Opened at the first question: certificates are made when the cluster starts."""
        context = context_of(self._security.tls)
        return urllib3.PoolManager(num_pools=16, maxsize=16, retries=False, ssl_context=context)

    @cached_property
    def _token(self) -> Callable[[], str]:
        auth = self._security.auth
        if auth is None:
            return str
        return auth.secret.reveal if auth.mechanism == "token" else AccessToken(auth)

    def _headers(self) -> dict[str, str]:
        token = self._token()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str, *, only: str = "", within_s: float = ASK_S) -> Any:
        """The JSON that a broker answers; ``only`` = the one node to ask, once."""
        return self._ask("GET", path, None, only, within_s, _ANSWER_S)

    def raw(self, path: str, *, first: str | None) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of an answer; ``first``: the broker that is asked before all others."""
        if first:
            try:
                return self._answer("GET", path, None, first, ASK_S, _ANSWER_S)
            except EnvironmentNotReady:
                pass
        return self._answer("GET", path, None, "", ASK_S, _ANSWER_S)

    def owner_of(self, topic: str, *, within_s: float) -> str | None:
        """The broker that clients of a topic are sent to (its full name); None when it is none of
        ours."""
        found = self.get(f"{_LOOKUP}/{topic.replace('://', '/')}", within_s=within_s)
        urls = (found.get("httpUrlTls"), found.get("httpUrl"))
        return next((name for url in urls if url and (name := self.name_of(url))), None)

    def put(self, path: str, body: Any = None, *, within_s: float = ACT_S) -> Any:
        """Do something; returns when the broker has done it."""
        return self._ask("PUT", path, body, "", within_s, within_s)

    def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request; see `put`."""
        return self._ask("POST", path, body, "", ACT_S, ACT_S)

    def delete(self, path: str) -> None:
        """Send a DELETE request; see `put`. It is not an error if the object does not exist."""
        try:
            self._ask("DELETE", path, None, "", ACT_S, ACT_S)
        except NotThere:
            return

    def date(self, node: str) -> str:
        """Return a broker's time in whole seconds (RFC 9110); empty if it does not send one.

        Raises:
            EnvironmentNotReady: it does not answer.
        """

        def ask(asked: Node) -> str:
            url = f"{self._scheme}://{asked.admin}/admin/v2/brokers/version"
            timeout = urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S)
            try:
                found = self._pool.request(
                    "GET", url, headers=self._headers(), timeout=timeout, redirect=False
                )
            except urllib3.exceptions.HTTPError as error:
                raise NoAnswer(_words(error)) from error
            return str(found.headers.get("Date", ""))

        return self.first_answer(
            ask, only=node, within_s=_ANSWER_S, failure="no broker tells the time"
        )

    def close(self) -> None:
        """Drop all connections. Idempotent; a later question opens them again."""
        self._pool.clear()

    def _ask(
        self, method: str, path: str, body: Any, only: str, within_s: float, answer_s: float
    ) -> Any:
        """The first answer that counts, decoded; raises as `_answer`."""
        return _decoded(self._answer(method, path, body, only, within_s, answer_s)[1])

    def _answer(
        self, method: str, path: str, body: Any, only: str, within_s: float, answer_s: float
    ) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of the first answer that counts.

        Raises:
            NotThere: 404.
            UsageError: refused for a reason that asking again does not change (the broker's words).
            EnvironmentNotReady: no broker gives an answer that counts within ``within_s``.
        """

        def ask(node: Node) -> tuple[Mapping[str, str], bytes]:
            try:
                status, headers, data = self._follow(
                    node, method, path, body, min(answer_s, within_s)
                )
            except urllib3.exceptions.HTTPError as error:
                raise NoAnswer(_words(error)) from error
            if status >= 300:
                answer = _decoded(data)
                if status not in _LATER or _INVALID.search(_reason(answer)):
                    raise _refusal(status, method, path, answer)
                raise NoAnswer(f"{status} {_reason(answer)}".strip())
            return headers, data

        failure = f"no broker does {method} {path.partition('?')[0]}"
        return self.first_answer(ask, only=only, within_s=within_s, failure=failure)

    def _follow(
        self, node: Node, method: str, path: str, body: Any, answer_s: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        root = "" if path.startswith((_LOOKUP, "/admin/")) else "/admin/v2"
        url = f"{self._scheme}://{node.admin}{root}{path}"
        timeout = urllib3.Timeout(connect=_CONNECT_S, read=answer_s)
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers()
        if data is not None or method == "PUT":
            headers["Content-Type"] = "application/json"
        for _ in range(_HOPS):
            response = self._pool.request(
                method, url, body=data, headers=headers, timeout=timeout, redirect=False
            )
            location = response.headers.get("Location")
            if response.status != 307 or not location:
                return response.status, response.headers, response.data
            url = self._here(location)
        return 307, {}, b"sent from broker to broker"

    def _here(self, url: str) -> str:
        """A broker's address in a URL as it is for us."""
        parts = urlsplit(url)
        name = self._by_address.get(parts.netloc)
        return url if name is None else parts._replace(netloc=self._admin[name]).geturl()

    def name_of(self, address: str) -> str | None:
        """The node with a broker id ``host:port`` or a web address, None when it is none of
        ours."""
        return self._by_address.get(address.rpartition("/")[2])


def _words(error: urllib3.exceptions.HTTPError) -> str:
    """Its own words where they say more than its kind: why a certificate is not taken."""
    if isinstance(error, urllib3.exceptions.SSLError):
        return f"TLS: {error.args[0] if error.args else error}"
    return type(error).__name__


def _decoded(data: bytes) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def _reason(answer: Any) -> str:
    if isinstance(answer, Mapping):
        return str(answer.get("reason") or answer.get("message") or "")[:200]
    text = " ".join(str(answer or "").split())
    return "" if text.startswith("<") else text[:200]


def _refusal(status: int, method: str, path: str, answer: Any) -> UsageError:
    kind = NotThere if status == 404 else UsageError
    return kind(f"Pulsar refuses {method} {path.partition('?')[0]}: {_reason(answer) or status}")
