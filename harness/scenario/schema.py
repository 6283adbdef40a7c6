"""The JSON Schema of scenario files that editors read, and a file to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from harness.scenario.bundled import BUNDLED, SCHEMA_FILE
from harness.scenario.file import SCHEMA_KEY
from harness.scenario.model import Scenario

TEMPLATE_FILE: Final = BUNDLED / "new.template"
_ID: Final = "https://json-schema.org/draft/2020-12/schema"


def scenario_schema(faults: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a scenario file.

    Args:
        faults: the schema of the ``faults`` key, of `faults.schedule.reference`; this module knows no kind.
    """
    document = Scenario.model_json_schema(mode="validation")
    properties = document["properties"]
    properties["faults"] = faults
    properties[SCHEMA_KEY] = {"type": "string", "description": "for editors; ignored"}
    return {
        "$schema": _ID,
        "title": "brokerstorm scenario",
        "description": "One scenario file; docs/reference/scenario.md explains every key.",
        **{key: value for key, value in document.items() if key not in {"title", "description"}},
    }


def new_scenario(name: str) -> str:
    """A commented scenario to edit, named after its file."""
    fitting = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:100] or "mine"
    text = TEMPLATE_FILE.read_text()
    return text.replace("@NAME@", fitting).replace("@SCHEMA@", str(Path(SCHEMA_FILE)))
