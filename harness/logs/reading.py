"""Reads what a log says between two times: found by bisection over the file, then streamed, never
whole.

A line without a time of its own (a frame of a stack trace, a printed table of settings) belongs to
the entry above it. Lines before the first one with a time have no place, and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from harness.log_stamp import Stamp, Stamped, first_stamp

#: Bytes kept of a line, and lines kept of an entry: the rest is counted.
LINE_BYTES = 4096
ENTRY_LINES = 60
#: Bytes of one excerpt that are read, whatever it holds.
EXCERPT_BYTES = 64 << 20
#: Threads of a process write their lines so much out of order, at most.
DISORDER_NS = 1_000_000_000
_NEAR_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What a log said at one time.

    Attributes:
        offset, size: in bytes, where it lies in the file.
        wall_ns: since 1970.
        severe: a warning or worse.
        text: its first line, without the line break; ``said``: the part after the time.
        more: the lines that belong to it.
        more_left: further such lines, beyond `ENTRY_LINES`.
    """

    offset: int
    size: int
    wall_ns: int
    severe: bool
    text: str
    said: str
    more: tuple[str, ...] = ()
    more_left: int = 0


class Excerpt:
    """The entries of a log from ``begin_ns`` to ``end_ns`` (wall clock), in the order of the file.

    Attributes:
        is_cut: after iterating: there is more, beyond `EXCERPT_BYTES`.

    Raises:
        OSError: on iterating: the file cannot be read.
    """

    def __init__(self, path: Path, stamps: tuple[Stamp, ...], begin_ns: int, end_ns: int) -> None:
        self.is_cut = False
        self._path, self._stamps = path, stamps
        self._begin_ns, self._end_ns = begin_ns, end_ns

    def __iter__(self) -> Iterator[LogEntry]:
        self.is_cut = False
        with self._path.open("rb") as file:
            start = _first_at(file, self._stamps, self._begin_ns - DISORDER_NS)
            for entry in self._entries(file, start):
                if self._begin_ns <= entry.wall_ns <= self._end_ns:
                    yield entry

    def _entries(self, file: BinaryIO, start: int) -> Iterator[LogEntry]:
        current: _Growing | None = None
        for offset, line, size in _lines(file, start):
            stamped = first_stamp(self._stamps, line)
            if stamped is None:
                if current is not None:
                    current.add(line, size)
                continue
            if current is not None:
                yield current.entry()
            if stamped.wall_ns > self._end_ns + DISORDER_NS:
                return
            if offset - start > EXCERPT_BYTES:
                self.is_cut = True
                return
            current = _Growing(offset, stamped, line, size)
        if current is not None:
            yield current.entry()


class _Growing:
    """An entry whose further lines are still being read."""

    def __init__(self, offset: int, stamped: Stamped, line: bytes, size: int) -> None:
        text = _text(line, size)
        said = text[len(line[: stamped.end].decode(errors="replace")) :].lstrip("]| ")
        self._head = (stamped.wall_ns, stamped.is_severe, text, said)
        self._offset, self._size = offset, size
        self._more: list[str] = []
        self._left = 0

    def add(self, line: bytes, size: int) -> None:
        self._size += size
        if len(self._more) < ENTRY_LINES:
            self._more.append(_text(line, size))
        else:
            self._left += 1

    def entry(self) -> LogEntry:
        """Return the entry as it was read so far, without blank lines at its end."""
        while self._more and not self._more[-1].strip():
            self._more.pop()
        return LogEntry(self._offset, self._size, *self._head, tuple(self._more), self._left)


def _first_at(file: BinaryIO, stamps: tuple[Stamp, ...], wall_ns: int) -> int:
    """An offset at or a little before the first line that was written at ``wall_ns`` or later."""
    low, high = 0, file.seek(0, 2)
    while high - low > _NEAR_BYTES:
        middle = (low + high) // 2
        found = _next_stamped(file, stamps, middle, high)
        if found is None:
            high = middle
        elif found[1] < wall_ns:
            low = found[0]
        else:
            high = middle
    return low


def _next_stamped(
    file: BinaryIO, stamps: tuple[Stamp, ...], start: int, end: int
) -> tuple[int, int] | None:
    """Offset and time of the first line with a time that begins after ``start`` and before
    ``end``."""
    for offset, line, _ in _lines(file, start, is_inside=True):
        if offset >= end:
            return None
        if stamped := first_stamp(stamps, line):
            return offset, stamped.wall_ns
    return None


def _lines(
    file: BinaryIO, start: int, *, is_inside: bool = False
) -> Iterator[tuple[int, bytes, int]]:
    """(offset, the first `LINE_BYTES` of the line, its size). ``is_inside``: ``start`` is amid a
    line."""
    file.seek(start)
    offset = start + (_skip_line(file) if is_inside else 0)
    while line := file.readline(LINE_BYTES):
        size = len(line) + (0 if line.endswith(b"\n") else _skip_line(file))
        yield offset, line, size
        offset += size


def _skip_line(file: BinaryIO) -> int:
    """Read to the end of the line; its bytes."""
    skipped = 0
    while part := file.readline(_NEAR_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def _text(line: bytes, size: int) -> str:
    text = line.decode(errors="replace").rstrip("\r\n")
    return f"{text} ... ({size - len(line):,} more bytes)" if size > len(line) else text
