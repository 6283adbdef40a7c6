"""The folder of an import: its import.yaml, and the files of each table."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, NoReturn, cast

import pyarrow as pa
import pyarrow.fs as pafs
from pydantic import ValidationError

from harness.errors import UsageError, did_you_mean
from harness.importing.columns import MAX_LANE, TABLES
from harness.importing.model import MAX_STREAMS, ImportFile
from harness.systems import SYSTEMS
from harness.validation import Location, dotted, problems_of
from harness.yaml_lines import MAX_FILE_BYTES, SCHEMA_KEY, parse

DESCRIPTION: Final = "import.yaml"
#: Ends of the names of table files, the longer ones first.
SUFFIXES: Final = (".csv.gz", ".jsonl.gz", ".parquet", ".csv", ".jsonl")
#: What else may lie next to the tables without being taken for data.
_BESIDE: Final = (".md", ".txt", ".py", ".sh")
HINT: Final = "docs/howto/judge-another-capture.md shows what an import holds"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table. ``name``: as messages have it, from the folder on."""

    path: str
    name: str

    @property
    def suffix(self) -> str:
        """The suffix by which the format is known, compression included."""
        return next(suffix for suffix in SUFFIXES if self.name.endswith(suffix))

    @property
    def is_json(self) -> bool:
        """Each of its rows names its own columns."""
        return ".jsonl" in self.suffix


@dataclass(frozen=True, slots=True)
class ImportSource:
    """Where an import is, what it says of itself, and its files by table, in the order of their
    names."""

    uri: str
    description: ImportFile
    places: Mapping[Location, str]
    files: Mapping[str, tuple[TableFile, ...]]
    filesystem: Any

    @classmethod
    def open(cls, uri: str) -> ImportSource:
        """List the folder and read import.yaml.

        Args:
            uri: a folder, or a URI that pyarrow.fs knows.

        Raises:
            UsageError: it cannot be read, a table is missing, a file has no place in it, or
                import.yaml is not as it must be.
        """
        filesystem, root = _filesystem(uri)
        found = {info.base_name: info for info in _listed(filesystem, root, uri)}
        if DESCRIPTION not in found:
            raise UsageError(
                f"{uri} holds no {DESCRIPTION}: it names the system and the topics", hint=HINT
            )
        if not found[DESCRIPTION].is_file:  # a pipe would be waited for
            raise UsageError(f"{uri}: {DESCRIPTION} is not a regular file", hint=HINT)
        files = {table: tuple(_files_of(table, found, filesystem, uri)) for table in TABLES}
        _refuse_strange(found, uri)
        text = _text(filesystem, f"{root}/{DESCRIPTION}")
        description, places = read_description(text)
        for table in ("sends", "log"):
            if not files[table]:
                raise UsageError(
                    f"{uri} holds no {table}: neither a folder nor a file of that name", hint=HINT
                )
        return cls(uri, description, places, files, filesystem)

    def refuse(self, location: Location, problem: str) -> NoReturn:
        """Raise the error for a key of import.yaml, with its line."""
        raise UsageError(_line(self.places, location, problem))

    @contextmanager
    def stream(self, file: TableFile) -> Iterator[BinaryIO]:
        """The bytes of a file as they lie there."""
        with self.filesystem.open_input_file(file.path) as opened:
            yield cast("BinaryIO", opened)


def read_description(text: str) -> tuple[ImportFile, Mapping[Location, str]]:
    """Check the text of an import.yaml; the data, and the line of every key.

    Raises:
        UsageError: one line with file, line, key, value and what is allowed.
    """
    data, places = parse(PurePosixPath(DESCRIPTION), text, what="an import")
    data.pop(SCHEMA_KEY, None)
    try:
        description = ImportFile.model_validate(data)
    except ValidationError as error:
        found = problems_of(ImportFile, error, data)
        raise UsageError.of_lines(_line(places, *each) for each in found) from None
    for location, problem in _contradictions(description):
        raise UsageError(_line(places, location, problem))
    return description, places


def _contradictions(said: ImportFile) -> Iterator[tuple[Location, str]]:
    """Yield contradictions: combinations that are not possible although each key is valid by
    itself."""
    if said.system not in SYSTEMS:
        yield ("system",), f"unknown system {said.system!r}; {did_you_mean(said.system, SYSTEMS)}"
        return
    if sum(said.topics.values()) > MAX_STREAMS:
        yield (
            ("topics",),
            f"{sum(said.topics.values()):,} partitions in all; at most {MAX_STREAMS:,}",
        )
    yield from _of_groups(said)
    yield from _of_columns(said)
    yield from _of_lanes(said)
    for index, fault in enumerate(said.faults):
        if fault.end is not None and said.nanoseconds(fault.end) < said.nanoseconds(fault.start):
            yield ("faults", index, "end"), "is before the start"


def _of_groups(said: ImportFile) -> Iterator[tuple[Location, str]]:
    for name, group in said.groups.items():
        for index, topic in enumerate(group.topics):
            if topic not in said.topics:
                near = did_you_mean(topic, said.topics, label="topics")
                yield ("groups", name, "topics", index), f"no topic {topic!r}; {near}"
        if SYSTEMS[said.system].is_queue and group.settle is None:
            yield (
                ("groups", name),
                "settle is missing: without it, messages lost from a queue cannot be found",
            )


