"""The entries of a topic as each of their bookies has them.

A ledger has an ensemble of bookies for each stretch of its entries; entry ``e`` is kept by as many
of them as the write quorum says, from number ``e`` modulo the ensemble on (BookKeeper, "Ledger
metadata"). Bookies are asked one by one, in protocol 2.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from kafka.record.util import calc_crc32c

from harness.contracts.rows import ReplicaRow, ReplicaSpan
from harness.protocols.cluster import Node
from harness.rundir import Document
from harness.systems.pulsar import READ_ENTRY
from harness.systems.pulsar.transactions import entries_of

#: Length, then version, operation and flags in one word, ledger, entry; an answer has a code before
#: these.
_ASK: Final = struct.Struct(">iiqq")
_ANSWER: Final = struct.Struct(">iiqq")
_LENGTH: Final = 4
_READ: Final = 2 << 24 | READ_ENTRY << 16
_OK, _ABSENT = 0, (1, 2)  # ENOLEDGER, ENOENTRY
#: Ledger, entry, last confirmed entry and length: the digest after them is of these and the
#: payload.
_HEAD: Final = 32
_CRC_BYTES: Final = 4
_WINDOW: Final = 200
_THREADS: Final = 8
_ANSWER_S: Final = 5.0
_METADATA: Final = re.compile(
    r"writeQuorumSize=(?P<write>\d+), ackQuorumSize=(?P<ack>\d+).*digestType=(?P<digest>\w+).*"
    r"ensembles=\{(?P<ensembles>[^}]*)\}"
)
_ENSEMBLE: Final = re.compile(r"(\d+)=\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """Entries of a ledger that the same bookies keep: ``first``, ``first + step`` ... below
    ``end``."""

    stream: str
    ledger: int
    number: int
    first: int
    step: int
    end: int
    bookies: tuple[str, ...]
    #: Acknowledged means that each of them has it.
    is_kept_by_all: bool

    @property
    def entries(self) -> range:
        """Numbers of the entries that this part of the ledger has."""
        return range(self.first, self.end, self.step)


def parts_of(stream: str, internal: Document) -> Iterator[LedgerPart]:
    """The parts of a stream's ledgers, as ``internalStats?metadata=true`` tells them; ledgers with
    other digests than CRC-32C are left out."""
    counts = entries_of(internal)
    for row in internal.get("ledgers") or ():
        ledger, told = int(row["ledgerId"]), _METADATA.search(str(row.get("metadata")))
        if not told or told["digest"] != "CRC32C":
            continue
        found = [
            (int(first), names.split(", ")) for first, names in _ENSEMBLE.findall(told["ensembles"])
        ]
        ends = [first for first, _ in found[1:]] + [counts.get(ledger, 0)]
        number = 0
        for (first, names), end in zip(found, ends, strict=True):
            for at in range(first, min(end, first + len(names))):
                keepers = tuple(names[(at + i) % len(names)] for i in range(int(told["write"])))
                is_kept = told["write"] == told["ack"]
                yield LedgerPart(stream, ledger, number, at, len(names), end, keepers, is_kept)
                number += 1


def read_parts(
    parts: Sequence[LedgerPart], bookies: Mapping[str, Node], *, within_s: float
) -> list[ReplicaRow]:
    """A row for each part and bookie; where one does not answer in time, the rest of its row is
    unread.

    Args:
        bookies: as brokers name them -> the node.
    """
    deadline = time.monotonic() + within_s

    def marks(one: tuple[LedgerPart, Node]) -> dict[int, bytes]:
        part, node = one
        return {entry: own.mark for entry, own in _read(node, part.ledger, part.entries, deadline)}

    wanted = [(part, bookies[each]) for part in parts for each in part.bookies if each in bookies]
    copies: dict[LedgerPart, dict[Node, dict[int, bytes]]] = {}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="bookies") as pool:
        for (part, node), found in zip(wanted, pool.map(marks, wanted), strict=True):
            copies.setdefault(part, {})[node] = found
    return [row for part, own in copies.items() for row in _rows(part, own, deadline)]


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """A bookie's answer to a request for an entry. ``data`` is empty if it does not have the entry
    or cannot read it.

    ``refused``: it has it, and cannot read it.
    """

    data: bytes = b""
    refused: bool = False

    @property
    def mark(self) -> bytes:
        """Return the digest of the whole entry, for comparison."""
        return blake2b(self.data, digest_size=8, key=b"refused" if self.refused else b"").digest()

    @property
    def digest(self) -> str:
        """Return the digest of the payload. The head is left out: an entry that a recovery wrote
        again has another last confirmed entry in it.
        """
        return blake2b(self.data[_HEAD + _CRC_BYTES :], digest_size=8).hexdigest()

    @property
    def is_intact(self) -> bool:
        """Its checksum is of the head and the payload (BookKeeper, DigestManager)."""
        if self.refused or len(self.data) < _HEAD + _CRC_BYTES:
            return False
        said = int.from_bytes(self.data[_HEAD : _HEAD + _CRC_BYTES], "big")
        return bool(calc_crc32c(self.data[:_HEAD] + self.data[_HEAD + _CRC_BYTES :]) == said)


def _rows(
    part: LedgerPart, copies: Mapping[Node, Mapping[int, bytes]], deadline: float
) -> Iterator[ReplicaRow]:
    """Entries that all have alike, byte by byte, are not looked at any closer: CRC-32C in Python is
    slow."""
    unlike = [e for e in part.entries if len({copy.get(e) for copy in copies.values()}) > 1]
    for node, copy in copies.items():
        again = dict(_read(node, part.ledger, unlike, deadline))
        told = copy.keys() - (set(unlike) - again.keys())
        unread = next((entry for entry in part.entries if entry not in told), part.end)
        there = [
            (entry, own)
            for entry, own in again.items()
            if (own.data or own.refused) and entry < unread
        ]
        yield ReplicaRow(
            stream=part.stream,
            node=node.name,
            leads=False,
            in_sync=part.is_kept_by_all,
            begin=part.first,
            end=part.end,
            read_to=unread,
            odd=tuple(ReplicaSpan(e, e, own.digest, own.is_intact) for e, own in sorted(there)),
            ledger=part.ledger,
            part=part.number,
        )


def _read(
    node: Node, ledger: int, entries: Sequence[int], deadline: float
) -> Iterator[tuple[int, KeptEntry]]:
    """Entry -> what a bookie answers, in no order; ends early when it answers no more, or at the
    deadline."""
    with (
        suppress(OSError),
        socket.create_connection((node.client.host, node.client.port), _ANSWER_S) as link,
    ):
        answers = link.makefile("rb")
        for at in range(0, len(entries), _WINDOW):
            if time.monotonic() > deadline:
                return
            some = entries[at : at + _WINDOW]
            link.sendall(
                b"".join(_ASK.pack(_ASK.size - _LENGTH, _READ, ledger, entry) for entry in some)
            )
            for _ in some:
                size = int.from_bytes(answers.read(_LENGTH), "big")
                answer = answers.read(size)
                if len(answer) < _ANSWER.size:
                    return
                _, code, _, entry = _ANSWER.unpack_from(answer)
                data = answer[_ANSWER.size :] if code == _OK else b""
                yield entry, KeptEntry(data, refused=code not in (_OK, *_ABSENT))
