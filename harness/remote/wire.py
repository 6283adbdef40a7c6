"""JSON messages over a connection between the driver and a task, a line each."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

Message = dict[str, Any]
#: Most bytes of a message of a task that knows the token: names and reports are a few megabytes at
#: most.
MOST_BYTES: Final = 256 << 20


class Channel:
    """`send` from any thread, `messages` from one. Both ends close on an error of the
    connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self.peer = str(connection.getpeername()[0])
        self._reading = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: Message) -> bool:
        """Whether the connection took it."""
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError:
            return False
        return True

    def receive(self, most_bytes: int = MOST_BYTES) -> Message | None:
        """The next message; None once the other end is gone, or sends something else or something
        longer."""
        try:
            line = self._reading.readline(most_bytes)
            found = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def messages(self) -> Iterator[Message]:
        """All that come, until the other end is gone."""
        while (message := self.receive()) is not None:
            yield message

    def limit(self, seconds: float | None) -> None:
        """How long `receive` and `send` wait; None = for ever."""
        self._connection.settimeout(seconds)

    def close(self) -> None:
        """Wakes who waits in `messages`."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self._reading.close()
        self._connection.close()
