"""Strangers at the port on which a driver waits for the tasks of a load: little is taken from
them."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from harness.errors import EnvironmentNotReady
from harness.remote import server as module
from harness.remote.server import LoadServer
from harness.remote.wire import Channel
from harness.waiting import wait_until

HOST = "127.0.0.1"
_WAIT_S = 60.0


@pytest.fixture
def server() -> Iterator[LoadServer]:
    found = LoadServer(HOST, 1)
    yield found
    found.close()


def connected(server: LoadServer) -> socket.socket:
    link = socket.create_connection(server.address, timeout=_WAIT_S)
    link.settimeout(_WAIT_S)
    return link


def is_closed(link: socket.socket) -> bool:
    """Whether the other end closes it within `_WAIT_S`."""
    try:
        return link.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def hello(server: LoadServer, kind: str) -> bytes:
    about = {"host": "there", "machine": "x86_64", "python": "3.11", "pid": 1}
    return json.dumps({**about, "token": server.token, "task": 0, "kind": kind}).encode() + b"\n"


def test_a_stranger_is_cut_off_after_a_few_kilobytes(server: LoadServer) -> None:
    before = psutil.Process().memory_info().rss
    with connected(server) as link, pytest.raises((BrokenPipeError, ConnectionResetError)):
        link.sendall(b"x" * (64 << 20))
    assert psutil.Process().memory_info().rss - before < 32 << 20


def test_deep_json_is_no_greeting_and_no_error(
    server: LoadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr("threading.excepthook", raised.append)
    with connected(server) as link:
        link.sendall(b"[" * 5_000 + b"\n")
        assert is_closed(link)
    assert raised == []


def test_a_greeting_has_one_deadline_however_slowly_it_comes(
    server: LoadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELLO_S", 1.0)
    with connected(server) as link:
        link.settimeout(0.2)
        began = time.monotonic()
        while time.monotonic() - began < _WAIT_S:
            try:
                link.sendall(b"x")
                if link.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - began < _WAIT_S / 2


def test_strangers_that_wait_keep_no_task_waiting(server: LoadServer) -> None:
    # More than the queue of one task's connections holds, and far less time than a greeting may
    # take.
    strangers = [connected(server) for _ in range(200)]
    with connected(server) as control, connected(server) as clock:
        control.sendall(hello(server, "control"))
        clock.sendall(hello(server, "clock"))
        assert len(server.wait(_WAIT_S, lambda: "")) == 1

    def greeters() -> int:
        return sum("_greet" in thread.name for thread in module.threading.enumerate())

    assert wait_until(lambda: greeters() <= server.most_greetings, _WAIT_S)
    assert is_closed(strangers[0])
    for link in strangers:
        link.close()


def test_strangers_count_until_they_are_closed(
    server: LoadServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their greetings are over, and closing them takes long."""
    goes_on = threading.Event()
    close = Channel.close

    def slow(channel: Channel) -> None:
        goes_on.wait(2 * _WAIT_S)
        close(channel)

    monkeypatch.setattr(Channel, "close", slow)
    strangers = [connected(server) for _ in range(server.most_greetings + 10)]
    for link in strangers:
        link.sendall(b"rubbish\n")
    assert is_closed(strangers[0])
    goes_on.set()
    assert all(is_closed(link) for link in strangers)
    for link in strangers:
        link.close()


def test_a_port_that_is_taken_is_named_with_the_option_that_chose_it(server: LoadServer) -> None:
    _, port = server.address
    with pytest.raises(
        EnvironmentNotReady, match=f"cannot listen on {HOST}:{port} .*: Address"
    ) as raised:
        LoadServer(HOST, 1, port)
    assert "--load-port" in str(raised.value.hint)


def test_tasks_find_the_server_at_the_port_that_was_named(server: LoadServer) -> None:
    _, port = server.address
    server.close()
    again = LoadServer(HOST, 1, port)
    assert again.address == again.reached_at == (HOST, port)
    again.close()


@pytest.mark.parametrize("port", [0, 7700])
def test_tasks_connect_to_the_end_of_a_tunnel(port: int) -> None:
    server = LoadServer(HOST, 1, reached_at=("gate.example", port))
    own = server.address[1]
    assert server.reached_at == ("gate.example", port or own)
    with pytest.raises(EnvironmentNotReady, match="0 of 1 tasks") as raised:
        server.wait(0.0, lambda: "")
    assert f"reaches this machine at gate.example:{port or own}" in str(raised.value.hint)
    server.close()
