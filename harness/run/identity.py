"""Finds the input that an output of an application names, and writes it as the header of a
message."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from harness.admin.probe import PROBE_KEY
from harness.contracts.message import MessageId
from harness.expressions import first_group
from harness.protocols.cluster import StoredMessage
from harness.records import (
    FORMAT_VERSION,
    HEADER_BYTES,
    HEADER_MAGIC,
    HEADER_STRUCT,
    MIN_PAYLOAD_BYTES,
    Kind,
)

#: CRC-32 of a whole payload, its own CRC-32 included.
_RESIDUE: Final = 0x2144DF1C
_LENGTH: Final = struct.Struct("<I")
_MOST: Final = {"instance": 1 << 32, "lane": 1 << 32, "seq": 1 << 63, "attempt": 1 << 16}

#: An output -> the header (48 bytes) of its input; None = it names none.
ReadIdentity = Callable[[StoredMessage], bytes | None]


def identity_reader(way: Mapping[str, str | bool], run_tag: int) -> ReadIdentity:
    """Make the function that reads identities in the way of a scenario
    (`ApplicationPlan.identity`)."""
    if not way:
        return lambda message: copied_header(message.value, run_tag)
    (kind, value), *_ = way.items()
    text_of = _TEXTS[kind](value)

    def read(message: StoredMessage) -> bytes | None:
        text = text_of(message)
        found = MessageId.parse(text) if text else None
        return header_of(found, run_tag) if found else None

    return read


def is_probe(message: StoredMessage, run_tag: int) -> bool:
    """Whether an output was made of a probe of ours, which no producer sent."""
    found = copied_header(message.value, run_tag)
    return message.key == PROBE_KEY or (found is not None and found[3] == Kind.PROBE)


def copied_header(value: bytes, run_tag: int) -> bytes | None:
    """The header at the beginning of a value, if the whole payload that it belongs to is there,
    unchanged."""
    head = value[:HEADER_BYTES]
    if len(value) < MIN_PAYLOAD_BYTES or head[:2] != HEADER_MAGIC or head[2] != FORMAT_VERSION:
        return None
    length = _LENGTH.unpack_from(head, 40)[0]
    if int.from_bytes(head[4:8], "little") != run_tag or head[3] not in set(Kind):
        return None
    whole = MIN_PAYLOAD_BYTES <= length <= len(value) and zlib.crc32(value[:length]) == _RESIDUE
    return head if whole else None


def header_of(message: MessageId, run_tag: int) -> bytes | None:
    """The header of the message that a text names; None if its numbers are out of range."""
    numbers = {**message._asdict(), "attempt": message.attempt or 0}
    if any(numbers[name] >= most for name, most in _MOST.items()):
        return None
    return struct.pack(
        HEADER_STRUCT, HEADER_MAGIC, FORMAT_VERSION, Kind.LOAD, run_tag, numbers["instance"], numbers["lane"],
        numbers["seq"], 0, 0, numbers["attempt"], 0, MIN_PAYLOAD_BYTES, 0,
    )  # fmt: skip


def _header_text(name: Any) -> Callable[[StoredMessage], str]:
    wanted = str(name).lower()  # HTTP libraries write the names of headers as they like

    def text(message: StoredMessage) -> str:
        values = [value for own, value in message.headers if own.lower() == wanted]
        return _text(values[-1]) if values else ""

    return text


def _column_text(name: Any) -> Callable[[StoredMessage], str]:
    def text(message: StoredMessage) -> str:
        return next((_text(value) for own, value in message.headers if own == name), "")

    return text


def _json_text(pointer: Any) -> Callable[[StoredMessage], str]:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in str(pointer).split("/")[1:]]

    def text(message: StoredMessage) -> str:
        try:
            found = json.loads(message.value)
        except (ValueError, RecursionError):
            return ""
        for step in steps:
            if isinstance(found, dict):
                found = found.get(step)
            elif (
                isinstance(found, list)
                and step.isdecimal()
                and step.isascii()
                and int(step) < len(found)
            ):
                found = found[int(step)]
            else:
                return ""
        return found if isinstance(found, str) else ""

    return text


def _key_text(_: Any) -> Callable[[StoredMessage], str]:
    return lambda message: _text(message.key)


def _regex_text(expression: Any) -> Callable[[StoredMessage], str]:
    search = first_group(str(expression))
    return lambda message: search(_text(message.value))


def _text(data: bytes | None) -> str:
    return (data or b"").decode(errors="replace")


_TEXTS: Final[Mapping[str, Callable[[Any], Callable[[StoredMessage], str]]]] = {
    "header": _header_text,
    "json": _json_text,
    "key": _key_text,
    "regex": _regex_text,
    "column": _column_text,
}


def shown(messages: Sequence[StoredMessage]) -> str:
    """Some outputs for an error, each short."""
    return "; ".join(f"{m.partition}@{m.position}: {m.value[:60]!r}" for m in messages)
