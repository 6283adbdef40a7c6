"""Pulsar's names: our streams as its topics, and the bundle that a topic is in.

One topic ``orders`` with one partition is the non-partitioned topic
``persistent://<namespace>/orders`` and our stream ``orders-0``; with several it is a partitioned
topic, whose stream ``orders-3`` is ``...orders-partition-3``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import pairwise

from harness.errors import UsageError

WHOLE_RANGE = ("0x00000000", "0xffffffff")


def streams_of(topic: str, partitions: int) -> list[str]:
    """``orders``, 2 -> ``orders-0``, ``orders-1``."""
    return [f"{topic}-{number}" for number in range(partitions)]


def local_name(stream: str, partitions: int) -> str:
    """Pulsar's name, inside its namespace, of the stream of a topic with that many partitions."""
    topic, _, number = stream.rpartition("-")
    return topic if partitions == 1 else f"{topic}-partition-{number}"


def full_name(namespace: str, local: str) -> str:
    """``public/bs-1``, ``orders`` -> ``persistent://public/bs-1/orders``."""
    return f"persistent://{namespace}/{local}"


def bundles_between(boundaries: Sequence[str]) -> list[str]:
    """The bundles between boundaries: ``0x00000000``, ``0x80000000``, ``0xffffffff`` are two."""
    return [f"{low}_{high}" for low, high in pairwise(boundaries)]


def bundle_of(full: str, bundles: Sequence[str]) -> str:
    """The bundle whose range holds a topic: the CRC-32 of its full name decides (Pulsar's default
    hash).

    Raises:
        UsageError: the bundles leave a gap.
    """
    place = zlib.crc32(full.encode())
    for bundle in bundles:
        low, _, high = bundle.partition("_")
        # A range ends before its upper boundary, but the last one holds it.
        last = high == WHOLE_RANGE[1]
        if int(low, 16) <= place < int(high, 16) or (last and place == int(high, 16)):
            return bundle
    raise UsageError(f"{full} is in none of the bundles {', '.join(bundles)}")
