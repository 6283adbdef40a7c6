"""One numbering of names for the whole run, made from the numberings of its workers.

Every worker numbers its own streams, errors, client names and subscriptions (``names.jsonl``); two
workers may use one number for two names. Streams keep the plan's ids 1..n everywhere, all other
names get the next global id in order of worker and local id, so the same raw folder always seals to
the same bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.contracts import typed
from harness.contracts.plan import Plan
from harness.contracts.rows import NameRow
from harness.rundir import read_jsonl
from harness.seal.share import OWN_NAMES

_UNKNOWN: Final = -1
NAMES_FILE: Final = "names.jsonl"
_NAME_KEYS: Final = {"id", "kind", "text"}
#: Ids are dense from 1; one beyond this is damage, not a name (and would size the lookup array).
_MAX_ID: Final = 1 << 24


class NameTable:
    """The global numbering. `add` and `rows` are safe from several threads."""

    def __init__(self, plan: Plan, known: Iterable[tuple[str, str]] = (), part: int = 0) -> None:
        """
        Args:
            known: kind and text of names that have their ids already, in the order of those.
            part: of a load from several machines: names that are new to it get ids of its own.
        """
        self._skipped = 0
        self._ids: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        self._streams = plan.worker_streams
        for stream in plan.streams():
            self.add("stream", stream)
        self.planned_streams = len(self._ids)
        for kind, text in known:
            self._ids.setdefault((kind, text), len(self._ids) + 1)
        self._known = len(self._ids)
        self._skipped = part * OWN_NAMES

    def add(self, kind: str, text: str) -> int:
        """Global id of a name, new or known; a stream may be called as workers call it."""
        if kind == "stream":
            text = self.stream(text)
        with self._lock:
            return self._ids.setdefault((kind, text), self._skipped + len(self._ids) + 1)

    def stream(self, told: str) -> str:
        """Return the name in the capture of a stream whose name a worker wrote down."""
        return self._streams.get(told, told)

    def extra_streams(self) -> dict[int, str]:
        """Streams that the plan does not know, by global id."""
        return {
            number: text
            for (kind, text), number in self._ids.items()
            if kind == "stream" and number > self.planned_streams
        }

    def pairs(self) -> list[tuple[str, str]]:
        """Kind and text of all names, by id."""
        with self._lock:
            return list(self._ids)

    def new_rows(self) -> list[NameRow]:
        """`rows` of those that were not known before."""
        return self.rows()[self._known :]

    def rows(self) -> list[NameRow]:
        """Rows of the sealed names.jsonl, by id."""
        with self._lock:
            return [NameRow(n, kind, text) for (kind, text), n in self._ids.items()]


class WorkerNames:
    """Global id of each id that one worker used."""

    def __init__(self, worker: str, entries: Iterable[NameRow], names: NameTable) -> None:
        self.worker = worker
        self.unknown: set[int] = set()
        self._names = names
        # A worker may leave the plan's streams out of its file: their ids are fixed.
        known = {n: n for n in range(names.planned_streams + 1)}
        for entry in sorted(entries, key=lambda e: e.id):
            known[entry.id] = names.add(entry.kind, entry.text)
        self._lookup = np.full(max(known) + 1, _UNKNOWN, np.int32)
        self._lookup[list(known)] = list(known.values())
        self.is_identity = bool((self._lookup == np.arange(len(self._lookup))).all())

    def to_global(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Global ids; an id that was never named gets a name that says so."""
        if len(ids) == 0:
            return ids
        inside = int(ids.min()) >= 0 and int(ids.max()) < len(self._lookup)
        if inside and self.is_identity:
            return ids
        clipped = np.where((ids < 0) | (ids >= len(self._lookup)), 0, ids)
        found = self._lookup[clipped]
        strange = (clipped != ids) | (found == _UNKNOWN)
        for local in np.unique(ids[strange]).tolist():
            self.unknown.add(local)
            text = f"name {local} of worker {self.worker}, which is missing in its names.jsonl"
            found[ids == local] = self._names.add("unknown", text)
        return found


def read_worker_names(folder: Path, names: NameTable) -> WorkerNames:
    """The names of the worker whose raw folder this is; without the file it has the plan's
    streams."""
    rows = read_jsonl(folder / NAMES_FILE)
    named = [
        typed(row, NameRow, str(folder / NAMES_FILE)) for row in rows if row.keys() >= _NAME_KEYS
    ]
    usable = [row for row in named if 0 < row.id < _MAX_ID]
    return WorkerNames(folder.name, usable, names)
