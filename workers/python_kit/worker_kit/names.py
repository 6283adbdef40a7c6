"""names.jsonl: the text of every id used in rows, on disk before the id's first use."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from .error_texts import without_secrets
from .failure import WorkerFailure


class Names:
    """One id space a worker, from 1. Streams keep the ids of the spec, everything else follows.

    Lines: ``{"id": 1, "kind": "stream", "text": "orders-0"}``. Errors have no secrets.
    Safe to use from client threads.
    """

    def __init__(self, folder: Path, streams: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._ids: dict[tuple[str, str], int] = {}
        self._next = max(streams.values(), default=0) + 1
        path = folder / "names.jsonl"
        try:
            self._handle = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise WorkerFailure(f"cannot write {path}: {error.strerror}") from error
        for text, number in sorted(streams.items(), key=lambda item: item[1]):
            self._add("stream", text, number)

    def id(self, kind: str, text: str) -> int:
        """The id of a text; a new one is written down before it is returned.

        Raises:
            WorkerFailure: it cannot be written.
        """
        known = self._ids.get((kind, text))
        if known is not None:
            return known
        with self._lock:
            if (kind, text) not in self._ids:
                self._add(kind, text, self._next)
                self._next += 1
            return self._ids[kind, text]

    def _add(self, kind: str, text: str, number: int) -> None:
        told = without_secrets(text) if kind == "error" else text
        line = json.dumps({"id": number, "kind": kind, "text": told}, ensure_ascii=False) + "\n"
        try:
            os.write(self._handle, line.encode())  # one write: whole line or (killed before) none
        except OSError as error:
            raise WorkerFailure(f"cannot write names.jsonl: {error.strerror}") from error
        self._ids[kind, text] = number
