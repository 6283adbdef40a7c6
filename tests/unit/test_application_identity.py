"""Outputs of applications name their inputs, or are counted as outputs that name none."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from harness.admin.probe import PROBE_KEY, probe_payload
from harness.protocols.cluster import StoredMessage
from harness.records import HEADER, HEADER_STRUCT, Kind
from harness.run.identity import identity_reader, is_probe

TAG = 0x1234


def payload(kind: Kind = Kind.LOAD, tag: int = TAG) -> bytes:
    """Message 1/5/74865.2 as a producer sends it."""
    head = (
        struct.pack(HEADER_STRUCT, b"BS", 1, kind, tag, 1, 5, 74865, 99, 0, 2, 0, 60, 0)
        + b"filler--"
    )
    return head + struct.pack("<I", zlib.crc32(head))


def message(value: bytes = b"", key: bytes = b"", **headers: bytes) -> StoredMessage:
    return StoredMessage(0, 17, 0, key, value, list(headers.items()))


def named(way: dict[str, str | bool], one: StoredMessage) -> tuple[int, int, int, int] | None:
    header = identity_reader(way, TAG)(one)
    if header is None:
        return None
    found = np.frombuffer(header, HEADER)[0]
    return tuple(int(found[name]) for name in ("instance", "lane", "seq", "attempt"))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("way", "one"),
    [
        ({}, message(payload())),
        ({}, message(payload() + b" paid")),
        ({"header": "order"}, message(b"?", order=b"1/5/74865.2")),
        ({"json": "/order/id"}, message(b'{"order": {"id": "1/5/74865.2"}}')),
        ({"json": "/orders/1/a~1b"}, message(b'{"orders": [0, {"a/b": "1/5/74865.2"}]}')),
        ({"key": True}, message(key=b"1/5/74865.2")),
        ({"regex": r"id=(\S+)"}, message(b"paid id=1/5/74865.2 today")),
    ],
)
def test_every_way_names_the_input(way: dict[str, str | bool], one: StoredMessage) -> None:
    assert named(way, one) == (1, 5, 74865, 2)


@pytest.mark.parametrize(
    ("way", "one"),
    [
        ({}, message(b"")),
        ({}, message(payload()[:-1])),  # a part of it proves nothing
        ({}, message(payload()[:50] + b"x" + payload()[51:])),
        ({}, message(payload(tag=TAG + 1))),
        ({"header": "order"}, message(b"1/5/74865", other=b"1/5/74865")),
        ({"json": "/order/id"}, message(b"not JSON")),
        ({"json": "/order/id"}, message(b'{"order": {"id": 5}}')),
        ({"json": "/order/id"}, message(b'{"order": []}')),
        ({"json": "/a"}, message(b"[" * 100_000)),
        ({"key": True}, message(key=b"order-1")),
        ({"key": True}, message(key=b"\xff\xfe")),
        ({"key": True}, message(key=b"99999999999999999999/1/1")),
        ({"key": True}, message(key=b"1/1/1.99999999")),
        ({"regex": r"id=(\S+)"}, message(b"paid")),
        ({"regex": r"id=(x)?"}, message(b"id=")),
    ],
)
def test_what_names_no_input_is_none(way: dict[str, str | bool], one: StoredMessage) -> None:
    assert named(way, one) is None


def test_a_copied_probe_is_no_output() -> None:
    assert is_probe(message(probe_payload(TAG) + b" paid"), TAG)
    assert is_probe(message(b'{"error": "bad order"}', key=PROBE_KEY), TAG)
    assert not is_probe(message(payload()), TAG)
