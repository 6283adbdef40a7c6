"""Packets that the kernel loses on loopback: counted, survived by TCP, and gone after the
repair."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.clusters.cluster import spec_of
from harness.clusters.layout import addresses
from harness.clusters.network import packets

pytestmark = pytest.mark.live
NODE = "kafka-1"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="iptables needs root: refused with these words"
)


@dataclass
class Rig:
    packets: packets.Packets
    server: socket.socket


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    spec = spec_of("kafka")
    run_id = f"test-packets-{time.monotonic_ns()}"
    block = addresses.claim(run_id, tmp_path, spec.ports.values())
    made = packets.Packets(run_id, spec, block)
    with socket.create_server((addresses.address(block, 1), spec.ports["client"])) as listening:
        yield Rig(made, listening)
    packets.clear(run_id)
    addresses.release(run_id)
    assert run_id not in subprocess.run(["iptables", "-S"], capture_output=True, text=True).stdout


def talk(server: socket.socket) -> bytes:
    """A quarter of a megabyte from a client to the node, on a connection of its own."""
    with socket.create_connection(server.getsockname(), timeout=30) as client:
        served, _ = server.accept()
        served.settimeout(30)
        # a socket with a timeout returns what is there
        with served, served.makefile("rb") as stream:
            for _ in range(4):
                client.sendall(b"x" * 65536)
                got = stream.read(65536)
            return got


@needs_root
def test_a_share_of_the_packets_is_lost_and_all_bytes_arrive(rig: Rig) -> None:
    assert rig.packets.why_not("all") == ""
    rig.packets.lose("fault-1", NODE, "clients", "both", 0.1)
    assert rig.packets.is_losing("fault-1")
    # a talk is a handful of packets; each retry after a lost one takes twice as long
    for _ in range(50):
        assert len(talk(rig.server)) == 65536
        if rig.packets.lost("fault-1") > 0:
            break
    assert rig.packets.lost("fault-1") > 0
    rig.packets.repair("fault-1")
    rig.packets.repair("fault-1")
    assert not rig.packets.is_losing("fault-1")
    start = time.monotonic()
    talk(rig.server)
    assert time.monotonic() - start < 5


@needs_root
def test_rules_have_names_of_their_own(rig: Rig) -> None:
    rig.packets.lose("fault-1", NODE, "clients", "in", 0.5)
    rig.packets.lose("fault-12", NODE, "peers", "out", 0.5)
    rig.packets.repair("fault-1")
    assert not rig.packets.is_losing("fault-1")
    assert rig.packets.is_losing("fault-12")


def test_who_connects_to_whom(rig: Rig) -> None:
    assert rig.packets.has_ports(NODE, "clients")
    assert packets.Packets("x", spec_of("pulsar"), 1).has_ports("bookie-1", "clients") is False
