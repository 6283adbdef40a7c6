"""Thresholds as people write them: ``500ms``, or ``{overall: 5s, outside_faults: 100ms}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue

from harness.durations import MAX_DURATION_S, TEXT_PATTERN, in_unit_of, parse_seconds
from harness.errors import did_you_mean
from harness.scenario import ratio
from harness.scenario.part import Part

_ABOUT: Final = {
    "overall": "of the whole load",
    "outside_faults": "of the load without the time of faults",
}
_KEYS: Final = tuple(_ABOUT)
_A_DURATION: Final = "must be a duration such as 500ms or 10s"


class Limit(Part):
    """The most that a figure may be: of the whole load, and of the load without the time of faults.

    Durations in seconds, ratios from 0 to 1; None = not asked about.
    """

    overall: float | None = None
    outside_faults: float | None = None


def read_seconds_limit(value: Any) -> Limit | None:
    """A limit of a duration.

    Raises:
        ValueError: no duration, or not the keys of a limit; what is allowed.
    """
    return _limit(value, _seconds)


def read_ratio_limit(value: Any) -> Limit | None:
    """A limit of a share: ``0.1%`` or ``0.001``; raises as `read_seconds_limit` does."""
    return _limit(value, ratio.read_ratio)


def read_count_limit(value: Any) -> Limit | None:
    """A limit of a number, of the whole load; raises as `read_seconds_limit` does."""
    if value is None or isinstance(value, Limit):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
        raise ValueError("must be a whole number from 0 to 1,000,000")
    return Limit(overall=float(value))


def _limit(value: Any, number: Callable[[Any], float]) -> Limit | None:
    if value is None or isinstance(value, Limit):
        return value
    if not isinstance(value, Mapping):
        return Limit(overall=number(value))
    for key in value:
        if key not in _KEYS:
            raise ValueError(
                f"{key}: unknown key; {did_you_mean(str(key), _KEYS, label='allowed')}"
            )
    read = {str(key): number(each) for key, each in value.items() if each is not None}
    if not read:
        raise ValueError(f"needs at least one of {', '.join(_KEYS)}")
    return Limit(**read)


def _seconds(value: Any) -> float:
    try:
        seconds = parse_seconds(value)
    except ValueError:
        raise ValueError(_A_DURATION) from None
    if not isinstance(seconds, int | float) or not 0 < seconds <= MAX_DURATION_S:
        raise ValueError(
            f"{_A_DURATION}, more than 0 and at most {in_unit_of(value, MAX_DURATION_S)}"
        )
    return float(seconds)


def _schema(one: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema that an editor checks."""
    keys = {name: {**one, "description": about} for name, about in _ABOUT.items()}
    both = {"type": "object", "properties": keys, "additionalProperties": False}
    return {"anyOf": [*one["anyOf"], {**both, "minProperties": 1}]}


_NUMBER_OF_S: Final = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_DURATION_S}
_TEXT_OF_S: Final = {"type": "string", "pattern": TEXT_PATTERN}
_SECONDS: Final = {"anyOf": [_NUMBER_OF_S, _TEXT_OF_S]}
SecondsLimit = Annotated[
    Limit | None, BeforeValidator(read_seconds_limit), WithJsonSchema(_schema(_SECONDS))
]
RatioLimit = Annotated[
    Limit | None, BeforeValidator(read_ratio_limit), WithJsonSchema(_schema(ratio.JSON_SCHEMA))
]
CountLimit = Annotated[
    Limit | None,
    BeforeValidator(read_count_limit),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 1_000_000}),
]
