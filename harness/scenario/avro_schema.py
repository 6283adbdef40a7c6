"""Avro schemas of files that a user names, which may come from a stranger: what fastavro would read
or run without a bound is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.rundir import is_deeper, read_text

_SUFFIX: Final = ".avsc"
#: Bytes of a schema and of the files of its types together.
_MOST_BYTES: Final = 1_000_000
_MOST_DEPTH: Final = 400
#: How often files of types are read. fastavro follows types that name each other without an end.
_MOST_FILES: Final = 200
#: Fields that one default fills in, and how deep they may be nested (on the stack of C).
_MOST_FILLED_IN: Final = 10_000
_MOST_NESTED: Final = 50
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_RECORDS: Final = ("record", "error")
#: Marks of fastavro: it does not check a schema that has them.
_PARSED: Final = ("__fastavro_parsed", "__named_schemas")


def load_avro_schema(fastavro: Any, path: Path) -> Any:
    """The schema of a file, as fastavro parses it. Types that the schema names and does not have
    are in files of their name next to it.

    Args:
        fastavro: the library.

    Raises:
        UsageError: a file cannot be read, or has what is refused here.
        Exception: another error of fastavro, or of JSON.
    """
    if path.suffix != _SUFFIX:
        raise UsageError(f"{path} is not an Avro schema: its name must end in {_SUFFIX}")
    schema = fastavro.schema.load_schema(str(path), repo=_Files(fastavro, path))
    _Defaults(schema).check(path)
    return schema


class _Files:
    """A repository of fastavro: the schema first, then the files of types next to it."""

    def __init__(self, fastavro: Any, path: Path) -> None:
        self._fastavro = fastavro
        self._path = path
        self._texts: dict[str, str] = {}
        self._left = _MOST_FILES

    def load(self, name: Any) -> Any:
        """Return the parsed schema of a name that the file refers to, as fastavro asks for it."""
        if not self._texts:  # fastavro asks for the schema itself by its path
            return self._read("", self._path)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(
                f"{self._path} has {repr(name)[:100]}, which is neither a type of Avro nor a name"
            )
        self._left -= 1
        if self._left < 0:
            raise UsageError(
                f"{self._path}: types in files of their own name each other, or more than "
                f"{_MOST_FILES} others: write {name} into the schema"
            )
        file = self._path.with_name(name + _SUFFIX)
        try:
            found = self._read(name, file)
        except UsageError as error:
            raise UsageError(
                f"{self._path} names the type {name}, which it does not have: {error}"
            ) from error
        if not isinstance(found, dict) or self._fastavro.schema.fullname(found) != name:
            raise UsageError(f"{file} must have the type {name}, which {self._path} names")
        return found

    def _read(self, name: str, file: Path) -> Any:
        """The content of a file. It is a new one each time: fastavro changes it."""
        if name not in self._texts:
            self._texts[name] = read_text(file, _MOST_BYTES)
            if sum(len(text) for text in self._texts.values()) > _MOST_BYTES:
                raise UsageError(
                    f"the schema and the files of its types have more than {_MOST_BYTES:,} bytes"
                )
        try:
            found = json.loads(self._texts[name], object_hook=_without_marks)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{file} is not an Avro schema: {error}") from error
        if isinstance(found, dict | list) and is_deeper(found, _MOST_DEPTH):
            raise UsageError(f"{file} is not an Avro schema: nested too deeply")
        return found


def _without_marks(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in _PARSED}


class _Defaults:
    """What fastavro fills in for fields that are left out.

    A default that is a record leaves fields out itself, whose defaults are filled in as well.
    """

    def __init__(self, schema: Any) -> None:
        self._records = {each["name"]: each for each in _records(schema)}
        #: (record, field) -> fields that its default fills in, and how deep; None = not known yet.
        self._sizes: dict[tuple[str, str], tuple[int, int] | None] = {}

    def check(self, path: Path) -> None:
        """Refuse defaults that contain themselves, or that fill in very much.

        Raises:
            UsageError: names the field.
        """
        for name, record in self._records.items():
            for field in record["fields"]:
                if "default" not in field:
                    continue
                try:
                    filled_in, nested = self._of_field(name, field)
                except RecursionError:
                    filled_in, nested = 0, _MOST_NESTED + 1
                except _ContainsItselfError as error:
                    raise UsageError(
                        f"{path} cannot be used: the default of field {error} contains itself; "
                        "give it a default that ends, such as null"
                    ) from None
                if filled_in > _MOST_FILLED_IN or nested > _MOST_NESTED:
                    raise UsageError(
                        f"{path} cannot be used: the default of field {name}.{field['name']} fills "
                        f"in more than {_MOST_FILLED_IN:,} fields, or more than {_MOST_NESTED} "
                        "in each other; write a shorter one"
                    )

    def _of_field(self, record: str, field: dict[str, Any]) -> tuple[int, int]:
        """How many fields a field's default fills in, and how deep."""
        key = (record, field["name"])
        if key not in self._sizes:
            self._sizes[key] = None
            self._sizes[key] = self._of_value(field["type"], field["default"])
        size = self._sizes[key]
        if size is None:
            raise _ContainsItselfError(".".join(key))
        return 1 + size[0], 1 + size[1]

    def _of_value(self, schema: Any, value: Any) -> tuple[int, int]:
        """How many fields are filled in for a value of a type. fastavro tries every type of a
        union."""
        kind = schema.get("type") if isinstance(schema, dict) else schema
        name = schema["name"] if kind in _RECORDS else kind
        record = self._records.get(name) if isinstance(name, str) else None
        sizes: list[tuple[int, int]] = []
        if isinstance(schema, list):
            sizes = [self._of_value(each, value) for each in schema]
        elif record is not None and isinstance(value, dict):
            for field in record["fields"]:
                if field["name"] in value:
                    sizes.append(self._of_value(field["type"], value[field["name"]]))
                elif "default" in field:
                    sizes.append(self._of_field(record["name"], field))
        elif kind == "array" and isinstance(value, list):
            sizes = [self._of_value(schema["items"], each) for each in value]
        elif kind == "map" and isinstance(value, dict):
            sizes = [self._of_value(schema["values"], each) for each in value.values()]
        return sum(size for size, _ in sizes), max((nested for _, nested in sizes), default=0)


class _ContainsItselfError(Exception):
    """A default is filled in again while it is filled in; the text is the field."""


def _records(schema: Any) -> Iterator[dict[str, Any]]:
    """All records of a parsed schema."""
    left = [schema]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict) and each["type"] in _RECORDS:
            yield each
            left += [field["type"] for field in each["fields"]]
        elif isinstance(each, dict) and each["type"] in ("array", "map"):
            left.append(each["items" if each["type"] == "array" else "values"])
