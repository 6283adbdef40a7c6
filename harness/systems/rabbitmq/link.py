"""A connection to a node of Erlang as a hidden node, and calls of its functions.

RabbitMQ's own command line tools do the same: what they ask for is not in the HTTP API, such as the
move of one queue's leader. The protocol is the "Distribution Protocol" of Erlang's documentation,
its handshake that of OTP 23 and newer.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from harness.admin.failover import NoAnswer
from harness.connections.secret import Secret
from harness.errors import UsageError
from harness.protocols.cluster import Endpoint
from harness.systems.rabbitmq.terms import (
    Atom,
    MalformedTerm,
    Pid,
    Reference,
    decoded,
    encoded,
)

CONNECT_S: Final = 0.75
ANSWER_S: Final = 2.5  # a healthy node answers in milliseconds; a starved one in about a second
#: Flags that OTP 25 to 29 demand of each node, without the one that makes a node visible.
_FLAGS: Final = sum(
    1 << bit
    for bit in (
        *(2, 4, 7, 8, 9, 10, 11),  # references, functions, pids, exports, bits, floats
        *(16, 17, 18, 24, 25, 34),  # UTF-8, maps, big creations, handshake 23, unlink ids, v4
    )
)
_PASS_THROUGH: Final = 112
_SEND, _REG_SEND = 2, 6
_CREATION: Final = 1
_MOST_BYTES: Final = 64 * 2**20


class Refused(UsageError):
    """The node does not take our cookie, or the function that was called failed."""


class CookieRefused(Refused):
    """The node has another cookie."""


def hello(name: str) -> bytes:
    """The first message of a handshake: who asks. A node answers with a status at once."""
    raw = name.encode()
    body = b"N" + struct.pack(">QIH", _FLAGS, _CREATION, len(raw)) + raw
    return struct.pack(">H", len(body)) + body


class ErlangLink:
    """Calls functions on one node, one call at a time. Thread-safe; connects when it is asked.

    Args:
        at: where the node listens for other nodes.
        cookie: the secret that the nodes share.
    """

    _numbers = itertools.count(1)

    def __init__(self, at: Endpoint, cookie: Callable[[], Secret]) -> None:
        self._at = at
        self._cookie = cookie
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        # The node keeps each name for good: one for each link, however often it connects.
        token = f"{os.getpid():x}{secrets.token_hex(3)}{next(self._numbers):x}"
        self._name = f"brokerstorm{token}@127.0.0.1"
        self._references = itertools.count(1)

    def call(self, module: str, function: str, *arguments: Any, timeout_s: float = ANSWER_S) -> Any:
        """The result of a function.

        Raises:
            NoAnswer: the node cannot be reached, or does not answer in time.
            Refused: the function failed (its reason); `CookieRefused`: the cookie is another one.
        """
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise NoAnswer("answers no earlier question")
        try:
            found = self._asked(module, function, list(arguments), deadline)
        except (OSError, MalformedTerm) as error:
            self._drop()
            raise NoAnswer(_reason(error)) from error
        finally:
            self._lock.release()
        if isinstance(found, tuple) and len(found) == 2 and found[0] == "badrpc":
            raise Refused(f"{module}:{function} failed: {shown(found[1])}")
        return found

    def close(self) -> None:
        """Drop the connection. Idempotent; a later call opens it again."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._socket = None

    def _asked(self, module: str, function: str, arguments: list[Any], deadline: float) -> Any:
        if self._socket is not None and not self._is_open():
            self._drop()
        if self._socket is None:
            self._socket = self._connected(deadline)
        number = next(self._references)
        reference = Reference(self._name, struct.pack(">IIII", _CREATION, number, 0, 0), 3)
        me = Pid(self._name, struct.pack(">III", 1, 0, _CREATION))
        call = (Atom("call"), Atom(module), Atom(function), arguments, Atom("user"))
        control = (_REG_SEND, me, Atom(""), Atom("rex"))
        self._send(control, (Atom("$gen_call"), (me, reference), call))
        while True:
            to, message = self._received(deadline)
            is_answer = isinstance(message, tuple) and len(message) == 2
            if to == _SEND and is_answer and message[0] == reference:
                return message[1]

    def _is_open(self) -> bool:
        """Whether an idle connection is still there; it answers the ticks that came meanwhile."""
        assert self._socket is not None
        self._socket.setblocking(False)
        try:
            while True:
                waiting = self._socket.recv(4096, socket.MSG_PEEK)
                if waiting[:4] != bytes(4):
                    return bool(waiting) and len(waiting) >= 4
                self._socket.recv(4)
                self._socket.sendall(bytes(4))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _send(self, control: Any, message: Any) -> None:
        assert self._socket is not None
        body = bytes([_PASS_THROUGH]) + encoded(control) + encoded(message)
        self._socket.sendall(struct.pack(">I", len(body)) + body)

    def _received(self, deadline: float) -> tuple[int, Any]:
        """The kind of the next message, and the message itself (None: it has none)."""
        link = self._socket
        assert link is not None
        while True:
            size = struct.unpack(">I", _exactly(link, 4, deadline))[0]
            if size == 0:  # a tick: the node asks whether we are still there
                link.sendall(bytes(4))
                continue
            if size > _MOST_BYTES:
                raise MalformedTerm(f"an answer of {size} bytes")
            body = _exactly(link, size, deadline)
            control, end = decoded(body[1:])
            rest = body[1 + end :]
            return int(control[0]), decoded(rest)[0] if rest else None

    def _connected(self, deadline: float) -> socket.socket:
        within = max(0.05, min(CONNECT_S, deadline - time.monotonic()))
        link = socket.create_connection((self._at.host, self._at.port), timeout=within)
        try:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shake_hands(link, deadline)
        except BaseException:
            link.close()
            raise
        return link

    def _shake_hands(self, link: socket.socket, deadline: float) -> None:
        link.sendall(hello(self._name))
        status = _framed(link, deadline)
        if status == b"salive":  # an earlier connection of ours that the node still counts
            link.sendall(b"\x00\x05strue")
        elif not status.startswith(b"sok"):
            raise MalformedTerm(f"the node answers {status[:30]!r}")
        theirs = _framed(link, deadline)
        if theirs[:1] != b"N" or len(theirs) < 13:
            raise MalformedTerm("a node of Erlang before OTP 23")
        challenge = struct.unpack(">I", theirs[9:13])[0]
        own = secrets.randbits(32)
        reply = b"r" + struct.pack(">I", own) + self._digest(challenge)
        link.sendall(struct.pack(">H", len(reply)) + reply)
        try:
            answer = _framed(link, deadline)
        except ConnectionError:
            raise CookieRefused(
                "the node does not take the cookie: it is of another cluster"
            ) from None
        if answer != b"a" + self._digest(own):
            raise CookieRefused("the node does not know the cookie: it is of another cluster")

    def _digest(self, challenge: int) -> bytes:
        return hashlib.md5(f"{self._cookie().reveal()}{challenge}".encode()).digest()


def _framed(link: socket.socket, deadline: float) -> bytes:
    return _exactly(link, struct.unpack(">H", _exactly(link, 2, deadline))[0], deadline)


def _exactly(link: socket.socket, count: int, deadline: float) -> bytes:
    found = bytearray()
    while len(found) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        link.settimeout(left)
        more = link.recv(count - len(found))
        if not more:
            raise ConnectionError("closed")
        found += more
    return bytes(found)


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionError):
        return "closes the connection"
    return str(error) or type(error).__name__


def shown(term: Any) -> str:
    """A reason of Erlang as one short line."""
    if isinstance(term, bytes):
        text = term.decode("utf-8", "replace")
    elif isinstance(term, list) and term and all(isinstance(one, int) for one in term):
        text = "".join(map(chr, term))
    elif isinstance(term, tuple):
        text = "{" + ", ".join(map(shown, term)) + "}"
    elif isinstance(term, list):
        text = "[" + ", ".join(map(shown, term)) + "]"
    else:
        text = str(term)
    return " ".join(text.split())[:200]
