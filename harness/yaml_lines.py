"""YAML with the line of every key, so that an error about a value can say where it was written."""

from __future__ import annotations

from itertools import chain
from pathlib import Path, PurePath

import yaml

from harness.errors import ScenarioError, UsageError
from harness.rundir import Document, read_text
from harness.validation import Location, dotted, shown

SCHEMA_KEY = "$schema"  # editors look for it; it says nothing to us
# far above any real scenario; keeps a wrong file from being parsed for minutes
MAX_FILE_BYTES = 1_000_000
MAX_KEYS = 50_000  # YAML aliases can expand a small file without end
MAX_DEPTH = 100  # ours have 10 levels; thousands cost seconds of CPU time and end the stack


class _Loader(yaml.SafeLoader):
    """Refuses a document at the place where it becomes too deep, before the rest of it is read."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {MAX_DEPTH} levels deep", problem_mark=mark
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def value_of(text: str) -> object:
    """One value as people type it on the command line, read as YAML.

    Raises:
        ValueError: it is not YAML, or nested too deeply.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError("not valid YAML") from error


def read(path: Path) -> str:
    """The text of a YAML file that a user names.

    Raises:
        ScenarioError: unreadable, no regular file, too large or not UTF-8.
    """
    try:
        return read_text(path, MAX_FILE_BYTES)
    except UsageError as error:
        raise ScenarioError(str(error)) from error


def parse(
    path: PurePath, text: str, *, what: str = "a scenario", has_secrets: bool = False
) -> tuple[Document, dict[Location, str]]:
    """The data, and the place (``file:line``) of every key in it.

    Args:
        what: kind of file, for messages.
        has_secrets: whether a value may be a password that was written there by mistake: no message
            repeats one, and no exception keeps one.

    Raises:
        ScenarioError: empty, not YAML, not a mapping, or a key given twice.
    """
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            hint = (
                "`brokerstorm new FILE` writes a scenario to edit" if what == "a scenario" else ""
            )
            raise ScenarioError(f"{path}: is empty", hint=hint)
        places: dict[Location, str] = {}
        _note_places(node, (), str(path), places)
        data = loader.construct_document(node)
        if "\\u" in text.lower() and not _is_encodable(node):
            raise ValueError("half of a character (a surrogate), which no file can hold")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = f"{path}{line}: not valid YAML: {error.problem}"
    except RecursionError:
        problem = f"{path}: nested too deeply"
    except yaml.reader.ReaderError as error:
        problem = f"{path}: not valid YAML: unacceptable character number {error.position + 1}"
    except (yaml.YAMLError, ValueError, TypeError) as error:
        reason = "a value that cannot be read" if has_secrets else " ".join(str(error).split())
        problem = f"{path}: not valid YAML: {reason}"
    else:
        if isinstance(data, dict):
            return data, places
        got = "another value" if has_secrets else shown(data)
        problem = f"{path}:1: {what} is a mapping of key: value, got {got}"
    finally:
        if loader is not None:
            loader.dispose()
    raise ScenarioError(problem)


def _is_encodable(node: yaml.Node) -> bool:
    """Whether every text can be written to a file; an escape such as ``\\ud800`` makes one that
    cannot."""
    if isinstance(node, yaml.ScalarNode):
        text = str(node.value)
        return text.encode(errors="ignore").decode() == text
    children = chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
    return all(map(_is_encodable, children))


def _note_places(
    node: yaml.Node, location: Location, path: str, places: dict[Location, str]
) -> None:
    """Keep the line of every key; a key twice in one mapping is an error (YAML would drop the
    first)."""
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
