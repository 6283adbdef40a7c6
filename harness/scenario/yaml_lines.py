"""YAML with the line of every key, so that an error about a value can say where it was written."""

from __future__ import annotations

from pathlib import Path, PurePath

import yaml

from harness.errors import ScenarioError
from harness.rundir import Document
from harness.validation import Location, dotted, shown

MAX_FILE_BYTES = 1_000_000  # far above any real scenario; keeps a wrong file from being parsed for minutes
MAX_KEYS = 50_000  # YAML aliases can expand a small file without end


def read(path: Path) -> str:
    """The text of a scenario file.

    Raises:
        ScenarioError: unreadable, too large or not UTF-8.
    """
    try:
        raw = path.read_bytes()[: MAX_FILE_BYTES + 1]
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise ScenarioError(f"{path}: larger than {MAX_FILE_BYTES} bytes: not a scenario file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: not UTF-8 text (byte {error.start})") from error


def parse(path: PurePath, text: str, *, what: str = "a scenario") -> tuple[Document, dict[Location, str]]:
    """The data, and the place (``file:line``) of every key in it. ``what``: of which file, for messages.

    Raises:
        ScenarioError: empty, not YAML, not a mapping, or a key given twice.
    """
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            hint = "`brokerstorm new FILE` writes a scenario to edit" if what == "a scenario" else ""
            raise ScenarioError(f"{path}: is empty", hint=hint)
        places: dict[Location, str] = {}
        _note_places(node, (), str(path), places)
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ScenarioError(f"{path}{line}: not valid YAML: {error.problem}") from error
    except RecursionError as error:
        raise ScenarioError(f"{path}: nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ScenarioError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}:1: {what} is a mapping of key: value, got {shown(data)}")
    return data, places


def _note_places(node: yaml.Node, location: Location, path: str, places: dict[Location, str]) -> None:
    """Keep the line of every key; a key twice in one mapping is an error (YAML would drop the first)."""
    places.setdefault(location, f"{path}:{node.start_mark.line + 1}")
    if len(places) > MAX_KEYS:
        raise ScenarioError(f"{path}: more than {MAX_KEYS} keys")
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _note_places(item, (*location, index), path, places)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        here = (*location, key.value)
        if key.value in seen and key.value != "<<":
            raise ScenarioError(
                f"{path}:{line}: {dotted(here)}: given twice, first on line {seen[key.value]}"
            )
        seen[key.value] = line
        places[here] = f"{path}:{line}"
        _note_places(value, here, path, places)
