"""Documents of a run folder as typed data: read once, checked by the class that says what they
hold.

Whoever reads a document by a class of its own gets its fields by attribute, and one line of error
for a file that another version or a stranger wrote. `harness.rundir` bounds depth, size and kind of
the file. pydantic is imported late: executors have none, and need no more than the dataclasses of
`rows`.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from harness.errors import UsageError
from harness.rundir import read_json, read_jsonl

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Kind = TypeVar("Kind")


def read_document(path: Path, kind: type[Kind]) -> Kind:
    """A document of a run as a model or a dataclass.

    Raises:
        UsageError: it cannot be read, or a field is not as ``kind`` says.
    """
    return typed(read_json(path), kind, str(path))


def read_rows(path: Path, kind: type[Kind]) -> list[Kind]:
    """The rows of a JSON-lines file; none without the file.

    Raises:
        UsageError: as `read_document`, with the line.
    """
    rows = enumerate(read_jsonl(path), start=1)
    return [typed(row, kind, f"{path}, line {number}") for number, row in rows]


def typed(document: Any, kind: type[Kind], where: str, *, hint: str = "") -> Kind:
    """Data as a model or a dataclass; ``where``: it comes from.

    Raises:
        UsageError: a field is not as ``kind`` says.
    """
    from pydantic import ValidationError

    try:
        adapter: TypeAdapter[Kind] = _adapter(cast("Hashable", kind))
        return adapter.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "document"
        more = f" ({error.error_count()} problems)" if error.error_count() > 1 else ""
        raise UsageError(
            f"{where} is not of this version: {field}: {first['msg']}{more}", hint=hint
        ) from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
