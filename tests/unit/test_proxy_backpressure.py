"""The network proxy adds and removes a toxic while a connection cannot be written to, and asks its
rules in the order in which they came."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clusters.layout.detours import Route
from harness.clusters.network import toxiproxy
from harness.clusters.network.toxiproxy import LocalHost, Proxy
from harness.protocols.cluster import Endpoint

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go builds the proxy")

API_VERSIONS = 18
SWALLOW = {"name": "x", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    api, log = Endpoint("127.0.0.1", free_port()), tmp_path / "log"
    command = [str(toxiproxy.fetch()), "-host", api.host, "-port", str(api.port)]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        host = LocalHost("test", tmp_path)
        host.is_running = lambda: process.poll() is None  # type: ignore[method-assign]
        yield Proxy(host, api)
        process.kill()


def test_a_toxic_comes_and_goes_while_the_other_side_reads_nothing(proxy: Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = Endpoint("127.0.0.1", free_port())
        upstream = Endpoint("127.0.0.1", server.getsockname()[1])
        route = Route("clients", "broker", "client", listen, upstream)
        proxy.wait_up()
        proxy.populate([route])
        with socket.create_connection((listen.host, listen.port)) as client:
            accepted, _ = server.accept()
            client.settimeout(0.5)
            with pytest.raises(TimeoutError):
                client.sendall(bytes(1 << 27))
            proxy.add(route.name, SWALLOW)
            accepted.close()  # what is still to be written there cannot be written any more
        proxy.remove(route.name, "x")
        assert proxy.toxics() == {}


def test_of_two_rules_about_a_request_the_older_one_decides(proxy: Proxy) -> None:
    """Names of rules are random, and a run must be repeatable."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        upstream = Endpoint("127.0.0.1", server.getsockname()[1])
        proxy.wait_up()
        relay = proxy.open_relay("r", upstream, "kafka", None)
        rule = {"relays": ["r"], "kinds": [API_VERSIONS], "share": 1.0, "after": -1, "act": "error"}
        proxy.add_rule({**rule, "name": "b", "code": 7, "instead": True})
        proxy.add_rule({**rule, "name": "a", "code": 8, "instead": True})
        with socket.create_connection((relay.host, relay.port)) as client:
            # ApiVersions version 0: its kind, its version, a number, a client without a name
            client.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1))
            client.settimeout(10)
            answer = client.recv(100)
    assert struct.unpack_from(">ih", answer, 4) == (1, 7)
    assert {name: each["met"] for name, each in proxy.rules().items()} == {"a": 0, "b": 1}


@pytest.mark.parametrize("is_relayed", [False, True])
def test_a_connection_to_a_node_that_is_away_is_reset(proxy: Proxy, is_relayed: bool) -> None:
    """Without the proxy it would be refused. An orderly end is what a broker does that closes a
    connection, and clients may take it for a wrong configuration."""
    listen, upstream = Endpoint("127.0.0.1", free_port()), Endpoint("127.0.0.1", free_port())
    proxy.wait_up()
    if is_relayed:
        upstream = proxy.open_relay("r", upstream, "kafka", None)
    proxy.populate([Route("clients", "broker", "client", listen, upstream)])
    assert [is_reset(listen) for _ in range(50)] == [True] * 50


def is_reset(end: Endpoint) -> bool:
    """Whether a connection that sends something is reset, and not closed in good order."""
    try:
        with socket.create_connection((end.host, end.port), timeout=10) as client:
            client.sendall(b"hello")
            client.recv(1)
    except ConnectionError:
        return True
    return False