def _of_columns(said: ImportFile) -> Iterator[tuple[Location, str]]:
    for table in TABLES:
        ours = [field.name for field in TABLES[table]]
        for name in getattr(said.columns, table):
            if name not in ours:
                yield ("columns", table, name), f"no column of ours; {did_you_mean(name, ours)}"
        for name, theirs in getattr(said.columns, table).items():
            if not theirs or not _is_template(theirs):
                example = '"{topic}-{partition}"'
                yield (
                    ("columns", table, name),
                    f"{theirs!r} is neither a column name nor text such as {example}",
                )


def _is_template(text: str) -> bool:
    """Whether the braces in a text, if any, each hold a plain name."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:
        return False
    return all(
        name is None or (name and not spec and not conversion)
        for _, name, spec, conversion in parts
    )


def _of_lanes(said: ImportFile) -> Iterator[tuple[Location, str]]:
    taken: list[tuple[int, int]] = []
    for index, lanes in enumerate(said.lanes):
        if lanes.topic not in said.topics:
            near = did_you_mean(lanes.topic, said.topics, label="topics")
            yield ("lanes", index, "topic"), f"no topic {lanes.topic!r}; {near}"
            return
        partitions = said.topics[lanes.topic]
        count = lanes.count or (partitions if lanes.mode == "partition" else 0)
        if not count:
            yield ("lanes", index), "count is missing: how many keys there are"
        if lanes.mode == "partition" and count > partitions:
            yield (
                ("lanes", index, "count"),
                f"{count} lanes, and the topic has {partitions} partitions",
            )
        if lanes.first + count - 1 > MAX_LANE:
            yield ("lanes", index), f"lane {lanes.first + count - 1}; at most {MAX_LANE}"
        if any(lanes.first < end and start < lanes.first + count for start, end in taken):
            yield ("lanes", index), "some of its lanes belong to an entry above"
        taken.append((lanes.first, lanes.first + count))


def _line(places: Mapping[Location, str], location: Location, problem: str) -> str:
    written = next(location[:n] for n in range(len(location), -1, -1) if location[:n] in places)
    return f"{places[written]}: {dotted(location, 'import')}: {problem}"


def _filesystem(uri: str) -> tuple[Any, str]:
    try:
        if "://" in uri:
            filesystem, root = pafs.FileSystem.from_uri(uri)
            return filesystem, root
        return pafs.LocalFileSystem(), uri
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UsageError(
            f"cannot read an import from {uri}: {_first_line(error)}", hint=HINT
        ) from error


def _listed(filesystem: Any, root: str, uri: str) -> list[Any]:
    try:
        infos = filesystem.get_file_info(pafs.FileSelector(root))
    except FileNotFoundError as error:
        raise UsageError(
            f"cannot read an import from {uri}: the folder does not exist", hint=HINT
        ) from error
    except NotADirectoryError as error:
        raise UsageError(
            f"{uri} is a file: name the folder that holds import.yaml", hint=HINT
        ) from error
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UsageError(
            f"cannot read an import from {uri}: {_first_line(error)}", hint=HINT
        ) from error
    return [info for info in infos if not info.base_name.startswith((".", "_"))]


def _files_of(
    table: str, found: Mapping[str, pafs.FileInfo], filesystem: Any, uri: str
) -> Iterator[TableFile]:
    """``sends.csv``, or everything in ``sends/``; never both."""
    files = sorted(name for name in found if name in {table + suffix for suffix in SUFFIXES})
    folder = found.get(table)
    if len(files) + (folder is not None) > 1:
        both = [*files, f"{table}/"] if folder else files
        raise UsageError(
            f"{uri}: {' and '.join(both[:2])} are both there; one of them must go", hint=HINT
        )
    for name in files:
        if not found[name].is_file:
            raise UsageError(f"{uri}: {name} is not a file")
        yield TableFile(found[name].path, name)
    if folder is None:
        return
    if folder.is_file:
        raise UsageError(
            f"{uri}: {table} is a file; name it {table}.csv, .jsonl or .parquet", hint=HINT
        )
    inside = sorted(_listed(filesystem, folder.path, uri), key=lambda info: info.base_name)
    for info in inside:
        if not info.is_file or not info.base_name.endswith(SUFFIXES):
            raise UsageError(
                f"{uri}: {table}/{info.base_name} is not a table file",
                hint=f"a table's files end in {', '.join(SUFFIXES)}",
            )
        yield TableFile(info.path, f"{table}/{info.base_name}")
    if not inside:
        raise UsageError(
            f"{uri}: {table}/ holds no files", hint=f"files that end in {', '.join(SUFFIXES)}"
        )


def _refuse_strange(found: Mapping[str, pafs.FileInfo], uri: str) -> None:
    """A misspelt table would be left out in silence."""
    known = {DESCRIPTION, *TABLES, *(table + suffix for table in TABLES for suffix in SUFFIXES)}
    for name, info in sorted(found.items()):
        if name not in known and not (info.is_file and name.lower().endswith(_BESIDE)):
            near = did_you_mean(name, [DESCRIPTION, *TABLES])
            raise UsageError(f"{uri}: {name} has no place in an import; {near}", hint=HINT)


def _text(filesystem: Any, path: str) -> str:
    try:
        with filesystem.open_input_stream(path) as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise UsageError(f"{DESCRIPTION}: larger than {MAX_FILE_BYTES} bytes")
        return str(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{DESCRIPTION}: not UTF-8 text (byte {error.start})") from error
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot read {DESCRIPTION}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
