"""Measures one request on one wire: the proof that a network fault is there, and that it is gone.

Each request is one that the node at the port answers at once, on a connection of our own, so no
client library's retries and pools come in between. It costs the node next to nothing.
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

#: A request that a live node has not answered by then, on a busy machine too, is one that did not
#: arrive.
ANSWER_S: Final = 1.0
#: Name of a port and bytes of ballast -> what is sent, and what shows that all of it came through;
#: None where nothing can be measured (`Cluster.request`).
Request = Callable[[str, int], tuple[bytes, int | bytes] | None]

#: Connects to a port of a wire, as its source does: (wire, port, timeout in seconds).
Connect = Callable[[Wire, str, float], socket.socket]


def directly(wire: Wire, port: str, timeout_s: float) -> socket.socket:
    """Connect from where we are."""
    end = wire.endpoints[port]
    return socket.create_connection((end.host, end.port), timeout=timeout_s)


def answer_s(
    request: tuple[bytes, int | bytes], connect: Callable[[], socket.socket], timeout_s: float
) -> float | None:
    """Seconds until the answers to a request came; None when they did not.

    Counts until the first bytes of an answer; with several answers, of all of them: each is
    expected whole before the next, as Kafka answers. If the end of an answer is given, counts until
    that end: such a server speaks first, as NATS does.
    """
    data, answers = request
    start = time.monotonic()
    try:
        with connect() as link:
            link.settimeout(timeout_s)
            link.sendall(data)
            if isinstance(answers, bytes):
                return time.monotonic() - start if _is_told(link, answers) else None
            if answers == 1:
                return time.monotonic() - start if link.recv(4) else None
            for _ in range(answers):
                size = link.recv(4, socket.MSG_WAITALL)
                if len(size) < 4 or not link.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL):
                    return None
    except OSError:
        return None
    return time.monotonic() - start


def _is_told(link: socket.socket, end: bytes) -> bool:
    """Whether what comes holds these bytes, before nothing comes any more."""
    found = b""
    while end not in found and (more := link.recv(4096)):
        found += more
    return end in found


def measure(
    request: Request,
    wires: Sequence[Wire],
    *,
    timeout_s: float = ANSWER_S,
    ballast: int = 0,
    connect: Connect = directly,
) -> dict[str, float | None]:
    """Wire -> seconds of a request on it, None when it was not answered; wires that cannot be
    measured are left out. All at once: those that are cut take the whole timeout.

    Args:
        request: what to send to whom (`Cluster.request`).
        ballast: bytes to send along, for a measure of bandwidth.
        connect: as the sources of the wires do.
    """
    asked = [
        (str(wire), data, partial(connect, wire, port, timeout_s))
        for wire in wires
        for port in list(wire.endpoints)[:1]
        if (data := request(port, ballast)) is not None
    ]
    if not asked:
        return {}
    with ThreadPoolExecutor(len(asked)) as pool:
        took = pool.map(lambda one: answer_s(one[1], one[2], timeout_s), asked)
        return {name: seconds for (name, _, _), seconds in zip(asked, took, strict=True)}
