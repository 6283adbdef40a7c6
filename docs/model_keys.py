"""The keys of a file that users write, from the pydantic model that checks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, WithJsonSchema
from pydantic_core import PydanticUndefined

from docs.markdown import item
from harness.scenario.rate import MAX_RATE_PER_S


def models(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every model in a model, with the path of its keys."""
    yield path, model
    for name, field in model.model_fields.items():
        if any(isinstance(each, WithJsonSchema) for each in field.metadata):
            continue  # written in a form of its own, which its description shows
        inner, suffix = _needed(field.annotation), ""
        if get_origin(inner) in (dict, list):
            suffix = ".NAME" if get_origin(inner) is dict else "[]"
            inner = get_args(inner)[-1]
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from models(inner, f"{path}.{name}{suffix}".lstrip("."))


def _needed(annotation: Any) -> Any:
    """``X`` of ``X | None``."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if isinstance(annotation, UnionType) and len(kinds) == 1 else annotation


def key_item(name: str, field: Any) -> list[str]:
    """A key as an item of a list: type, default and what it means."""
    name = field.alias or name
    default = _default(field)
    facts = (
        f"{_type(field)}, default {default}"
        if default and not field.is_required()
        else _type(field)
    )
    required = ", **required**" if field.is_required() else ""
    return item(f"`{name}` ({facts}{required}): {field.description or ''}")


#: What is written where a function of ours reads it; the longer of two names that begin alike
#: first.
_FORMS = {
    "parse_seconds": "duration",
    "read_seconds_limit": "duration, or mapping",
    "read_ratio_limit": "ratio, or mapping",
    "read_ratio": "ratio from 0 to 1",
    "read_rate": f"whole number from 0 to {MAX_RATE_PER_S:,}, or mapping",
    "read_headers": "mapping",
    "payload_sizes": "whole number, range, or mapping",
}


def _type(field: Any) -> str:
    annotation = _needed(field.annotation)
    for reader, words in _FORMS.items():
        if reader in repr(field.metadata):
            return words
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict:
        return "mapping"
    if origin is list:
        return "list"
    if arguments and all(isinstance(each, str) for each in arguments):
        return " or ".join(f"`{each}`" for each in arguments if each)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    plain = {int: "whole number", float: "number", bool: "`true` or `false`", str: "text"}
    return plain.get(annotation, "text") + _bounds(field.metadata)


def _bounds(metadata: list[Any]) -> str:
    low = next((m.ge for m in metadata if hasattr(m, "ge")), None)
    above = next((m.gt for m in metadata if hasattr(m, "gt")), None)
    high = next((m.le for m in metadata if hasattr(m, "le")), None)
    parts = [
        f"from {low:,}" if low is not None else "",
        f"above {above:,}" if above is not None else "",
        f"to {high:,}" if high is not None else "",
    ]
    return "".join(f" {part}" for part in parts if part)


def _default(field: Any) -> str:
    if field.is_required():
        return ""
    value = field.default
    if value is PydanticUndefined:
        value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ("", {}, []):
        return ""
    if isinstance(value, dict):
        return ", ".join(f"one named `{name}`" for name in value)
    if isinstance(value, float) and "parse_seconds" in repr(field.metadata):
        return f"`{value:g}s`"
    return f"`{json.dumps(value)}`" if not isinstance(value, str) else f"`{value}`"
