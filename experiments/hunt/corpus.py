"""The corpus of a hunt: a folder of scenarios that each showed something new.

An entry is a small YAML file. Its name follows from its scenario, so two corpora are merged by
copying the files of both into one folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import yaml

from experiments.resolved import key_of
from harness.contracts import typed
from harness.errors import BrokerstormError, UsageError
from harness.rundir import Document
from harness.yaml_lines import parse, read

SUFFIX: Final = ".yaml"
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusEntry:
    """A scenario that showed something new.

    Attributes:
        scenario: the scenario as data.
        seed: the seed that it was played with.
        features: what its round showed.
        changes: how it differs from the entry that it was made from; empty for the first one.
        parent: the name of that entry; empty for the first one.
        chosen: how often further rounds were made from it; not stored.
    """

    scenario: Document
    seed: int
    features: Sequence[str]
    changes: Sequence[str] = ()
    parent: str = ""
    chosen: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Return the name of its file, without the suffix."""
        return key_of(self.scenario)


def write_entry(folder: Path, entry: CorpusEntry) -> None:
    """Write an entry into the folder of a corpus. A file of the same scenario is replaced."""
    stored = {key: value for key, value in asdict(entry).items() if key != "chosen"}
    document = {"schema_version": SCHEMA_VERSION, **stored}
    document["features"], document["changes"] = list(entry.features), list(entry.changes)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{entry.name}{SUFFIX}"
    unfinished = path.with_suffix(".part")
    unfinished.write_text(text)
    unfinished.replace(path)  # after a kill there is the old file, the new one, or none


def read_corpus(folder: Path, system: str) -> tuple[list[CorpusEntry], list[str]]:
    """Return the entries of a corpus for one system, by name, and a line for each file that is left
    out.

    Raises:
        UsageError: it is not a folder.
    """
    if not folder.exists():
        return [], []
    if not folder.is_dir():
        raise UsageError(f"--corpus {folder} is not a folder", hint="name a folder; it may be new")
    entries, left_out = [], []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            entry = _read_entry(path)
        except BrokerstormError as error:
            left_out.append(" ".join(str(error).split()))
            continue
        if (found := str(entry.scenario.get("system", "kafka"))) == system:
            entries.append(entry)
        else:
            left_out.append(f"{path}: is for {found}, and this hunt is on {system}")
    return entries, left_out


def _read_entry(path: Path) -> CorpusEntry:
    """Raises: BrokerstormError: it cannot be read, is damaged, or is of another version."""
    document, _ = parse(path, read(path), what="an entry of a corpus")
    version = document.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise UsageError(f"{path}: schema_version is {version!r}, this version reads 1")
    return typed(document, CorpusEntry, str(path))
