"""A probe message: our header with kind PROBE, so that no analysis ever counts it."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator

from harness.records import (
    FORMAT_VERSION,
    HEADER_BYTES,
    HEADER_MAGIC,
    HEADER_STRUCT,
    TRAILER_BYTES,
    Kind,
)

#: Value and headers of messages that are read.
WithHeaders = Iterator[tuple[bytes, dict[str, str]]]


#: Key of probes, where messages have keys: a compacted topic takes none without.
PROBE_KEY = b"brokerstorm-probe"


def probe_payload(run_tag: int, *, lane: int = 0, seq: int = 0) -> bytes:
    """Header and CRC of a probe of producer instance 0."""
    length = HEADER_BYTES + TRAILER_BYTES
    header = struct.pack(
        HEADER_STRUCT, HEADER_MAGIC, FORMAT_VERSION, Kind.PROBE, run_tag, 0, lane, seq, time.monotonic_ns(),
        0, 0, 0, length, 0,
    )  # fmt: skip
    return header + struct.pack("<I", zlib.crc32(header))
