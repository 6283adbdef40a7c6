"""The JSON Schema of scenario files that editors read, and files to start from."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

from pydantic.json_schema import JsonSchemaValue

from harness.durations import TEXT_PATTERN
from harness.errors import UsageError, did_you_mean
from harness.scenario.bundled import BUNDLED, SCHEMA_FILE, bundled_bugs, bundled_scenarios
from harness.scenario.model import Scenario
from harness.validation import file_schema
from harness.yaml_lines import SCHEMA_KEY

#: A key is written once if so many places have it and its text is longer than a reference.
_SHARED_BY: Final = 2
_LONG: Final = 60
_DURATION_TEXT: Final = {"type": "string", "pattern": TEXT_PATTERN}


def scenario_schema(faults: JsonSchemaValue) -> JsonSchemaValue:
    """JSON Schema of a scenario file.

    Args:
        faults: the schema of the ``faults`` key, of `faults.schedule.reference`; this module knows
            no kind.
    """
    about = "One scenario file; docs/reference/scenario.md explains every key."
    made = file_schema(Scenario, "scenario", about)
    made["properties"]["faults"] = faults
    made["properties"][SCHEMA_KEY] = {"type": "string", "description": "for editors; ignored"}
    return _with_one_duration(_with_shared_keys(_without_made_titles(made)))


def compact_schema(text: str) -> str:
    """A published schema as `new` writes it next to a scenario: the same without line breaks."""
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) + "\n"


def _without_made_titles(schema: JsonSchemaValue) -> JsonSchemaValue:
    """The schema without the titles that pydantic makes of the keys' names: they say nothing."""

    def untitled(name: str, key: JsonSchemaValue) -> None:
        if key.get("title") == name.replace("_", " ").title():
            del key["title"]

    made: JsonSchemaValue = copy.deepcopy(schema)
    _visit_keys(made, untitled)
    return made


def _with_shared_keys(schema: JsonSchemaValue) -> JsonSchemaValue:
    """The schema with each key that many kinds of faults share written once, below ``$defs``.

    Written out for every kind they were two thirds of the file.
    """
    seen: Counter[str] = Counter()
    _visit_keys(schema, lambda name, key: seen.update([_text(key)]))
    shared = {text: "" for text, times in seen.items() if times >= _SHARED_BY and len(text) > _LONG}
    defs: JsonSchemaValue = {**schema.get("$defs", {})}

    def referred(name: str, key: JsonSchemaValue) -> JsonSchemaValue | None:
        text = _text(key)
        if text not in shared:
            return None
        if not shared[text]:
            shared[text] = next(
                each for number in count(1) if (each := f"{name}-{number}") not in defs
            )
            defs[shared[text]] = key
        return {"$ref": f"#/$defs/{shared[text]}"}

    made: JsonSchemaValue = copy.deepcopy(schema)
    _visit_keys(made, referred)
    return {**made, "$defs": defs}


def _with_one_duration(schema: JsonSchemaValue) -> JsonSchemaValue:
    """The schema with the forms of a duration, which a hundred keys allow, written once: its text,
    and the choice between seconds within bounds and that text."""
    defs: JsonSchemaValue = {"duration": _DURATION_TEXT}
    names: dict[str, str] = {}

    def changed(part: Any) -> Any:
        if isinstance(part, list):
            return [changed(each) for each in part]
        if not isinstance(part, dict):
            return part
        if part == _DURATION_TEXT:
            return {"$ref": "#/$defs/duration"}
        made = {word: changed(value) for word, value in part.items()}
        choice = made.get("anyOf", [])
        if len(choice) != 2 or choice[1] != {"$ref": "#/$defs/duration"}:
            return made
        name = names.setdefault(_text(choice), f"seconds-{len(names) + 1}")
        defs[name] = {"anyOf": choice}
        del made["anyOf"]
        return {"$ref": f"#/$defs/{name}", **made}

    made: JsonSchemaValue = changed(schema)
    return {**made, "$defs": {**made["$defs"], **defs}}


def _visit_keys(part: Any, visit: Callable[[str, JsonSchemaValue], JsonSchemaValue | None]) -> None:
    """Call ``visit`` with every key below ``properties``; what it returns takes the place of the
    key."""
    if isinstance(part, list):
        for each in part:
            _visit_keys(each, visit)
    if not isinstance(part, dict):
        return
    for word, value in part.items():
        if word == "properties" and isinstance(value, dict):
            for name, key in value.items():
                if isinstance(key, dict) and (instead := visit(name, key)) is not None:
                    value[name] = instead
                else:
                    _visit_keys(key, visit)
        else:
            _visit_keys(value, visit)


def _text(key: JsonSchemaValue) -> str:
    return json.dumps(key, sort_keys=True)


def new_scenario(path: Path, kind: str) -> str:
    """A commented scenario to edit, named after its file. ``kind``: a system, or application."""
    text = (BUNDLED / "new" / f"{kind}.template").read_text()
    values = {"@NAME@": _name_of(path), "@SCHEMA@": SCHEMA_FILE.name, "FILE": str(path)}
    return re.sub("|".join(values), lambda found: values[found[0]], text)


def copied_scenario(path: Path, ready: str) -> str:
    """A scenario or known bug that comes with brokerstorm, to edit, named after its file.

    Raises:
        UsageError: there is none of that name.
    """
    known = bundled_scenarios() | bundled_bugs()
    if ready not in known:
        raise UsageError(f"no such scenario: {ready!r}", hint=did_you_mean(ready, known))
    text = known[ready].read_text()
    text = re.sub(r"(?<=\$schema=)\S+", SCHEMA_FILE.name, text, count=1)
    text = re.sub(
        rf"^(#  +brokerstorm \w+ ){re.escape(ready)}\b", rf"\g<1>{path}", text, flags=re.MULTILINE
    )
    return re.sub(r"^name: .*", f"name: {_name_of(path)}", text, count=1, flags=re.MULTILINE)


def _name_of(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:100] or "mine"
