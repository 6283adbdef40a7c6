"""Entries of a ledger as each of its bookies has them: who keeps which, and what is intact."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafka.record.util import calc_crc32c

from analysis.kernels.replicas import stretches
from harness.clusters import spec_of
from harness.clusters.docker.runtime import DockerRuntime
from harness.protocols.cluster import Endpoint, Node
from harness.systems.pulsar.assembly import ASSEMBLY
from harness.systems.pulsar.replicas import parts_of, read_parts

METADATA = (
    "LedgerMetadata{formatVersion=3, ensembleSize=3, writeQuorumSize=2, ackQuorumSize=2, state=OPEN, "
    "digestType=CRC32C, password=OMITTED, "
    "ensembles={0=[a:1, b:1, c:1], 4=[a:1, d:1, c:1]}, customMetadata={}}"
)
INTERNAL = {
    "lastConfirmedEntry": "10:6",
    "ledgers": [{"ledgerId": 10, "entries": 0, "metadata": METADATA}],
}


def test_entries_go_round_the_ensemble_of_their_stretch() -> None:
    kept: dict[int, tuple[str, ...]] = {}
    for part in parts_of("orders-0", INTERNAL):
        kept |= dict.fromkeys(part.entries, part.bookies)
    a, b, c, d = "a:1", "b:1", "c:1", "d:1"
    assert kept == {0: (a, b), 1: (b, c), 2: (c, a), 3: (a, b), 4: (d, c), 5: (c, a), 6: (a, d)}


def entry_of(ledger: int, entry: int, payload: bytes, confirmed: int = -1) -> bytes:
    head = struct.pack(">qqqq", ledger, entry, confirmed, len(payload))
    return head + calc_crc32c(head + payload).to_bytes(4, "big") + payload


@contextmanager
def bookie(name: str, number: int, entries: Mapping[int, bytes]) -> Iterator[Node]:
    """One that answers reads of a ledger by protocol 2."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link, link.makefile("rb") as asked:
                    while ask := asked.read(24):
                        _, head, ledger, entry = struct.unpack(">iiqq", ask)
                        data = entries.get(entry, b"")
                        code = 0 if data else 2
                        link.sendall(
                            struct.pack(">iiiqq", 24 + len(data), head, code, ledger, entry) + data
                        )

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        at = Endpoint(*server.getsockname())
        yield Node(name, number, at, at, at, Path(), ("bookie",))
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def test_a_bookie_that_lacks_an_entry_or_has_it_damaged() -> None:
    whole = {entry: entry_of(10, entry, b"message %d" % entry) for entry in range(5)}
    damaged = bytearray(whole[1])
    damaged[-1] ^= 1
    # a recovery wrote it once more: the same message
    again = entry_of(10, 4, b"message 4", confirmed=3)
    with ExitStack() as stack:
        one = stack.enter_context(bookie("bookie-1", 1, whole | {1: bytes(damaged), 4: again}))
        two = stack.enter_context(bookie("bookie-2", 2, {n: whole[n] for n in (0, 1, 2, 4)}))
        metadata = METADATA.replace(
            "0=[a:1, b:1, c:1], 4=[a:1, d:1, c:1]", "0=[one-mesh:1, two-mesh:1]"
        )
        internal = {
            "lastConfirmedEntry": "10:4",
            "ledgers": [{"ledgerId": 10, "metadata": metadata}],
        }
        rows = read_parts(
            list(parts_of("orders-0", internal)),
            {"one-mesh:1": one, "two-mesh:1": two},
            within_s=30,
        )
    assert all(row.is_read and row.in_sync for row in rows)
    found = [(s.replica.node, s.first, s.last, s.split) for s in stretches(rows)]
    assert sorted(found) == [("bookie-1", 1, 1, "damaged"), ("bookie-2", 3, 3, "missing")]


def test_bookies_in_containers_are_known_by_their_names_among_the_nodes() -> None:
    """By these a ledger names who keeps it, and a cookie whose it is."""
    runtime = DockerRuntime("r", Path("/x"), 9, spec_of("pulsar", topology="bookies-3"), None)
    admin = ASSEMBLY.admin(runtime, lambda name: True)
    named = {name: str(node.client) for name, node in admin._bookies.items()}
    assert named == {f"bookie-{n}-mesh:13181": f"127.0.9.{n + 3}:13181" for n in (1, 2, 3)}
