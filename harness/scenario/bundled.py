"""The scenarios that come with brokerstorm, and where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BUNDLED: Final = Path(__file__).resolve().parents[2] / "scenarios"
SCHEMA_FILE: Final = BUNDLED / "scenario.schema.json"
IMPORT_SCHEMA_FILE: Final = BUNDLED / "import.schema.json"


def bundled_scenarios() -> dict[str, Path]:
    """Ready scenarios, by name."""
    return {path.stem: path for path in sorted(BUNDLED.glob("*.yaml"))}


def bundled_bugs() -> dict[str, Path]:
    """Known bugs, by name: scenarios with a `bug` key."""
    return {path.stem: path for path in sorted((BUNDLED / "bugs").glob("*.yaml"))}


def name_of(name_or_path: str) -> str:
    """The name of a scenario, whether the user gave the name or a path; names may have dots."""
    return Path(name_or_path).name.removesuffix(".yaml").removesuffix(".yml")


def from_anywhere(name_or_path: str) -> str:
    """Return the argument in a form that means the same from any folder: the name of a ready
    scenario, or a whole path.
    """
    if name_or_path in bundled_scenarios() | bundled_bugs() or not Path(name_or_path).exists():
        return name_or_path
    return str(Path(name_or_path).absolute())
