"""Waits on the driver for the tasks of a load to connect."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Final

from harness.errors import EnvironmentNotReady
from harness.remote.executor import Executor
from harness.remote.wire import Channel, Message
from harness.waiting import wait_until

#: A connection says within this who it is, however slowly.
HELLO_S: Final = 10.0
#: Most bytes of what it says: token, numbers and names. Until then it may be anybody's.
_HELLO_BYTES: Final = 4096
#: Strangers that may keep us waiting for a greeting at once, besides the connections that the tasks
#: make. One more ends the greeting that has waited longest: a task says at once who it is, so it is
#: not that one.
MOST_STRANGERS: Final = 16
#: Connections that the kernel holds until they are accepted. A connection that finds this queue
#: full is tried again after seconds, so strangers that come all at once must not fill it.
_MOST_IN_QUEUE: Final = 1024


class LoadServer:
    """Listens on ``host`` for ``tasks`` tasks that know the token. Close it.

    Attributes:
        address: host and port that it listens on.
        reached_at: host and port that the tasks connect to.
    """

    def __init__(
        self, host: str, tasks: int, port: int = 0, *, reached_at: tuple[str, int] | None = None
    ) -> None:
        """
        Args:
            port: 0 = any free one.
            reached_at: host and port that the tasks connect to, such as the end of a tunnel; None =
                where it listens. Port 0 = that which it listens on.

        Raises:
            EnvironmentNotReady: this machine has no such address, or the port is not free.
        """
        self.token = secrets.token_hex(16)
        self._tasks = tasks
        self._half: dict[tuple[int, str], tuple[Message, Channel]] = {}
        self._executors: dict[int, Executor] = {}
        self._lock = threading.Lock()
        #: Connections that have not said yet who they are, the oldest first.
        self._greetings: dict[socket.socket, None] = {}
        try:
            self._listener = socket.create_server((host, port), backlog=_MOST_IN_QUEUE)
        except OSError as error:
            at = f"{host}:{port}" if port else host
            is_taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
            raise EnvironmentNotReady(
                f"cannot listen on {at} for the tasks of the load: {error.strerror or error}",
                hint="name another port with --load-port, or leave it out"
                if is_taken
                else "set SPARK_LOCAL_IP to an address of this machine that executors reach",
            ) from error
        self.address = str(self._listener.getsockname()[0]), int(self._listener.getsockname()[1])
        to_host, to_port = reached_at or self.address
        self.reached_at = to_host, to_port or self.address[1]
        threading.Thread(target=self._accept, name="load-server", daemon=True).start()

    @property
    def executors(self) -> list[Executor]:
        """Return the executors that are connected, by number."""
        with self._lock:
            return [self._executors[number] for number in sorted(self._executors)]

    def wait(self, timeout_s: float, failed: Callable[[], str]) -> list[Executor]:
        """All tasks, once each is here. ``failed``: why they will not come; empty = they may.

        Raises:
            EnvironmentNotReady: they do not come.
        """
        said = ""

        def is_over() -> bool:
            nonlocal said
            said = failed()
            return bool(said) or len(self.executors) == self._tasks

        wait_until(is_over, timeout_s, every_s=0.05)
        found = self.executors
        if len(found) == self._tasks and not said:
            return found
        host, port = self.reached_at
        why = said or f"{len(found)} of {self._tasks} tasks connected in {timeout_s:.0f} s"
        raise EnvironmentNotReady(
            f"the load did not start on the executors: {why}",
            hint=f"each needs Python, NumPy and PyArrow, and reaches this machine at {host}:{port}",
        )

    @property
    def most_greetings(self) -> int:
        """How many connections may be asked at once who they are. A task makes two."""
        return MOST_STRANGERS + 2 * self._tasks

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                if len(self._greetings) >= self.most_greetings:
                    oldest = next(iter(self._greetings))
                    del self._greetings[oldest]
                    _cut(oldest)
                self._greetings[connection] = None
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        try:
            self._let_in(*_hello_of(connection))
        except OSError:  # it is gone already
            connection.close()
        finally:  # a stranger counts until it is closed
            with self._lock:
                self._greetings.pop(connection, None)

    def _let_in(self, channel: Channel, hello: Message) -> None:
        """Closes the connection of a stranger."""
        number, kind = hello.get("task"), hello.get("kind")
        is_ours = secrets.compare_digest(str(hello.get("token", "")).encode(), self.token.encode())
        if not is_ours or not isinstance(number, int) or kind not in ("control", "clock"):
            channel.close()
            return
        with self._lock:
            self._half[number, kind] = hello, channel
            pair = [self._half.get((number, each)) for each in ("control", "clock")]
            if pair[0] and pair[1]:
                self._executors[number] = Executor(hello, pair[0][1], pair[1][1])

    def close(self) -> None:
        """Ends every task. Idempotent."""
        with contextlib.suppress(OSError):  # wakes who waits in accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for executor in self.executors:
            executor.end()


def _hello_of(connection: socket.socket) -> tuple[Channel, Message]:
    """The first message of a connection; an empty one where there is none within `HELLO_S`.

    Raises:
        OSError: the other end is gone.
    """
    channel = Channel(connection)
    deadline = threading.Timer(HELLO_S, _cut, [connection])
    deadline.daemon = True
    deadline.start()
    try:
        return channel, channel.receive(_HELLO_BYTES) or {}
    finally:
        deadline.cancel()


def _cut(connection: socket.socket) -> None:
    """Wakes the thread that reads from ``connection``."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
