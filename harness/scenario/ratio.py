"""Shares as people write them: ``0.1%`` or ``0.001``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

_PERCENT: Final = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*%\s*$")
#: What an editor checks.
JSON_SCHEMA: Final = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "string", "pattern": _PERCENT.pattern},
    ]
}


def read_ratio(value: Any) -> float:
    """A share from 0 to 1.

    Raises:
        ValueError: anything else; what is allowed.
    """
    match = _PERCENT.match(value) if isinstance(value, str) else None
    ratio = float(match[1]) / 100 if match else value
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise ValueError("must be a ratio such as 0.1% or 0.001, from 0 to 1")
    return float(ratio)


Ratio = Annotated[float, BeforeValidator(read_ratio), WithJsonSchema(JSON_SCHEMA)]
