"""Sizes as people write them: ``300MB``, ``64KiB`` or a plain number of bytes."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

_SIZE: Final = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kMG]?)(i?)B?\s*$")


def parse_size(value: object) -> object:
    """``300MB``, ``64KiB`` or a plain number of bytes -> int; anything else is left to fail."""
    if isinstance(value, str) and (match := _SIZE.match(value.replace("K", "k"))):
        base = 1024 if match[3] else 1000
        return round(float(match[1]) * base ** ("kMG".index(match[2]) + 1 if match[2] else 0))
    if isinstance(value, str | bool):
        raise ValueError("must be a size such as 300MB, 64KiB or a number of bytes")
    return value


def in_units(size: float) -> str:
    """Bytes for people: ``300 MB``, ``1.5 GB``, ``64 kB``."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(gt=0, le=1 << 50),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[kKMG]?i?B?\s*$"},
            ]
        }
    ),
]
