"""Keeps what a program prints, within a bound."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

#: The beginning and the end of a program's output that are kept; what lies between is counted.
HEAD_BYTES: Final = 32 << 20
TAIL_BYTES: Final = 1 << 20


class BoundedFile:
    """A file that takes everything and keeps the beginning and, at `close`, the end. Not
    thread-safe."""

    def __init__(self, path: Path, *, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        self._file = path.open("ab", buffering=0)
        self._room = max(0, head - path.stat().st_size)
        self._most_tail = tail
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.left_out = 0

    def write(self, data: bytes) -> None:
        """Keep some bytes, or count them.

        Raises:
            OSError: the disk is full.
        """
        now, later = data[: self._room], data[self._room :]
        if now:
            self._room -= len(now)
            self._file.write(now)
        if later:
            self._tail.append(later)
            self._tail_bytes += len(later)
        while self._tail_bytes > self._most_tail:
            gone = self._tail.popleft()
            self._tail_bytes -= len(gone)
            self.left_out += len(gone)

    def close(self) -> None:
        """Write the end that was kept, and how much is left out before it.

        Raises:
            OSError: the disk is full.
        """
        try:
            if self.left_out:
                self._file.write(
                    f"\n[brokerstorm left out {self.left_out:,} bytes here]\n".encode()
                )
            for data in self._tail:
                self._file.write(data)
        finally:
            self._tail.clear()
            self._file.close()
