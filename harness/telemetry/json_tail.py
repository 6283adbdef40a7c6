"""Follows a JSON-lines file while somebody appends to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from harness.contracts import typed
from harness.errors import UsageError

RowT = TypeVar("RowT")


class JsonTail(Generic[RowT]):
    """The rows that were added since the last look; a line without its end waits for the next."""

    def __init__(self, path: Path, kind: type[RowT]) -> None:
        self._path = path
        self._kind = kind
        self._at = 0

    def rows(self) -> Iterator[RowT]:
        """Yield the rows of the type. Lines that are not such rows are left out: whoever judges the
        file reports them.
        """
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")[0]
        self._at += len(whole) + bool(whole)
        for line in whole.splitlines():
            try:
                yield typed(json.loads(line), self._kind, str(self._path))
            except (ValueError, UsageError):
                continue
