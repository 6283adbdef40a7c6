"""The published JSON Schema of connection files, and a connection file to edit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic.json_schema import JsonSchemaValue

from harness.connections.file import ConnectionFile
from harness.systems import SYSTEMS
from harness.validation import file_schema

_FOLDER: Final = Path(__file__).resolve().parents[2] / "scenarios"
SCHEMA_FILE: Final = _FOLDER / "connection.schema.json"
TEMPLATE: Final = _FOLDER / "connection.template"
_PASSWORD: Final = "user: storm\n#   password: {env: STORM_PASSWORD} # or {file: password.txt}"
_PROOFS: Final = {"token": "token: {env: STORM_TOKEN}     # or {file: token.txt}"}


def connection_schema() -> JsonSchemaValue:
    """JSON Schema of a connection file."""
    about = "One connection file; docs/howto/your-own-cluster.md explains it."
    return file_schema(ConnectionFile, "connection", about)


def new_connection(path: Path, system: str) -> str:
    """A commented connection file to edit.

    Raises:
        UsageError: clusters of this system that others started cannot be asked.
    """
    about = SYSTEMS[system]
    about.required_external()
    values = {
        "@SCHEMA@": SCHEMA_FILE.name,
        "@SYSTEM@": system,
        "@ASK@": about.ask_id,
        "@BOOTSTRAP@": about.bootstrap_form,
        "@ADMIN@": about.admin_form,
        "@MECHANISMS@": ", ".join(about.mechanisms),
        "@MECHANISM@": about.mechanisms[0],
        "@PROOF@": _PROOFS.get(about.mechanisms[0], _PASSWORD),
        "@NAMES@": about.made_form,
        "@COPIES@": about.copies_default,
        "FILE": str(path),
    }
    text = re.sub("|".join(values), lambda found: values[found[0]], TEMPLATE.read_text())
    absent = [] if about.admin_form else ["admin_url"]
    absent += [] if about.has_cookie else ["# cookie"]
    return re.sub(rf"(?m)^({'|'.join(absent)}):.*\n", "", text) if absent else text
