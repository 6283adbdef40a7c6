"""One connection to one server: requests and their answers, in the client protocol of NATS.

Synchronous and without a reconnection of its own: a question is to one server, and ends within a
fixed time whatever happened to it (docs.nats.io, "Client Protocol").
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from harness.admin.failover import NoAnswer
from harness.admin.tls import context_of
from harness.connections.security import ANYBODY, Security
from harness.errors import UsageError
from harness.protocols.cluster import Endpoint

CONNECT_S, ANSWER_S = 1.5, 4.0
_NO_RESPONDERS: Final = b"NATS/1.0 503"
#: The number of tokens in a reply subject that has neither a domain nor an account.
_TOKENS: Final = 9
_AUTHORIZATION: Final = ("authorization", "authentication", "user authentication")


class NoResponders(NoAnswer):
    """Nobody listens on the subject: no JetStream there, no leader now, or no such stream."""


class Link:
    """A connection that is open as long as its context.

    Raises:
        NoAnswer: no server is there, or no answer in time.
        UsageError: the server does not let the user in.
    """

    def __init__(self, endpoint: Endpoint, security: Security = ANYBODY.admin) -> None:
        self.info: dict[str, Any] = {}
        self._endpoint = endpoint
        self._inbox = f"_INBOX.brokerstorm.{time.monotonic_ns():x}"
        self._questions = 0
        with _answering():
            self._link = socket.create_connection((endpoint.host, endpoint.port), timeout=CONNECT_S)
            self._stream = self._link.makefile("rb")
            self._open(security)

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._link.close()

    def ask(
        self,
        subject: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        within_s: float = ANSWER_S,
    ) -> dict[str, Any]:
        """The first answer to a message, which is JSON. ``body``: nothing, bytes, or what becomes
        JSON.

        Raises:
            NoResponders: no server listens there.
            NoAnswer: no answer in time, or the connection broke.
        """
        payload = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        deadline = time.monotonic() + within_s
        with _answering():
            reply = self._publish(subject, payload, headers)
            while True:
                words, head, said = self._message(deadline)
                if words[0] != reply:
                    continue  # the answer to a question that was given up
                if head.startswith(_NO_RESPONDERS):
                    raise NoResponders("nothing answers there")
                answer = json.loads(said)
                return answer if isinstance(answer, dict) else {}

    def pull(
        self, subject: str, count: int, *, within_s: float
    ) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield messages of a pull: where it is (the reply subject, see `place_of`), headers and
        payload. It ends early if the consumer has no more. Raises the errors of `ask`.
        """
        deadline = time.monotonic() + within_s
        with _answering():
            reply = self._publish(subject, json.dumps({"batch": count, "no_wait": True}).encode())
            for _ in range(count):
                words, head, data = self._message(deadline)
                if words[0] == reply:  # no message, but how it ended
                    return
                yield words[2].decode(), head, data

    def _publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The subject of its answers."""
        self._questions += 1
        reply = f"{self._inbox}.{self._questions}".encode()
        verb, sizes, head = b"PUB", b"%d" % len(payload), b""
        if headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"NATS/1.0\r\n{lines}\r\n".encode()
            verb, sizes = b"HPUB", b"%d %d" % (len(head), len(head) + len(payload))
        self._send(
            b"%b %b %b %b\r\n%b%b\r\n" % (verb, subject.encode(), reply, sizes, head, payload)
        )
        return reply

    def _open(self, security: Security) -> None:
        self._link.settimeout(CONNECT_S)
        verb, _, said = self._line().partition(b" ")
        if verb != b"INFO":
            raise NoAnswer(f"{self._endpoint} is not a NATS server")
        self.info = json.loads(said)
        context = context_of(security.tls)
        if context is not None:
            self._link = context.wrap_socket(self._link, server_hostname=self._endpoint.host)
            self._stream = self._link.makefile("rb")
        hello: dict[str, Any] = {
            "verbose": False, "pedantic": False, "lang": "brokerstorm", "version": "1", "protocol": 1,
            "headers": True, "no_responders": True, "name": "brokerstorm",
        }  # fmt: skip
        if security.auth:
            hello |= {"user": security.auth.user, "pass": security.auth.secret.reveal()}
        self._send(f"CONNECT {json.dumps(hello)}\r\nSUB {self._inbox}.* 1\r\nPING\r\n".encode())
        while not self._line().startswith(b"PONG"):
            pass

    def _send(self, data: bytes) -> None:
        self._link.sendall(data)

    def _message(self, deadline: float) -> tuple[list[bytes], bytes, bytes]:
        """The next message: subject, subscription, perhaps where to reply, and sizes; headers;
        payload."""
        while True:
            self._link.settimeout(max(0.001, deadline - time.monotonic()))
            verb, *words = self._line().split()
            if verb not in (b"MSG", b"HMSG"):
                continue
            body = _exactly(self._stream, int(words[-1]) + 2)[:-2]
            head = body[: int(words[-2])] if verb == b"HMSG" else b""
            return words, head, body[len(head) :]

    def _line(self) -> bytes:
        """The next line; pings are answered, errors raised."""
        while True:
            line = self._stream.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError("closed")
            line = line.rstrip(b"\r\n")
            if line == b"PING":
                self._send(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                self._refused(line[4:].decode(errors="replace").strip(" '"))
            else:
                return line

    def _refused(self, said: str) -> None:
        if said.lower().startswith(_AUTHORIZATION) or "permissions violation" in said.lower():
            raise UsageError(f"{self._endpoint} does not let the harness in: {said}")
        raise NoAnswer(said)


def server_at(text: str) -> Endpoint:
    """Parse ``nats://HOST:PORT``, also without the scheme or the port.

    Raises:
        ValueError: it is something else.
    """
    found = urlsplit(text if "://" in text else f"nats://{text}")
    with suppress(ValueError):  # of the port
        if found.scheme in ("nats", "tls") and found.hostname:
            return Endpoint(found.hostname, found.port or 4222)
    raise ValueError(f"{text!r} is not a server")


def place_of(reply: str) -> tuple[int, int]:
    """Return the sequence of a message in its stream, and when it was stored there (nanoseconds
    since 1970).

    Args:
        reply: subject for its acknowledgement: ``$JS.ACK.<stream>.<consumer>.<times given>.
            <sequence>.<sequence of the consumer>.<time>.<pending>``. Newer servers may have a
            domain and an account before the stream.
    """
    tokens = reply.split(".")
    at = 5 if len(tokens) == _TOKENS else 7
    return int(tokens[at]), int(tokens[at + 2])


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise ConnectionError("closed")
    return found


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = (
            "does not answer in time" if isinstance(error, TimeoutError) else str(error) or "closed"
        )
        raise NoAnswer(why) from error
