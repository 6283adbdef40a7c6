"""Measures one request on one wire: the proof that a network fault is there, and that it is gone.

Each request is one that the node behind the port answers at once, on a connection of our own, so no client
library's retries and pools come in between. It costs the node next to nothing.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from harness.protocols.network import Wire

#: A request that a live node has not answered by then, on a busy machine too, is one that did not arrive.
ANSWER_S: Final = 1.0
_CORRELATION: Final = 0x42535432
_KAFKA_NAME_BYTES: Final = 32_000  # a client id is at most 32,767 bytes long
#: Pulsar's BaseCommand CONNECT with the client version "bs" and protocol version 0 (PulsarApi.proto).
_PULSAR_CONNECT: Final = bytes.fromhex("080212060a0262732000")
_AMQP_0_9_1: Final = b"AMQP\x00\x00\x09\x01"
#: BookKeeper's old protocol (version 2): read an entry of a ledger that is not there.
_BOOKIE_READ: Final = struct.pack(">iiqq", 20, (2 << 24) | (2 << 16), 1 << 62, 0)

#: What is sent, how many times over with how much ballast, and how many answers show that all came through.
Request = Callable[[int], tuple[bytes, int]]


def _kafka(ballast: int) -> tuple[bytes, int]:
    """ApiVersions v0 (KIP-35): answered by brokers and controllers alike, with a client id of any length."""
    sizes = [min(_KAFKA_NAME_BYTES, ballast - at) for at in range(0, ballast, _KAFKA_NAME_BYTES)] or [0]
    bodies = [struct.pack(">hhih", 18, 0, _CORRELATION, size) + b"x" * size for size in sizes]
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies), len(bodies)


def _pulsar(ballast: int) -> tuple[bytes, int]:
    return struct.pack(">ii", len(_PULSAR_CONNECT) + 4, len(_PULSAR_CONNECT)) + _PULSAR_CONNECT, 1


#: (system, name of a port) -> request. A port without one cannot be measured.
_REQUESTS: Final[dict[tuple[str, str], Request]] = {
    ("kafka", "client"): _kafka,
    ("kafka", "peer"): _kafka,
    ("kafka", "controller"): _kafka,
    ("pulsar", "client"): _pulsar,
    ("pulsar", "zookeeper"): lambda ballast: (b"ruok", 1),
    ("pulsar", "bookie"): lambda ballast: (_BOOKIE_READ, 1),
    ("qpid", "client"): lambda ballast: (_AMQP_0_9_1, 1),
}


def can_carry_ballast(system: str) -> bool:
    """Whether a request can be made as large as one likes."""
    return system == "kafka"


#: Connects to a port of a wire, as its source does: (wire, port, timeout in seconds).
Connect = Callable[[Wire, str, float], socket.socket]


def directly(wire: Wire, port: str, timeout_s: float) -> socket.socket:
    """Connect from where we are."""
    end = wire.endpoints[port]
    return socket.create_connection((end.host, end.port), timeout=timeout_s)


def answer_s(
    request: tuple[bytes, int], connect: Callable[[], socket.socket], timeout_s: float
) -> float | None:
    """Seconds until the answers to a request came; None when they did not.

    Only of the first bytes of an answer; with several answers, of all: one that is whole is expected before
    the next, which holds for the requests above.
    """
    data, answers = request
    start = time.monotonic()
    try:
        with connect() as link:
            link.settimeout(timeout_s)
            link.sendall(data)
            if answers == 1:
                return time.monotonic() - start if link.recv(4) else None
            for _ in range(answers):
                size = link.recv(4, socket.MSG_WAITALL)
                if len(size) < 4 or not link.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL):
                    return None
    except OSError:
        return None
    return time.monotonic() - start


def measure(
    system: str,
    wires: Sequence[Wire],
    *,
    timeout_s: float = ANSWER_S,
    ballast: int = 0,
    connect: Connect = directly,
) -> dict[str, float | None]:
    """Wire -> seconds of a request on it, None when it was not answered; wires that cannot be measured are
    left out. All at once: those that are cut take the whole timeout.

    Args:
        ballast: bytes to send along, for a measure of bandwidth.
        connect: as the sources of the wires do.
    """
    asked = [
        (str(wire), request(ballast), partial(connect, wire, port, timeout_s))
        for wire in wires
        for port in list(wire.endpoints)[:1]
        if (request := _REQUESTS.get((system, port))) is not None
    ]
    if not asked:
        return {}
    with ThreadPoolExecutor(len(asked)) as pool:
        took = pool.map(lambda one: answer_s(one[1], one[2], timeout_s), asked)
        return {name: seconds for (name, _, _), seconds in zip(asked, took, strict=True)}
