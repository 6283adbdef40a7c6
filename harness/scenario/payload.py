"""Payload sizes as people write them: ``150``, or ``100..10000`` for sizes that differ by message."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

MIN_BYTES: Final = 52  # header and checksum
MAX_BYTES: Final = 1_000_000
_RANGE: Final = re.compile(r"^\s*(\d+)\s*\.\.\s*(\d+)\s*$")
#: What an editor checks; YAML gives a number or a text.
_JSON_SCHEMA: Final = {
    "anyOf": [
        {"type": "integer", "minimum": MIN_BYTES, "maximum": MAX_BYTES},
        {"type": "string", "pattern": _RANGE.pattern},
    ]
}


def payload_sizes(payload: int | str) -> tuple[int, int]:
    """The smallest and the largest payload, in bytes.

    Raises:
        ValueError: neither a number nor a range, or not within `MIN_BYTES` and `MAX_BYTES`.
    """
    if isinstance(payload, str):
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


def check_payload_sizes(value: int | str) -> int | str:
    """The value as it is; what `payload_sizes` raises."""
    payload_sizes(value)
    return value


Payload = Annotated[int | str, BeforeValidator(check_payload_sizes), WithJsonSchema(_JSON_SCHEMA)]
