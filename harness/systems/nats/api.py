"""JetStream's API (docs.nats.io, "JetStream wire API Reference"): requests on subjects, to any
server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from harness.admin.failover import ASK_S, AlreadyThere, FailoverAdmin, NoAnswer, NotThere
from harness.connections.security import ANYBODY, Security
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import Endpoint, Node
from harness.systems.nats.link import Link, NoResponders

# `err_code` of an answer (server/errors.json).
_NOT_FOUND: Final = frozenset({10059, 10014})  # stream, consumer
_THERE: Final = frozenset({10058})
_OVERLAPS: Final = frozenset({10065})
_DISABLED: Final = frozenset({10039, 10076})
#: No room, no peers for so many copies, limits of the account.
_FULL: Final = frozenset({10002, 10005, 10023, 10028, 10047, 10074})
#: The meta group, or the stream, has no leader now; the server starts or is cut off.
_LATER: Final = frozenset({10004, 10008, 10009, 10012, 10118, 10194})
#: Why peers are missing for so many copies (10005), where this is temporary: one does not answer.
_OFFLINE: Final = "peer offline"
_FULL_HINT: Final = (
    "make room, or ask for fewer replicas; `nats server report jetstream` shows what there is"
)
_OFF_HINT: Final = "enable JetStream on its servers and for this account"


class JetStream(FailoverAdmin):
    """Requests to the API. Thread-safe: each question has a connection of its own.

    Args:
        links: node -> where the harness connects to it.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        links: Mapping[str, Endpoint],
        is_reachable: Callable[[str], bool],
        security: Security = ANYBODY.admin,
    ) -> None:
        super().__init__(nodes, is_reachable)
        self._links = links
        self._security = security

    def link(self, node: str) -> Link:
        """A connection to one server. Raises as `Link`."""
        return Link(self._links[node], self._security)

    def ask(self, what: str, body: Any = None) -> dict[str, Any]:
        """The answer to ``$JS.API.<what>``.

        Raises:
            EnvironmentNotReady: no answer, JetStream is not enabled, or it has no room.
            NotThere, AlreadyThere: the stream is not, or is, there.
            UsageError: refused for another reason (the servers' words).
        """

        def one(node: Node) -> dict[str, Any]:
            with self.link(node.name) as link:
                return _checked(node.name, what, link.ask(f"$JS.API.{what}", body))

        return self.first_answer(one, within_s=ASK_S, failure="JetStream does not answer")

    def pages(self, what: str, key: str) -> list[Any]:
        """All that a list of the API has, page by page."""
        found: list[Any] = []
        while True:
            said = self.ask(what, {"offset": len(found)})
            page = said.get(key) or []
            found += page
            if not page or len(found) >= int(said.get("total") or 0):
                return found

    def publish(self, subjects: Sequence[str], payload: bytes) -> str:
        """Store a message in the stream of each subject: what went wrong; empty = nothing.

        Raises:
            UsageError: the server does not let the user in.
        """
        for node in self._order(""):
            try:
                with self.link(node.name) as link:
                    for subject in subjects:
                        if failure := _not_stored(link, subject, payload):
                            return failure
                return ""
            except NoAnswer as error:
                said = f"{node.name} {error}"
        return f"no message through the servers ({said})"

    def unheard(self, streams: Sequence[str]) -> str:
        """Return which server does not yet pass messages on to which stream; empty: every one does.

        A server learns from the others which subjects a new stream takes. Until then it answers a
        publish with *no responders*. The question stores nothing: it expects another stream's name,
        so that the stream refuses it (docs.nats.io, "Headers", ``Nats-Expected-Stream``).

        Raises:
            UsageError: a server does not let the user in.
        """
        for name in self.reachable():
            try:
                with self.link(name) as link:
                    for stream in streams:
                        link.ask(stream, b"", headers={"Nats-Expected-Stream": f"not-{stream}"})
            except NoResponders:
                return f"{name} does not pass messages on to stream {stream}"
            except NoAnswer as error:
                return f"{name} {error}"
        return ""


def _not_stored(link: Link, subject: str, payload: bytes) -> str:
    try:
        said = link.ask(subject, payload)
    except NoResponders:
        return f"no stream takes {subject}"
    error = said.get("error") or {}
    return f"{subject}: {error.get('description', 'refused')}" if error or "seq" not in said else ""


def _checked(node: str, what: str, said: dict[str, Any]) -> dict[str, Any]:
    error = said.get("error")
    if not error:
        return said
    code, words = (
        int(error.get("err_code") or 0),
        str(error.get("description") or error.get("code")),
    )
    text = f"{node} refuses {what}: {words} ({code})"
    if code in _LATER or _OFFLINE in words:
        raise NoAnswer(f"says: {words}")
    if code in _NOT_FOUND:
        raise NotThere(text)
    if code in _THERE:
        raise AlreadyThere(
            text, hint="a stream of that name has other settings: choose another topic name"
        )
    if code in _OVERLAPS:
        raise AlreadyThere(
            text, hint="another stream holds this subject: choose another topic name"
        )
    if code in _DISABLED:
        raise EnvironmentNotReady(text, hint=_OFF_HINT)
    if code in _FULL:
        raise EnvironmentNotReady(text, hint=_FULL_HINT)
    raise UsageError(text)
