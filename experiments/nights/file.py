"""Reads suite files, every problem as one line with its place; finds those that come with
brokerstorm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic.json_schema import JsonSchemaValue

from experiments.nights.model import Suite
from harness.errors import UsageError, did_you_mean
from harness.rundir import Document
from harness.scenario.bundled import BUNDLED
from harness.validation import Location, dotted, file_schema, problems_of
from harness.yaml_lines import SCHEMA_KEY, parse, read

FOLDER: Final = BUNDLED / "suites"
SCHEMA_FILE: Final = FOLDER / "suite.schema.json"


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """A suite with the file it came from: problems found later name the line too."""

    suite: Suite
    path: Path
    text: str
    places: Mapping[Location, str]

    def error(self, location: Location, problem: str, *, hint: str = "") -> UsageError:
        """A problem of the nearest key that was written."""
        return UsageError(self.line(location, problem), hint=hint)

    def line(self, location: Location, problem: str) -> str:
        """A problem with its place: the one of the nearest key that was written."""
        found = (self.places.get(location[:length]) for length in range(len(location), -1, -1))
        place = next((text for text in found if text), str(self.path))
        return f"{place}: {dotted(location, 'suite')}: {problem}"

    def scenario(self, name: str) -> str:
        """Return what is run: the whole path of a file next to this one, otherwise the name."""
        beside = self.path.parent.absolute() / name
        return str(beside) if beside.is_file() else name


def bundled_suites() -> dict[str, Path]:
    """Ready suites, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}


def load_suite(name_or_path: str | Path) -> SuiteFile:
    """Read and check a suite.

    Raises:
        UsageError: one line with place, key, value and what is allowed.
    """
    path = _find(str(name_or_path))
    text = read(path)
    data, places = parse(path, text)
    data.pop(SCHEMA_KEY, None)
    return suite_of(path, text, data, places)


def suite_of(path: Path, text: str, data: Document, places: Mapping[Location, str]) -> SuiteFile:
    """A suite from the data of its file.

    Raises:
        UsageError: as `load_suite`.
    """
    try:
        suite = Suite.model_validate(data)
    except ValidationError as error:
        file = SuiteFile(Suite.model_construct(name="", cells=[]), path, text, places)
        raise UsageError.of_lines(
            file.line(*each) for each in problems_of(Suite, error, data)
        ) from None
    return SuiteFile(suite, path, text, places)


def _find(text: str) -> Path:
    known, path = bundled_suites(), Path(text)
    if text in known:
        return known[text]
    if path.is_file():
        return path
    what = "is a folder, not a suite file" if path.is_dir() else "no such suite"
    near = did_you_mean(path.name.removesuffix(".yaml"), known, label="suites")
    raise UsageError(f"{what}: {text!r}", hint=f"{near}; `brokerstorm new --suite FILE` writes one")


def suite_schema() -> JsonSchemaValue:
    """JSON Schema of a suite file."""
    made = file_schema(
        Suite, "suite", "One suite file; docs/reference/suite.md explains every key."
    )
    made["properties"][SCHEMA_KEY] = {"type": "string", "description": "for editors; ignored"}
    return made


def new_suite(path: Path) -> str:
    """A commented suite to edit, named after its file."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:100] or "mine"
    text = (FOLDER / "new.template").read_text()
    values = {"@NAME@": name, "@SCHEMA@": SCHEMA_FILE.name, "FILE": str(path)}
    return re.sub("|".join(values), lambda found: values[found[0]], text)
