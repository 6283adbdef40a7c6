"""The JSON Schema of scenario files that editors read, and files to start from."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic.json_schema import JsonSchemaValue

from harness.errors import UsageError, did_you_mean
from harness.scenario.bundled import BUNDLED, SCHEMA_FILE, bundled_bugs, bundled_scenarios
from harness.scenario.model import Scenario
from harness.validation import file_schema
from harness.yaml_lines import SCHEMA_KEY


def scenario_schema(faults: JsonSchemaValue) -> JsonSchemaValue:
    """JSON Schema of a scenario file.

    Args:
        faults: the schema of the ``faults`` key, of `faults.schedule.reference`; this module knows no kind.
    """
    about = "One scenario file; docs/reference/scenario.md explains every key."
    made = file_schema(Scenario, "scenario", about)
    made["properties"]["faults"] = faults
    made["properties"][SCHEMA_KEY] = {"type": "string", "description": "for editors; ignored"}
    return made


def new_scenario(path: Path, system: str) -> str:
    """A commented scenario of a system, to edit, named after its file."""
    text = (BUNDLED / "new" / f"{system}.template").read_text()
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
    text = re.sub(rf"^(#  +brokerstorm \w+ ){re.escape(ready)}\b", rf"\g<1>{path}", text, flags=re.MULTILINE)
    return re.sub(r"^name: .*", f"name: {_name_of(path)}", text, count=1, flags=re.MULTILINE)


def _name_of(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:100] or "mine"
