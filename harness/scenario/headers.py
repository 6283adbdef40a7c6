"""Headers of messages as people write them: ``{tenant: acme, id: {bytes: 32}, x: {bytes: 20, count:
5}}``; or with another value in each message: ``{trace: {template: "t-{id}"}}``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from harness.scenario.payload import check_places

MAX_BYTES: Final = 100_000
MAX_COUNT: Final = 1000
_NAME: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9._-]{0,99}$")
#: What JMS takes for the name of a property.
_IDENTIFIER: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_FORM: Final = "must be a text, or {bytes: 32}, or {bytes: 20, count: 5}, or {template: 't-{id}'}"
_MOST_TEMPLATE: Final = 1000
#: A text, or ``{"template": text}``.
Value = str | dict[str, str]
#: What an editor checks.
_JSON_SCHEMA: Final = {
    "type": "object",
    "propertyNames": {"pattern": _NAME.pattern},
    "additionalProperties": {
        "anyOf": [
            {"type": "string", "maxLength": MAX_BYTES},
            {
                "type": "object",
                "required": ["template"],
                "properties": {
                    "template": {
                        "type": "string",
                        "maxLength": _MOST_TEMPLATE,
                        "description": "its value, with the places of a payload's template",
                    }
                },
                "additionalProperties": False,
            },
            {
                "type": "object",
                "required": ["bytes"],
                "properties": {
                    "bytes": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": MAX_BYTES,
                        "description": "of its value, letters and digits that stay the same",
                    },
                    "count": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MAX_COUNT,
                        "description": "number of such headers: `x` means `x_1`, `x_2` ...",
                    },
                },
                "additionalProperties": False,
            },
        ]
    },
}


def read_headers(value: Any) -> dict[str, Value]:
    """Name and value of each header.

    Raises:
        ValueError: not such a mapping; what is allowed.
    """
    if not isinstance(value, Mapping):
        raise ValueError(
            "must be a mapping of names to values, such as {tenant: acme, trace: {bytes: 32}}"
        )
    found: dict[str, Value] = {}
    for name, asked in value.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise ValueError(
                f"the name {name!r} must be letters, digits, . _ or -, and begin with a letter"
            )
        own: dict[str, Value] = {name: asked} if isinstance(asked, str) else _made(name, asked)
        if twice := sorted(found.keys() & own.keys()):
            raise ValueError(f"{twice[0]} is there twice, once by a count")
        found |= own
    if len(found) > MAX_COUNT or sum(map(len, fixed_headers(found).values())) > MAX_BYTES:
        raise ValueError(f"at most {MAX_COUNT} headers with {MAX_BYTES:,} bytes in all")
    return found


def fixed_headers(headers: Mapping[str, Value]) -> dict[str, str]:
    """Return the headers that are the same in every message."""
    return {name: value for name, value in headers.items() if isinstance(value, str)}


def header_templates(headers: Mapping[str, Value]) -> dict[str, str]:
    """Return the templates of the headers whose values differ by message."""
    return {name: value["template"] for name, value in headers.items() if isinstance(value, dict)}


def _made(name: str, asked: Any) -> dict[str, Value]:
    if isinstance(asked, Mapping) and set(asked) == {"template"}:
        return {name: {"template": _template(name, asked["template"])}}
    if not isinstance(asked, Mapping) or "bytes" not in asked or asked.keys() - {"bytes", "count"}:
        raise ValueError(f"{name} {_FORM}")
    size, count = _number(name, "bytes", asked["bytes"], 0, MAX_BYTES), asked.get("count", 0)
    if not count and "count" not in asked:
        return {name: _text(name, size)}
    names = [f"{name}_{k}" for k in range(1, _number(name, "count", count, 1, MAX_COUNT) + 1)]
    return {each: _text(each, size) for each in names}


def _template(name: str, text: Any) -> str:
    if not isinstance(text, str) or "\0" in text or len(text) > _MOST_TEMPLATE:
        raise ValueError(f"template of {name} must be a text such as 't-{{id}}'")
    try:
        check_places(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return text


def _number(name: str, key: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{key} of {name} must be a whole number from {least} to {most:,}")
    return value


def _text(name: str, size: int) -> str:
    """A value like an id: the same in every message and run."""
    made = "".join(
        hashlib.sha256(f"{name}/{k}".encode()).hexdigest() for k in range(-(-size // 64))
    )
    return made[:size]


def header_names(headers: Mapping[str, Value]) -> str:
    """Return which header names a client must be able to use: none, identifiers, or any."""
    if not headers:
        return "none"
    return "identifiers" if all(map(_IDENTIFIER.match, headers)) else "any"


Headers = Annotated[dict[str, Value], BeforeValidator(read_headers), WithJsonSchema(_JSON_SCHEMA)]
