"""Open calls, read from the journal: which producer has waited how long for an outcome.

The journal is asked, not the process: a frozen or dead-locked worker cannot report its own hang, but its
memory-mapped rows are there for us to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.records import RAW_SENDS, SEGMENT_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """Calls without an outcome: how many, and when the oldest was made (0 = none)."""

    count: int
    oldest_start_ns: int


class SendsJournal:
    """Follows one producer's send segments. `open_calls` looks only at segments not yet complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._complete: set[str] = set()

    def open_calls(self) -> OpenCalls:
        count, oldest = 0, 0
        segments = sorted(self._folder.glob("sends-*.seg"))
        for path in segments:
            if path.name in self._complete:
                continue
            rows = _rows(path)
            written = rows["state"] != 0
            waiting = rows["t_start_ns"][written & (rows["outcome"] == 0)]
            if waiting.size:
                count += int(waiting.size)
                first = int(waiting.min())
                oldest = first if oldest == 0 else min(oldest, first)
            elif path is not segments[-1] and bool(written.all()):
                self._complete.add(path.name)
        return OpenCalls(count, oldest)


def _rows(path: Path) -> np.ndarray:
    usable = path.stat().st_size - SEGMENT_HEADER_BYTES
    rows = max(usable, 0) // RAW_SENDS.itemsize
    if rows == 0:
        return np.empty(0, RAW_SENDS)
    return np.memmap(path, RAW_SENDS, "r", SEGMENT_HEADER_BYTES, (rows,))
