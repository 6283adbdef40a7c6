"""Describes the registered kinds: for `list faults`, the scenario's JSON Schema and the docs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue

from faults.kinds import KINDS
from faults.kit.cluster_view import ability_text
from faults.kit.injection import FaultKind
from faults.kit.params import FaultSchedule, Params
from faults.schedule.mix import MixParams, Weight
from harness.durations import parse_seconds
from harness.sizes import parse_size

MIX_ABOUT = "Random faults from a weighted set, with quiet periods in which all faults are undone."
_DESCRIPTION = "faults to inject while the load runs; see docs/reference/faults.md"


def schema() -> JsonSchemaValue:
    """JSON Schema of a scenario's ``faults`` key, without references.

    The kind decides by which schema a step is read: a typo in a kind or a key is one message of an
    editor, not one for every kind.
    """
    step = {
        "required": ["fault"],
        "allOf": [_when(kind, _step_schema(kind)) for kind in KINDS.values()],
    }
    items = {
        "type": "object",
        "properties": {"fault": _names(), "mix": {"type": "object", "description": MIX_ABOUT}},
        "if": {"required": ["mix"]},
        "then": _mix_schema(),
        "else": {**step, **_AT_OR_EVERY},
    }
    return {"type": "array", "description": _DESCRIPTION, "items": items}


#: What holds for every step that is not a mix, whatever its kind: it is written once.
_AT_OR_EVERY: Final[JsonSchemaValue] = {
    "if": {"required": ["every"]},
    "then": {"properties": {"at": False}},
    "else": {"required": ["at"]},
}


def _names() -> JsonSchemaValue:
    return {
        "enum": list(KINDS),
        "enumDescriptions": [kind.doc() for kind in KINDS.values()],
        "description": "the kind of fault: one of `brokerstorm list faults`",
    }


def _when(kind: FaultKind[Any], then: JsonSchemaValue) -> JsonSchemaValue:
    """Applies ``then`` to a step of that kind."""
    return {
        "if": {"properties": {"fault": {"const": kind.kind}}, "required": ["fault"]},
        "then": then,
    }


@dataclass(frozen=True, slots=True)
class FaultKey:
    """A key of a fault step. ``default``: "required" if it has none; ``unit``: ``s``, ``bytes`` or
    empty."""

    key: str
    default: Any
    unit: str
    about: str


@dataclass(frozen=True, slots=True)
class FaultAbout:
    """A kind, one line about it, what it needs of the cluster, its own keys."""

    kind: str
    about: str
    abilities: list[str]
    needs: list[str]
    keys: list[FaultKey]


def kinds() -> list[FaultAbout]:
    """For people and ``--json``."""
    rows = [
        FaultAbout(
            kind.kind,
            kind.doc(),
            [ability_text(ability) for ability in kind.abilities],
            sorted(kind.needs),
            keys(kind.params),
        )
        for kind in KINDS.values()
    ]
    return [*rows, FaultAbout("mix", MIX_ABOUT, [], [], keys(MixParams))]


def _mix_schema() -> JsonSchemaValue:
    """A mix: a step whose only key is ``mix``."""
    inner = _properties(MixParams)
    weighted = [
        _when(kind, _object(kind, {**_properties(Weight), **_properties(kind.params)}))
        for kind in KINDS.values()
    ]
    of = {
        "type": "object",
        "properties": {"fault": _names()},
        "required": ["fault"],
        "allOf": weighted,
    }
    inner["of"] = {**inner["of"], "items": of}
    keys = {
        "type": "object",
        "properties": inner,
        "required": ["of", "every"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "title": "mix",
        "description": MIX_ABOUT,
        "properties": {"mix": {**keys, "description": MIX_ABOUT}},
        "required": ["mix"],
        "additionalProperties": False,
    }


def _step_schema(kind: FaultKind[Any]) -> JsonSchemaValue:
    return _object(kind, {**_properties(FaultSchedule), **_properties(kind.params)})


def _object(kind: FaultKind[Any], properties: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of one kind: these keys and no others. Its key ``fault`` describes it."""
    return {
        "title": kind.kind,
        "properties": {"fault": {"const": kind.kind, "description": kind.doc()}, **properties},
        "additionalProperties": False,
    }


def _properties(model: type[Params]) -> JsonSchemaValue:
    """A model's properties with every reference replaced by what it refers to."""
    document = model.model_json_schema(by_alias=True)
    definitions = document.get("$defs", {})

    def inline(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                return inline(definitions[part["$ref"].rpartition("/")[2]])
            return {key: inline(value) for key, value in part.items() if key != "title"}
        return [inline(value) for value in part] if isinstance(part, list) else part

    return {key: inline(value) for key, value in document.get("properties", {}).items()}


def keys(model: type[Params]) -> list[FaultKey]:
    """Each parameter."""
    rows = []
    for name, field in model.model_fields.items():
        default = (
            "required" if field.is_required() else field.get_default(call_default_factory=True)
        )
        rows.append(FaultKey(field.alias or name, default, unit_of(field), field.description or ""))
    return rows


def unit_of(field: FieldInfo) -> str:
    """Return `s` for a duration, `bytes` for a size, and an empty text for other keys."""
    readers = {getattr(mark, "func", None) for mark in [*field.metadata, *_marks(field.annotation)]}
    return "s" if parse_seconds in readers else "bytes" if parse_size in readers else ""


def _marks(annotation: Any) -> Iterator[Any]:
    """Annotations of a type and of the types in it (``Seconds | None``, ``tuple[Seconds,
    Seconds]``)."""
    yield from getattr(annotation, "__metadata__", ())
    for part in get_args(annotation):
        yield from _marks(part)
