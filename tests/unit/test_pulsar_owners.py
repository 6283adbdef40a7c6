"""Questions to ZooKeeper go on after a connection that ended while the password was shown."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.connections.secret import Secret
from harness.connections.security import Auth
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint, Node
from harness.systems.pulsar import owners
from harness.systems.pulsar.owners import Owners
from harness.waiting import wait_until

#: Protocol version, session timeout in ms, session id, its password, whether it is read-only.
_ACCEPTED = struct.pack(">iiqi16s?", 0, 4000, 1, 16, b"", False)


class DyingZooKeeper:
    """Accepts a session, and closes the connection as soon as a client begins to show who it is."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint(*self._listener.getsockname())
        self.asked_who = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                link, _ = self._listener.accept()
                with link:
                    link.recv(4096)
                    link.sendall(struct.pack(">i", len(_ACCEPTED)) + _ACCEPTED)
                    if link.recv(4096):
                        self.asked_who += 1

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def zookeeper() -> Iterator[DyingZooKeeper]:
    found = DyingZooKeeper()
    yield found
    found.close()


def test_a_later_question_shows_the_password_again(
    zookeeper: DyingZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "_ANSWER_S", 0.5)
    at = zookeeper.endpoint
    auth = Auth("user", Secret("a-password"), "management")
    asked = Owners(Node("zookeeper", 7, at, at, at, Path()), {}, "brokerstorm", auth)

    def was_shown_again() -> bool:
        with pytest.raises(EnvironmentNotReady, match="zookeeper does not tell who owns what"):
            asked.owners_of("public/default")
        return zookeeper.asked_who > 1

    try:
        assert wait_until(was_shown_again, timeout_s=30.0)
    finally:
        asked.close()
