"""Durations as people write them: ``10s``, ``250ms``, ``2m`` or a plain number of seconds.

The bottom of what a scenario is made of; scenario keys and fault steps read times the same way.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

MAX_DURATION_S: Final = 24 * 3600.0
_DURATION: Final = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?\s*$")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}
#: A duration as text, for editors: a pattern that JSON Schema knows.
TEXT_PATTERN: Final = r"^\s*\d+(\.\d+)?\s*(ms|s|m|min|h)?\s*$"
#: What an editor checks; YAML gives a number or a text.
_JSON_SCHEMA: Final = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": MAX_DURATION_S},
        {"type": "string", "pattern": TEXT_PATTERN},
    ]
}


def parse_seconds(value: object) -> object:
    """``10s``, ``250ms``, ``2m`` or a plain number of seconds -> a number of seconds.

    Raises:
        ValueError: it is not a duration.
    """
    if isinstance(value, str) and (match := _DURATION.match(value)):
        return float(match[1]) * _UNIT_S[match[2]]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a duration such as 10s, 250ms or 2m")
    return value


def in_unit_of(typed: object, seconds: float) -> str:
    """A limit in the unit of a duration that somebody typed: 86400 s is ``24h`` to who typed
    ``99h``.

    What was typed as a plain number, or as no duration, is answered in seconds.
    """
    match = _DURATION.match(typed) if isinstance(typed, str) else None
    unit = (match[2] if match else None) or "s"
    return f"{seconds / _UNIT_S[unit]:.12g}{unit}"


def seconds_text(seconds: float) -> str:
    """Format seconds in the way of a scenario: ``2.5s``."""
    return f"{round(seconds, 3):g}s"


Seconds = Annotated[
    float,
    BeforeValidator(parse_seconds),
    Field(ge=0, le=MAX_DURATION_S),
    WithJsonSchema(_JSON_SCHEMA),
]
