"""Rates as people write them: ``50000``, or ``{at_most: 50000}`` for what this machine keeps of
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from harness.errors import did_you_mean
from harness.scenario.part import Part

MAX_RATE_PER_S: Final = 2_000_000  # above what one machine's clients reach; a typo, not a wish
#: With less of the rate than this, unless the scenario says otherwise, faults meet too few
#: messages.
_FLOOR_SHARE: Final = 50
_ABOUT: Final = {
    "at_most": "msg/s; as many of them as this machine keeps, measured before the first round",
    "at_least": "msg/s; a machine that keeps fewer proves nothing: a fiftieth of at_most unless given",
}
_KEYS: Final = tuple(_ABOUT)
_BOTH_WAYS: Final = "must be a whole number, or {at_most: 50000}"
#: What an editor checks.
_JSON_SCHEMA: Final = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": MAX_RATE_PER_S},
        {
            "type": "object",
            "properties": {
                key: {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_RATE_PER_S,
                    "description": about,
                }
                for key, about in _ABOUT.items()
            },
            "required": ["at_most"],
            "additionalProperties": False,
        },
    ]
}


class RateLimit(Part):
    """A rate that the run decides: the most that this machine keeps, up to ``at_most`` msg/s.

    ``at_least``: below it faults meet so few messages that the run proves nothing.
    """

    at_most: int
    at_least: int


def read_rate(value: Any) -> int | RateLimit:
    """The rate of a scenario file.

    Raises:
        ValueError: neither a number nor a limit, or out of range; what is allowed.
    """
    if isinstance(value, RateLimit):
        return value
    if isinstance(value, Mapping):
        return _limit(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(_BOTH_WAYS)
    if value < 0:
        raise ValueError("must be at least 0")
    if value > MAX_RATE_PER_S:
        raise ValueError(f"must be at most {MAX_RATE_PER_S}")
    return value


def _limit(value: Mapping[Any, Any]) -> RateLimit:
    for key, number in value.items():
        if key not in _KEYS:
            raise ValueError(
                f"{key}: unknown key; {did_you_mean(str(key), _KEYS, label='allowed')}"
            )
        if (
            isinstance(number, bool)
            or not isinstance(number, int)
            or not 1 <= number <= MAX_RATE_PER_S
        ):
            raise ValueError(f"{key} must be a whole number from 1 to {MAX_RATE_PER_S}")
    if "at_most" not in value:
        raise ValueError("at_most is missing")
    most = value["at_most"]
    least = value.get("at_least", max(1, most // _FLOOR_SHARE))
    if least > most:
        raise ValueError(f"at_least must be at most at_most ({most})")
    return RateLimit(at_most=most, at_least=least)


Rate = Annotated[int | RateLimit, BeforeValidator(read_rate), WithJsonSchema(_JSON_SCHEMA)]
