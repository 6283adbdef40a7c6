"""The corpus of a hunt: a folder of scenarios that each showed something new.

An entry is a small YAML file. Its name follows from its scenario without versions, so two corpora
are merged by copying the files of both into one folder, and an entry that is played with a newer
client keeps its name.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import yaml

from experiments.plans import JARS
from experiments.resolved import key_of
from harness.contracts import typed
from harness.errors import BrokerstormError, UsageError
from harness.rundir import Document, reason_of, write_text
from harness.systems import DEFAULT
from harness.toolchains.own_builds import PREFIX
from harness.yaml_lines import parse, read

SUFFIX: Final = ".yaml"
#: Keys of a load that have clients.
CLIENTS: Final = ("producers", "consumers")
#: Keys of a scenario that name programs to be started.
_PROGRAMS: Final = ("applications", "workers")
SCHEMA_VERSION: Final = 1
#: Seeds are below this number, on the command line, too.
MOST_SEEDS: Final = 2**63


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
        return name_of(self.scenario)


def name_of(scenario: Document) -> str:
    """Return the same text for scenarios that differ only in versions of clients and brokers, and
    in folders of programs."""
    data = _portable(scenario)
    data.get("cluster", {}).pop("version", None)
    for side in CLIENTS:
        for client in data["load"].get(side, {}).values():
            client.pop("client_version", None)
    return key_of(data)


def _programs(scenario: Document) -> dict[str, Document]:
    """The applications of a scenario that may be damaged, by name."""
    found = scenario.get("applications")
    named = found.items() if isinstance(found, dict) else ()
    return {name: each for name, each in named if isinstance(each, dict)}


def _portable(scenario: Document) -> Document:
    """A copy without the folders of programs, which are elsewhere on another machine."""
    data = copy.deepcopy(scenario)
    data.pop("workers", None)
    for application in _programs(data).values():
        application.pop("start_in", None)
    return data


def _at_home(scenario: Document, first: Document) -> Document:
    """A copy with the folders of programs that another scenario has."""
    data = copy.deepcopy(scenario)
    if workers := first.get("workers"):
        data.setdefault("workers", workers)
    ours = _programs(first)
    for name, application in _programs(data).items():
        if folder := ours.get(name, {}).get("start_in"):
            application.setdefault("start_in", folder)
    return data


def write_entry(folder: Path, entry: CorpusEntry) -> None:
    """Write an entry into the folder of a corpus. A file of the same scenario is replaced."""
    stored = {key: value for key, value in asdict(entry).items() if key != "chosen"}
    stored["scenario"] = _portable(entry.scenario)
    document = {"schema_version": SCHEMA_VERSION, **stored}
    document["features"], document["changes"] = list(entry.features), list(entry.changes)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{entry.name}{SUFFIX}"
    write_text(path, text)  # after a kill there is the old file, the new one, or none


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What a hunt takes from a corpus.

    Attributes:
        entries: the entries that are played first, ready to be played.
        names: the names of all entries that are not left out.
        features: what these entries showed, sorted.
        left_out: a line for each file that is left out.
    """

    entries: list[CorpusEntry] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def require_folder(folder: Path) -> None:
    """Create the folder of a corpus if it is not there yet.

    Raises:
        UsageError: it is not a folder, or cannot be read or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            next(folder.iterdir(), None)
    except FileExistsError as error:
        raise UsageError(
            f"--corpus {folder} is not a folder", hint="name a folder; it may be new"
        ) from error
    except OSError as error:
        raise UsageError(
            f"--corpus {folder} cannot be read and written: {reason_of(error)}",
            hint="name another folder; it may be new",
        ) from error


def read_corpus(
    folder: Path,
    first: Document,
    prepare: Callable[[CorpusEntry], None],
    *,
    most: int | None = None,
    seed: int = 0,
) -> Corpus:
    """Read a corpus. A file is left out if it is damaged, is for another system, would start other
    programs, cannot be played, or has the same scenario as another file.

    Args:
        first: the scenario that the hunt begins with.
        prepare: makes an entry ready to be played; raises a `BrokerstormError` if it cannot be.
        most: number of entries that are played; of more, the seed draws some. None = all.
    """
    found: dict[str, CorpusEntry] = {}
    corpus = Corpus()
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            entry = _read_entry(path)
            entry = replace(entry, scenario=_at_home(entry.scenario, first))
            if why := _why_not(entry.scenario, first):
                raise UsageError(why)
        except BrokerstormError as error:
            corpus.left_out.append(_line(path, error))
        else:
            found[path.name] = entry
    features = {feature for entry in found.values() for feature in entry.features}
    files = [*found]
    if most is not None and len(files) > most:
        random.Random(f"corpus {seed}").shuffle(files)
    names: dict[str, str] = {}
    for file in files:
        if most is not None and len(corpus.entries) >= most:
            names[file.removesuffix(SUFFIX)] = file
            continue
        entry = found[file]
        try:
            prepare(entry)
            if same := names.get(entry.name):
                raise UsageError(f"has the same scenario as {same}")
        except BrokerstormError as error:
            corpus.left_out.append(_line(folder / file, error))
        else:
            names[entry.name] = file
            corpus.entries.append(entry)
    corpus.names.extend(names)
    corpus.features.extend(sorted(features))
    return corpus


def _line(path: Path, error: BrokerstormError) -> str:
    """Return a line about a file, which its message may name, too."""
    return " ".join(f"{path}: {str(error).removeprefix(f'{path}: ')}".split())


def _why_not(scenario: Document, first: Document) -> str:
    """Why an entry is not for the hunt that begins with another scenario; empty if it is."""
    found, ours = (str(each.get("system", DEFAULT.name)) for each in (scenario, first))
    if found != ours:
        return f"is for {found}, and this hunt is on {ours}"
    for key in _PROGRAMS:
        if scenario.get(key) and scenario[key] != first.get(key):
            return f"has {key} that the scenario of this hunt does not have"
    if builds := _builds(scenario) - _builds(first):
        return f"uses {min(builds)}, a build that the scenario of this hunt does not use"
    return ""


def _builds(value: object) -> set[str]:
    """The builds on this machine that a scenario names instead of versions: using one compiles or
    starts it."""
    if isinstance(value, str):
        return {value} if value.startswith((PREFIX, JARS)) else set()
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {build for part in parts for build in _builds(part)}


def _read_entry(path: Path) -> CorpusEntry:
    """Raises: BrokerstormError: it cannot be read, is damaged, or is of another version."""
    document, _ = parse(path, read(path), what="an entry of a corpus")
    version = document.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise UsageError(f"schema_version is {version!r}, this version reads 1")
    entry = typed(document, CorpusEntry, "the entry")
    if not 0 <= entry.seed < MOST_SEEDS:
        raise UsageError(f"seed: must be from 0 to {MOST_SEEDS - 1}, got {entry.seed}")
    return entry
