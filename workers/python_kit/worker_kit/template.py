"""Bodies in the user's shape: a text with places for the identity and the number of each message.

The identity of docs/capture-format.md travels in a header of the message, named `HEADER`: the
payload of a plain message without what is between its header and trailer. The body is what is
between them.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any, Final

from . import layouts as lay
from .spec import Lane

#: Name of the message header (Pulsar: property, AMQP: application property) with the identity.
HEADER: Final = "brokerstorm"
_PLACE: Final = re.compile(r"\{(id|n|key|lane|producer)(?::([1-9][0-9]?))?\}")
_TRAILER_BYTES: Final = lay.MIN_PAYLOAD_BYTES - lay.HEADER_BYTES


class Template:
    """Makes the bodies of one producer instance.

    Args:
        text: the template. ``{id}`` is ``instance/lane/seq``, with ``.attempt`` of a message that
            is sent again; ``{n}`` the sequence number in the lane; ``{key}`` the key, empty without
            one. ``{n:10}`` has zeros on the left up to 10 characters; in ``{id:40}`` they are
            before the sequence number.
        charset: makes bytes of the text. With latin-1, a character is one byte.
    """

    def __init__(self, text: str, instance: int, charset: str = "utf-8") -> None:
        self._text = text
        self._instance = instance
        self._charset = charset
        #: By lane: a format of its bodies, and how many sequence numbers it takes.
        self._formats: dict[int, tuple[bytes, int]] = {}

    def body(self, lane: Lane, seq: int, attempt: int = 0) -> bytes:
        """Return the body of one message."""
        if attempt:
            return self._of_attempt(lane, seq, attempt)
        found = self._formats.get(lane.lane)
        if found is None:
            found = self._formats[lane.lane] = self._format(lane)
        text, count = found
        return text % ((seq,) * count)

    def _format(self, lane: Lane) -> tuple[bytes, int]:
        made, count = [], 0
        for literal, place, width in _parts(self._text):
            made.append(literal.replace("%", "%%"))
            if place in ("id", "n"):
                before = self._before_seq(lane) if place == "id" else ""
                made.append(f"{before}%0{max(width - len(before), 0)}d")
                count += 1
            elif place:
                made.append(self._fixed(lane, place).replace("%", "%%").rjust(width, "0"))
        return "".join(made).encode(self._charset), count

    def _before_seq(self, lane: Lane) -> str:
        return f"{self._instance}/{lane.lane}/"

    def _fixed(self, lane: Lane, place: str) -> str:
        """What is in a place in every message of a lane."""
        key = (lane.key or b"").decode()
        return {"key": key, "lane": str(lane.lane), "producer": str(self._instance)}[place]

    def _of_attempt(self, lane: Lane, seq: int, attempt: int) -> bytes:
        made, before = [], self._before_seq(lane)
        for literal, place, width in _parts(self._text):
            made.append(literal)
            if place == "id":
                made.append(before + f"{seq}.{attempt}".rjust(width - len(before), "0"))
            elif place:
                text = str(seq) if place == "n" else self._fixed(lane, place)
                made.append(text.rjust(width, "0"))
        return "".join(made).encode(self._charset)


def _parts(text: str) -> Iterable[tuple[str, str, int]]:
    """Stretches of a template, in order: a text, the place after it and the place's width. The last
    has no place."""
    parts = [*_PLACE.split(text), "", None]
    for literal, place, width in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        yield literal or "", place or "", int(width or 0)


def parted(payload: bytes) -> tuple[bytes, bytes]:
    """Body of a payload, and the identity that goes into its header."""
    trailer_at = len(payload) - _TRAILER_BYTES
    return (
        payload[lay.HEADER_BYTES : trailer_at],
        payload[: lay.HEADER_BYTES] + payload[trailer_at:],
    )


def parted_as_text(payload: bytes) -> tuple[bytes, dict[str, str]]:
    """The same where headers are texts: the body, and the header with the identity in base64."""
    body, identity = parted(payload)
    return body, {HEADER: b64encode(identity).decode()}


def joined(value: bytes | None, headers: Iterable[tuple[str, Any]] | None) -> bytes:
    """The payload that was sent: ``value`` itself if the message has no identity in its headers."""
    value = value or b""
    if value[:2] == lay.HEADER_MAGIC:
        return value
    for name, held in headers or ():
        identity = _bytes_of(held) if name == HEADER else b""
        if len(identity) == lay.MIN_PAYLOAD_BYTES:
            return identity[: lay.HEADER_BYTES] + value + identity[lay.HEADER_BYTES :]
    return value


def _bytes_of(held: object) -> bytes:
    """An identity in a header; empty if it is none. Where headers are texts it is base64."""
    if isinstance(held, bytes):
        return held
    try:
        return b64decode(held, validate=True) if isinstance(held, str) else b""
    except ValueError:
        return b""
