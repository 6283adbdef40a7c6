"""Describes the registered kinds: for `list faults`, the scenario's JSON Schema and the docs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic.fields import FieldInfo

from faults.kinds import KINDS
from faults.kit.injection import FaultKind
from faults.kit.params import Params, Schedule, in_units, parse_size
from faults.kit.site import ability_text
from faults.schedule.mix import MixParams, Weight
from harness.durations import parse_seconds

_MIX_ABOUT = "Random draws from a weighted set of the others, with quiet periods in which all is healed."
_DESCRIPTION = "faults to inject while the load runs; see docs/reference/faults.md"


def schema() -> dict[str, Any]:
    """JSON Schema of a scenario's ``faults`` key: one alternative a kind, no references."""
    return {
        "type": "array",
        "description": _DESCRIPTION,
        "items": {"oneOf": [*(_step_schema(kind) for kind in KINDS.values()), _mix_schema()]},
    }


def kinds() -> list[dict[str, Any]]:
    """Kind, one line about it, what it needs of the cluster, its own keys: for people and ``--json``."""
    rows = [
        {
            "kind": kind.kind,
            "about": kind.doc(),
            "abilities": [ability_text(ability) for ability in kind.abilities],
            "needs": sorted(kind.needs),
            "keys": _keys(kind.params),
        }
        for kind in KINDS.values()
    ]
    mix = {"kind": "mix", "about": _MIX_ABOUT, "abilities": [], "needs": [], "keys": _keys(MixParams)}
    return [*rows, mix]


def _mix_schema() -> dict[str, Any]:
    """A mix: a step whose only key is ``mix``."""
    inner = _properties(MixParams)
    alternatives = [
        {
            "type": "object",
            "title": kind.kind,
            "properties": {"fault": {"const": kind.kind}, **_properties(Weight), **_properties(kind.params)},
            "required": ["fault"],
            "additionalProperties": False,
        }
        for kind in KINDS.values()
    ]
    inner["of"] = {**inner["of"], "items": {"oneOf": alternatives}}
    keys = {
        "type": "object",
        "properties": inner,
        "required": ["of", "every"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "title": "mix",
        "description": _MIX_ABOUT,
        "properties": {"mix": keys},
        "required": ["mix"],
        "additionalProperties": False,
    }


def _step_schema(kind: FaultKind[Any]) -> dict[str, Any]:
    properties = {**_properties(Schedule), **_properties(kind.params)}
    return {
        "type": "object",
        "title": kind.kind,
        "description": kind.doc(),
        "properties": {"fault": {"const": kind.kind}, **properties},
        "required": ["fault"],
        "oneOf": [{"required": ["at"]}, {"required": ["every"]}],
        "additionalProperties": False,
    }


def _properties(model: type[Params]) -> dict[str, Any]:
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


def _keys(model: type[Params]) -> list[dict[str, Any]]:
    keys = []
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else field.get_default(call_default_factory=True)
        row = {"key": field.alias or name, "default": default, "unit": _unit(field)}
        keys.append({**row, "about": field.description or ""})
    return keys


def _unit(field: FieldInfo) -> str:
    """``s`` of a duration, ``bytes`` of a size, else empty."""
    readers = {getattr(mark, "func", None) for mark in [*field.metadata, *_marks(field.annotation)]}
    return "s" if parse_seconds in readers else "bytes" if parse_size in readers else ""


def _marks(annotation: Any) -> Iterator[Any]:
    """Annotations of a type and of the types in it (``Seconds | None``, ``tuple[Seconds, Seconds]``)."""
    yield from getattr(annotation, "__metadata__", ())
    for part in get_args(annotation):
        yield from _marks(part)


def reference_page() -> str:
    """docs/reference/faults.md."""
    lines = [
        "# Faults",
        "",
        "Made from the registry by `faults.schedule.reference.reference_page`; do not edit.",
        "",
        "A scenario's `faults:` is a list of steps. Times count from the start of load.",
        "",
        "```yaml",
        "faults:",
        "  - {fault: kill, target: leader-of:orders, at: 10s, for: 5s}",
        "  - {fault: leader-move, topic: orders, partitions: 6, every: 5s, jitter: 1s, from: 5s, until: 40s}",
        "  - {fault: leader-move, topic: orders, at: 20s, storm: {times: 3, gap: [20ms, 200ms]}}",
        "  - mix: {of: [{fault: kill, weight: 2}, {fault: pause, for: 3s}], every: 8s, jitter: 2s}",
        "```",
        "",
        "`brokerstorm plan SCENARIO` prints every firing with its time and the commands that it would send.",
        "What faults on CPU, memory and disk need of the machine, and what to expect of them:",
        "[resource faults](../explanation/resource-faults.md).",
        "",
        "## When: keys of every step",
        "",
        *_table(_keys(Schedule)),
        "",
        "A step needs either `at` or `every`. Every random choice comes from the run's seed, the step's",
        "place in the list and the number of the firing. A firing that meets a node which another fault",
        "still holds, or that would take a second node away without `together: true`, is skipped and",
        "recorded, after `wait`.",
        *_mix_page(),
    ]
    for kind in KINDS.values():
        lines += ["", f"## {kind.kind}", "", kind.doc(), ""]
        lines += [*_table(_keys(kind.params)), ""]
        able = "; ".join(map(ability_text, kind.abilities))
        lines.append(f"The cluster must be able to: {able}." if able else "Needs nothing of the cluster.")
        if kind.needs:
            lines.append(f"It must be started with {', '.join(f'`{need}`' for need in sorted(kind.needs))}.")
    return "\n".join(lines) + "\n"


def _mix_page() -> list[str]:
    return [
        "",
        "## mix: random draws",
        "",
        _MIX_ABOUT,
        "",
        "```yaml",
        "  - mix:",
        "      of:",
        "        - {fault: kill, target: random, for: 5s, weight: 3}",
        "        - {fault: leader-move, topic: orders, weight: 5}",
        "      every: 4s",
        "      jitter: 2s",
        "      quiet: {every: 30s, for: 10s}",
        "      from: 5s",
        "```",
        "",
        *_table(_keys(MixParams)),
        "",
        "A draw becomes a firing with its place in the timeline before the run starts: the same seed gives",
        "the same mix, and `run --replay` repeats it. What could not be healed before the next quiet period",
        "or the end of the load is not drawn, nor is a fault that takes a node away while another one does.",
        "Kinds of which nobody knows how long they take (rolling-restart, unload-storm) cannot be part of a",
        "mix.",
    ]


def _table(keys: list[dict[str, Any]]) -> list[str]:
    rows = [f"| `{key['key']}` | {_default(key)} | {key['about']} |" for key in keys]
    return ["| key | default | meaning |", "|---|---|---|", *rows]


def _default(key: Mapping[str, Any]) -> str:
    value, unit = key["default"], key["unit"]
    if value in (None, "", {}, []):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return " to ".join(_default({"default": each, "unit": unit}) for each in value)
    if unit == "bytes":
        return in_units(value)
    number = f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return f"{number} {unit}".strip()
