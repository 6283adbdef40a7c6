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
_PLACE: Final = re.compile(r"\{(id|n|key|lane|producer)\}")
_TRAILER_BYTES: Final = lay.MIN_PAYLOAD_BYTES - lay.HEADER_BYTES


class Template:
    """Makes the bodies of one producer instance.

    Args:
        text: the template. ``{id}`` is ``instance/lane/seq``, with ``.attempt`` of a message that
            is sent again; ``{n}`` the sequence number in the lane; ``{key}`` the key, empty without
            one.
    """

    def __init__(self, text: str, instance: int) -> None:
        self._text = text
        self._instance = instance
        #: By lane: the bytes around sequence numbers.
        self._pieces: dict[int, list[bytes]] = {}

    def body(self, lane: Lane, seq: int, attempt: int = 0) -> bytes:
        """Return the body of one message."""
        if attempt:
            return self._of_attempt(lane, seq, attempt)
        pieces = self._pieces.get(lane.lane)
        if pieces is None:
            pieces = self._pieces[lane.lane] = self._around_seqs(lane)
        return (b"%d" % seq).join(pieces)

    def _around_seqs(self, lane: Lane) -> list[bytes]:
        pieces = [""]
        for is_place, text in _parts(self._text):
            if not is_place:
                pieces[-1] += text
            elif text in ("id", "n"):
                pieces[-1] += f"{self._instance}/{lane.lane}/" if text == "id" else ""
                pieces.append("")
            else:
                pieces[-1] += self._fixed(lane, text)
        return [piece.encode() for piece in pieces]

    def _fixed(self, lane: Lane, place: str) -> str:
        """What is in a place in every message of a lane."""
        key = (lane.key or b"").decode()
        return {"key": key, "lane": str(lane.lane), "producer": str(self._instance)}[place]

    def _of_attempt(self, lane: Lane, seq: int, attempt: int) -> bytes:
        own = {"id": f"{self._instance}/{lane.lane}/{seq}.{attempt}", "n": str(seq)}
        found = (
            (own[text] if text in own else self._fixed(lane, text)) if is_place else text
            for is_place, text in _parts(self._text)
        )
        return "".join(found).encode()


def _parts(text: str) -> Iterable[tuple[bool, str]]:
    """Stretches of a template, in order: whether each is a place, and its text or name."""
    for number, part in enumerate(_PLACE.split(text)):
        yield number % 2 == 1, part


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
