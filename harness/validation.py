"""Data checked by a pydantic model: every problem as a key path and a sentence that a user can act
on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import ErrorDetails

from harness.durations import in_unit_of
from harness.errors import did_you_mean
from harness.rundir import DIALECT

Location = tuple[str | int, ...]
Model = type[BaseModel]
#: Passwords of URLs: before the last @, and as a parameter.
_URL_PASSWORD: Final = re.compile(r"(://[^\s:/@]*:)[^\s'\"]*(?=@)")
_URL_PARAMETER: Final = re.compile(
    r"([?&][^=&\s]*(?:pass|pwd|secret|token)[^=&\s]*=)[^&\s'\"]*", re.IGNORECASE
)
#: Keys of `harness.connections` and of scenarios whose value must not be a secret, but may be one.
_SECRET_KEYS: Final = frozenset({"password", "key_password", "token", "client_secret"})


def file_schema(model: Model, what: str, description: str) -> JsonSchemaValue:
    """The published JSON Schema of a file that users write."""
    head = {"$schema": DIALECT, "title": f"brokerstorm {what}", "description": description}
    return head | model.model_json_schema(mode="validation") | head


def problems_of(model: Model, error: ValidationError, data: Any) -> list[tuple[Location, str]]:
    """Return every error as (key path, sentence), one for each key, in the order of the model.

    A required key that is misspelt is unknown and missing: only the first is returned.
    """
    errors: Sequence[ErrorDetails] = error.errors(include_url=False)
    misspelt = {each["loc"][:-1] for each in errors if each["type"] == "extra_forbidden"}
    found: dict[Location, str] = {}
    for each in errors:
        if each["type"] == "missing" and each["loc"][:-1] in misspelt:
            continue
        location, sentence = _explain(model, each, data)
        found.setdefault(location, sentence)
    return list(found.items())


def shown(value: Any) -> str:
    """A value in an error message: one short line, in which URLs have no password."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = " ".join(repr(value).split())
    for pattern in (_URL_PASSWORD, _URL_PARAMETER):
        text = pattern.sub(r"\1...", text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def dotted(location: Location, whole: str = "scenario") -> str:
    """``load.producers.p.topics[0]``."""
    text = ""
    for key in location:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text or whole


def _explain(model: Model, error: ErrorDetails, data: Any) -> tuple[Location, str]:
    location = _existing(tuple(error["loc"]), data, keep_last=error["type"] == "missing")
    if error["type"] == "extra_forbidden":
        return (
            location,
            f"unknown key{value_text(location, data)}; {_allowed_keys(model, location)}",
        )
    if error["loc"] and error["loc"][-1] == "[key]":
        return location, "a name holds letters, digits, . _ - and starts with a letter or digit"
    return location, f"{_sentence(model, error, location, data)}{value_text(location, data)}"


_SENTENCES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text (put it in quotes)",
    "bool_type": "must be true or false",
    "model_type": "must be a mapping of key: value",
    "dict_type": "must be a mapping of key: value",
    "list_type": "must be a list",
    "missing": "is missing",
    "invalid_key": "keys must be text (put them in quotes)",
    "string_pattern_mismatch": "must hold letters, digits, . _ - and start with a letter or digit",
}


def _value_at(location: Location, data: Any) -> Any:
    """Return the value of the data at a place; None if there is none."""
    for key in location:
        has = (isinstance(data, dict) and key in data) or (
            isinstance(data, list) and isinstance(key, int) and key < len(data)
        )
        if not has:
            return None
        data = data[key]
    return data


def _sentence(model: Model, error: ErrorDetails, location: Location, data: Any) -> str:
    context = error.get("ctx", {})
    kind = error["type"]
    if isinstance(context.get("error"), ValueError):
        return str(context["error"])
    if kind == "literal_error":
        return f"must be {context['expected']}"
    if get_origin(_annotation_at(model, location)) in {Union, UnionType}:
        sentence = "must be text, a number, or true or false"
        if not isinstance(_value_at(location, data), dict):
            return sentence
        return f"{sentence} (keys of a block are written with a dot: {location[-1]}.NAME)"
    bounds = {
        "greater_than": "gt",
        "greater_than_equal": "ge",
        "less_than": "lt",
        "less_than_equal": "le",
    }
    if kind in bounds:
        words = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}[
            bounds[kind]
        ]
        limit, typed = context[bounds[kind]], _value_at(location, data)
        if isinstance(typed, str):  # a duration, which the model has in seconds
            return f"must be {words} {in_unit_of(typed, limit)}"
        return f"must be {words} {int(limit) if limit == int(limit) else limit}"
    if kind == "too_short":
        return f"needs at least {context['min_length']}"
    return _SENTENCES.get(kind, str(error["msg"]))


def _allowed_keys(root: Model, location: Location) -> str:
    model = _annotation_at(root, location[:-1])
    names = (
        sorted(_fields(model)) if isinstance(model, type) and issubclass(model, BaseModel) else []
    )
    allowed = did_you_mean(str(location[-1]), names, label="allowed")
    #: A model may know words that users bring from elsewhere.
    hint_of: Callable[[object], str] = getattr(root, "hint_of", lambda _: "")
    hint = hint_of(location[-1])
    return f"{hint}; {allowed}" if hint else allowed


def _annotation_at(model: Model, location: Location) -> Any:
    annotation: Any = model
    for key in location:
        annotation = inner_type(annotation, key)
    return annotation


def inner_type(annotation: Any, key: str | int) -> Any:
    """The type below ``key`` of a model, dict or list type; None = anything."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        found = _fields(annotation).get(str(key))
        return _needed(found.annotation) if found else None
    if get_origin(annotation) in {dict, list}:
        return get_args(annotation)[-1]
    return None


def _fields(model: Model) -> dict[str, FieldInfo]:
    """By the key that users write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _needed(annotation: Any) -> Any:
    """``X`` of ``X | None``: a key that may be left out is checked like any other when it is
    there."""
    if get_origin(annotation) not in {Union, UnionType}:
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 else annotation


def _existing(location: Location, data: Any, *, keep_last: bool) -> Location:
    """Without what pydantic adds for unions and keys: the part of the path that the data has."""
    kept: list[str | int] = []
    for key in location:
        has = (isinstance(data, dict) and key in data) or (
            isinstance(data, list) and isinstance(key, int) and key < len(data)
        )
        if not has:
            return (*kept, key) if keep_last else tuple(kept)
        kept.append(key)
        data = data[key]
    return tuple(kept)


def value_text(location: Location, data: Any) -> str:
    """``, got ...``: what the data has there; empty if nothing, for the whole, and where somebody
    may have written a secret."""
    if not location or _SECRET_KEYS.intersection(location):
        return ""
    for key in location:
        has = (isinstance(data, dict) and key in data) or (
            isinstance(data, list) and isinstance(key, int)
        )
        if not has:
            return ""
        data = data[key]
    return f", got {shown(data)}"


def is_one_line(text: str) -> bool:
    """Whether a line of a property file is one for its reader too: no line break of any kind (a
    carriage return is one), and no backslash at the end, which joins the next line to it
    (java.util.Properties)."""
    return len(text.splitlines()) == 1 and text.splitlines()[0] == text and not text.endswith("\\")
