"""The payload of a message: a 48-byte header, filler, and a CRC-32 of everything before it."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from . import layouts as lay

#: CRC-32 of any bytes followed by their own CRC-32 (little-endian): one call verifies a payload
#: without cutting the trailer off.
RESIDUE: Final = 0x2144DF1C
_64_BITS: Final = 2**64 - 1
#: Bytes that no codec makes smaller, which compressible payloads are cut from.
POOL_BYTES: Final = 1 << 22


@lru_cache(maxsize=24)
def _fill(count: int) -> bytes:
    state, out = 1, bytearray(count)
    for index in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out[index] = state >> 24
    return bytes(out)


@lru_cache(maxsize=4)
def filler(count: int) -> bytes:
    """``count`` bytes between header and trailer: fixed, and not compressible to nothing by
    accident.

    A linear congruential generator (Numerical Recipes constants), its high byte: the same in every
    language, so golden payloads can be compared.
    """
    return _fill(1 << count.bit_length())[:count]


@lru_cache(maxsize=1)
def _pool() -> bytes:
    """SHA-256 of 0, 1, 2 ... (32 bits, little-endian), one after the other."""
    hashes = (hashlib.sha256(k.to_bytes(4, "little")).digest() for k in range(POOL_BYTES // 32))
    return b"".join(hashes)


class Sizes(NamedTuple):
    """Sizes in bytes of the payloads of a producer instance: from ``least`` to ``most``, both
    included; with a ``table`` those in it, each as often as any other.

    ``compressible``: thousandths of a payload that are zeros, the rest of its filling differs by
    message; -1 = the filling of all messages is alike (`filler`).
    """

    least: int
    most: int
    instance: int
    table: Sequence[int] = ()
    compressible: int = -1

    @property
    def vary(self) -> bool:
        return self.least != self.most

    def _mixed(self, lane: int, seq: int) -> int:
        """A number of 64 bits for one message, the same in every language (SplitMix64)."""
        mixed = (seq + 1) * 0x9E3779B97F4A7C15 + (self.instance << 32 | lane) & _64_BITS
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _64_BITS
        return mixed ^ mixed >> 31

    def of(self, lane: int, seq: int) -> int:
        """Size of one message: the same in every attempt."""
        mixed = self._mixed(lane, seq)
        if self.table:
            return self.table[(mixed >> 32) * len(self.table) >> 32]
        return self.least + ((mixed >> 32) * (self.most - self.least + 1) >> 32)

    def filling(self, lane: int, seq: int, length: int) -> bytes:
        """Return the bytes between header and trailer of a message of ``length`` bytes."""
        room = length - lay.MIN_PAYLOAD_BYTES
        if self.compressible < 0:
            return filler(room)
        own = room - min(room, length * self.compressible // 1000)
        at = (self._mixed(lane, seq) & 0xFFFFFFFF) * (POOL_BYTES - own) >> 32
        return _pool()[at : at + own].ljust(room, b"\0")


def encode(
    run_tag: int,
    instance: int,
    lane: int,
    seq: int,
    t_intended_ns: int,
    kind: int = lay.LOAD,
    key: int = 0,
    attempt: int = 0,
    length: int = lay.MIN_PAYLOAD_BYTES,
    filling: bytes | None = None,
    source: tuple[int, int] = (0, 0),
) -> bytes:
    """One whole payload of ``length`` bytes around ``filling`` (None = `filler`).

    ``source``: partition and offset of the message that a pipeline made it of.

    Raises:
        ValueError: ``length`` has no room for header and trailer.
    """
    if length < lay.MIN_PAYLOAD_BYTES:
        raise ValueError(f"payload of {length} bytes: at least {lay.MIN_PAYLOAD_BYTES} are needed")
    body = lay.HEADER.pack(
        lay.HEADER_MAGIC, lay.FORMAT_VERSION, kind, run_tag, instance, lane, seq, t_intended_ns, key,
        attempt, source[0], length, source[1],
    ) + (filler(length - lay.MIN_PAYLOAD_BYTES) if filling is None else filling)  # fmt: skip
    return body + zlib.crc32(body).to_bytes(4, "little")


def accepted_prefixes(run_tag: int) -> frozenset[bytes]:
    """The first 8 bytes (magic, version, kind, run tag) that payloads of this run can have.

    With `RESIDUE` this makes the readers' fast path: one CRC and one set look-up a message.
    """
    tag = run_tag.to_bytes(4, "little")
    return frozenset(
        lay.HEADER_MAGIC + bytes((lay.FORMAT_VERSION, kind)) + tag
        for kind in (lay.PROBE, lay.WARM_UP, lay.LOAD)
    )


def is_probe(value: bytes, check: int) -> bool:
    """Whether the harness and no producer wrote this message, whose check says ``check``."""
    return check == lay.CHECK_OK and value[3] == lay.PROBE


def check(value: bytes, run_tag: int) -> int:
    """Verdict on a payload that a reader found: CHECK_OK, CORRUPT, FOREIGN or OTHER_RUN."""
    if value[:2] != lay.HEADER_MAGIC:
        return lay.FOREIGN
    if len(value) < lay.MIN_PAYLOAD_BYTES or value[2] != lay.FORMAT_VERSION or value[3] > lay.LOAD:
        return lay.CORRUPT
    length = int.from_bytes(value[40:44], "little")
    if length != len(value) or zlib.crc32(value) != RESIDUE:
        return lay.CORRUPT
    if value[4:8] != run_tag.to_bytes(4, "little"):
        return lay.OTHER_RUN
    return lay.CHECK_OK
