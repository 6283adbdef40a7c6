"""Payload sizes as people write them: ``150``; sizes that differ by message: ``100..10000``, any of
them as often as any other; ``{p50: 300, p99: 4000}``, log-normal; ``{sizes: {200: 70%, 1000:
30%}}``. With ``compressible: 60%`` next to them (or next to ``bytes: 150``) so much of each is
zeros and the rest differs. Or a body in the user's shape: ``{template: '{"order": {"id": "{id}"},
"n": {n}}'}``; `harness.scenario.payload_schema` makes one of values and a schema."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from functools import partial
from statistics import NormalDist
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from harness.scenario.ratio import JSON_SCHEMA, read_ratio

MIN_BYTES: Final = 52  # header and checksum
MAX_BYTES: Final = 1_000_000
_RANGE: Final = re.compile(r"^\s*(\d+)\s*\.\.\s*(\d+)\s*$")
#: Entries of a table of mixed sizes: shares are kept to a tenth of a percent.
TABLE_ROWS: Final = 1000
Size = int | str | dict[str, Any]
_QUANTILES: Final = {
    "p50": "bytes that half of the messages do not exceed",
    "p99": "bytes that 99 of 100 messages do not exceed; sizes are log-normal",
}
#: Places of a template, each with its shortest and longest text (docs/worker-protocol.md).
_PLACES: Final = {
    "id": ("1/0/0", "4294967295/4294967295/18446744073709551615.65535"),
    "n": ("0", "18446744073709551615"),
    "key": ("", "k999999"),
    "lane": ("0", "4294967295"),
    "producer": ("1", "4294967295"),
}
#: Places that may have a width: ``{n:10}`` has zeros on the left up to 10 characters.
PADDED: Final = ("id", "n", "lane", "producer")
PLACE: Final = re.compile(r"\{([A-Za-z_]+)(?::([0-9]+))?\}")
_MOST_WIDTH: Final = 99
#: The charset of a template that has a character for each byte.
LATIN_1: Final = "latin-1"
#: Key of a payload -> the kind of file that it names, which says how values are encoded.
SCHEMAS: Final = {"avro": "an Avro schema", "protobuf": "a .proto file, or a set of descriptors"}
_OF_SCHEMAS: Final = ("template", *SCHEMAS, "message")
#: How a payload begins that has its identity in itself.
_MAGIC: Final = "BS"
#: What an editor checks; YAML gives a number or a text.
_JSON_SCHEMA: Final = {
    "anyOf": [
        {"type": "integer", "minimum": MIN_BYTES, "maximum": MAX_BYTES},
        {"type": "string", "pattern": _RANGE.pattern},
        {
            "type": "object",
            "properties": {
                **{
                    name: {
                        "type": "integer",
                        "minimum": MIN_BYTES,
                        "maximum": MAX_BYTES,
                        "description": about,
                    }
                    for name, about in _QUANTILES.items()
                },
                "bytes": {
                    "anyOf": [
                        {"type": "integer", "minimum": MIN_BYTES, "maximum": MAX_BYTES},
                        {"type": "string", "pattern": _RANGE.pattern},
                    ],
                    "description": "a size or a range; required with `compressible`",
                },
                "compressible": {
                    **JSON_SCHEMA,
                    "description": "share of each message that a codec saves; the rest differs by message",
                },
                "template": {
                    "description": "body of each message: a text with `{id}`, which names the message, and "
                    "`{n}` (number in its lane), `{key}`, `{lane}` and `{producer}`. With `avro` or "
                    "`protobuf` the values of its fields",
                },
                "avro": {"type": "string", "description": "Avro schema (.avsc) of the body"},
                "protobuf": {"type": "string", "description": ".proto file, or set of descriptors"},
                "message": {"type": "string", "description": "message type in `protobuf`"},
                "charset": {"enum": [LATIN_1], "description": "each character is one byte"},
                "sizes": {
                    "type": "object",
                    "description": "bytes to the share of messages that have so many; together 100%",
                    "additionalProperties": JSON_SCHEMA,
                    "minProperties": 1,
                },
            },
            "additionalProperties": False,
        },
    ]
}


def payload_template(payload: Size) -> str:
    """The text that the body of each message is made of; empty = there is none.

    Raises:
        ValueError: not a text with the places that there are; what is allowed.
    """
    if not isinstance(payload, Mapping) or "template" not in payload:
        return ""
    text = payload["template"]
    if others := sorted(payload.keys() - {"template", "charset"}):
        raise ValueError(f"template takes no sizes: leave out {', '.join(others)}")
    if not isinstance(text, str):
        raise ValueError(
            'template must be a text, such as \'{"id": "{id}", "n": {n}}\'; '
            f"fields with values need {' or '.join(SCHEMAS)}, too"
        )
    if payload_charset(payload):
        if high := next((char for char in text if ord(char) > 0xFF), ""):
            raise ValueError(f"template has {high!r}, which is not a byte with charset {LATIN_1}")
    elif "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError(
            "template must be a text without NUL and halves of characters; "
            f"charset: {LATIN_1} takes bytes"
        )
    check_places(text)
    if all(found[1] != "id" for found in PLACE.finditer(text)):
        raise ValueError("template has no {id}, by which readers name the message")
    if text.startswith(_MAGIC):
        raise ValueError(
            f"template begins with {_MAGIC}, as payloads without one do: begin it with another text"
        )
    return text


def payload_charset(payload: Size) -> str:
    """The charset of the template; empty = UTF-8.

    Raises:
        ValueError: another one than `LATIN_1`.
    """
    charset = payload.get("charset", "") if isinstance(payload, Mapping) else ""
    if charset not in ("", LATIN_1):
        raise ValueError(f"charset must be {LATIN_1}; leave it out for UTF-8")
    return str(charset)


def payload_schema(payload: Size) -> str:
    """Which of `SCHEMAS` a payload has; empty = none.

    Raises:
        ValueError: keys that do not go together, or a file or message type that is not a text.
    """
    found = [key for key in SCHEMAS if isinstance(payload, Mapping) and key in payload]
    if not found or not isinstance(payload, Mapping):
        return ""
    if "template" not in payload:
        raise ValueError(f"{found[0]} needs template: the values of the fields")
    if others := sorted(set(found[1:]) | (payload.keys() - set(_OF_SCHEMAS))):
        raise ValueError(f"{found[0]} cannot be combined with {', '.join(others)}")
    if not isinstance(payload[found[0]], str) or not payload[found[0]]:
        raise ValueError(f"{found[0]} must be the path of {SCHEMAS[found[0]]}")
    if ("message" in payload) != (found[0] == "protobuf"):
        raise ValueError("message names the message type of protobuf: write both, or neither")
    if not isinstance(payload.get("message", ""), str):
        raise ValueError("message must be the name of a message type, such as shop.Order")
    return found[0]


def check_places(
    template: str,
    places: Collection[str] = tuple(_PLACES),
    padded: Collection[str] = PADDED,
) -> None:
    """Check the places of a template.

    Args:
        padded: places that may have a width.

    Raises:
        ValueError: one that is none of ``places``, which it names; or a width that cannot be.
    """
    *most, last = (f"{{{place}}}" for place in places)
    for found in PLACE.finditer(template):
        place, width = found.groups()
        if place not in places:
            raise ValueError(
                f"template has {found[0]}, which is not a place: use {', '.join(most)} or {last}"
            )
        if width and place not in padded:
            raise ValueError(f"template has {found[0]}: {{{place}}} has no width")
        if width and (width.startswith("0") or int(width) > _MOST_WIDTH):
            raise ValueError(f"template has {found[0]}: a width is 1 to {_MOST_WIDTH} characters")


def _template_sizes(template: str, charset: str) -> tuple[int, int]:
    """Bytes of the shortest and the longest message, with the identity in its header."""
    least, most = (
        PLACE.sub(partial(_end_of_place, end), template).encode(charset or "utf-8")
        for end in (0, 1)
    )
    return MIN_BYTES + len(least), MIN_BYTES + len(most)


def _end_of_place(end: int, found: re.Match[str]) -> str:
    """The shortest (0) or longest (1) text of a place."""
    return _PLACES[found[1]][end].rjust(int(found[2] or 0), "0")


def payload_table(payload: Size) -> list[int]:
    """Sizes in bytes, each as frequent as any other, ascending; none unless sizes are mixed.

    Raises:
        ValueError: not the keys of a mix, or sizes that cannot be; what is allowed.
    """
    payload = _plain(payload)
    if not isinstance(payload, Mapping) or payload_template(payload):
        return []
    if set(payload) == {"sizes"}:
        return _weighted(payload["sizes"])
    if set(payload) == set(_QUANTILES):
        return _log_normal(*(_bytes(name, payload[name]) for name in _QUANTILES))
    raise ValueError(
        "must have p50 and p99, or sizes: {200: 70%, 1000: 30%}, or bytes, or template"
    )


def _plain(payload: Size) -> Size:
    """The sizes, without how compressible they are."""
    if not isinstance(payload, Mapping):
        return payload
    sizes = {key: value for key, value in payload.items() if key != "compressible"}
    plain: Size = sizes["bytes"] if set(sizes) == {"bytes"} else sizes
    return plain


def payload_compressible(payload: Size) -> int | None:
    """Thousandths of each payload that a codec saves; None: not stated, and all are filled alike.

    Raises:
        ValueError: no share from 0 to 1.
    """
    if not isinstance(payload, Mapping) or "compressible" not in payload:
        return None
    return round(read_ratio(payload["compressible"]) * 1000)


def _log_normal(p50: int, p99: int) -> list[int]:
    """Return usual sizes of messages: many small ones and few large ones, cut off at the smallest
    and the largest.
    """
    if p99 < p50:
        raise ValueError("p99 must be at least p50")
    normal = NormalDist()
    sigma = math.log(p99 / p50) / normal.inv_cdf(0.99)
    quantiles = ((k + 0.5) / TABLE_ROWS for k in range(TABLE_ROWS))
    sizes = (round(p50 * math.exp(sigma * normal.inv_cdf(q))) for q in quantiles)
    return [min(max(size, MIN_BYTES), MAX_BYTES) for size in sizes]


def _weighted(sizes: object) -> list[int]:
    if not isinstance(sizes, Mapping) or not sizes:
        raise ValueError(
            "sizes must be a mapping of bytes to a share, such as {200: 70%, 1000: 30%}"
        )
    shares = {_bytes("a size", size): read_ratio(share) for size, share in sizes.items()}
    if abs(sum(shares.values()) - 1) > 1e-6:
        raise ValueError(f"the shares of sizes must add up to 100%, not {sum(shares.values()):.4g}")
    table: list[int] = []
    reached = 0.0
    for size, share in sorted(shares.items()):
        reached += share
        table += [size] * (round(reached * TABLE_ROWS) - len(table))
    return table


def _bytes(name: str, size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or not MIN_BYTES <= size <= MAX_BYTES:
        raise ValueError(f"{name} must be a number of bytes from {MIN_BYTES} to {MAX_BYTES}")
    return size


def payload_sizes(payload: Size) -> tuple[int, int]:
    """The smallest and the largest payload, in bytes.

    Raises:
        ValueError: neither a number, a range nor a mix, or not within `MIN_BYTES` and `MAX_BYTES`.
    """
    if table := payload_table(payload):
        return table[0], table[-1]
    payload = _plain(payload)
    if template := payload_template(payload):
        least, most = _template_sizes(template, payload_charset(payload))
    elif isinstance(payload, str):
        match = _RANGE.match(payload)
        if match is None:
            raise ValueError("must be a number of bytes such as 150, or a range such as 100..10000")
        least, most = int(match[1]), int(match[2])
    elif isinstance(payload, int) and not isinstance(payload, bool):
        least = most = payload
    else:
        raise ValueError("must be a number of bytes such as 150, or a range such as 100..10000")
    if least < MIN_BYTES:
        raise ValueError(f"must be at least {MIN_BYTES}")
    if most > MAX_BYTES:
        raise ValueError(f"must be at most {MAX_BYTES}")
    if most < least:
        raise ValueError("must go from the smaller to the larger, as 100..10000 does")
    return least, most


def check_payload_sizes(value: Size) -> Size:
    """The value as it is; what `payload_schema`, `payload_template`, `payload_sizes` and
    `payload_compressible` raise."""
    if payload_schema(value):
        return value
    payload_template(value)
    payload_sizes(value)
    payload_compressible(value)
    return value


Payload = Annotated[Size, BeforeValidator(check_payload_sizes), WithJsonSchema(_JSON_SCHEMA)]
