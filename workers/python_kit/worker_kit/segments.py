"""Capture rows in memory-mapped files.

A row written into a shared mapping belongs to the kernel at once: killing the process loses
nothing. Each file is allocated in full before it is mapped, so a full disk is a clean error of
`rotate` and never a SIGBUS in the middle of a row. Old files stay mapped as long as somebody (a
delivery callback) holds them.
"""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

from . import layouts as lay
from .failure import WorkerFailure

#: 6 MB of sends: a file every 1.3 s at 50,000 msg/s, and little waste for slow workers.
DEFAULT_CAPACITY = 65_536
#: What the second segment and later ones are filled with: the kernel makes their pages by the
#: megabyte, in a fifth of the CPU time that it takes for one page at a time, at the first row in
#: it. The first segment is not filled: most of it stays empty where a worker sends little.
_ZEROS = bytes(1 << 20)


class SegmentWriter:
    """Makes the segments ``<table>-<owner>-<index>.seg`` of one table and owner, one after the
    other.

    The caller writes the rows: `rotate` gives (map, offset of the first row, offset after the
    last).
    """

    def __init__(
        self,
        folder: Path,
        table: int,
        owner: int,
        run_tag: int,
        *,
        subscription: int = 0,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self.folder = folder
        self.table = table
        self.owner = owner
        self.run_tag = run_tag
        self.subscription = subscription
        self.capacity = capacity
        self.index = 0
        self._lock = threading.Lock()

    def rotate(self) -> tuple[mmap.mmap, int, int]:
        """Map the next segment. Any thread; the rows are the caller's.

        Raises:
            WorkerFailure: the file cannot be made (disk full, folder gone).
        """
        row_bytes = lay.ROW_BYTES[self.table]
        size = lay.SEGMENT_HEADER_BYTES + row_bytes * self.capacity
        with self._lock:
            header = lay.SEGMENT_HEADER.pack(
                lay.SEGMENT_MAGIC, self.table, row_bytes, self.owner, self.index, self.capacity,
                self.run_tag, self.subscription,
            )  # fmt: skip
            path = self.folder / f"{lay.TABLE_NAMES[self.table]}-{self.owner}-{self.index:06d}.seg"
            rows = _allocate(path, size, header, is_filled=self.index > 0)
            self.index += 1
        return rows, lay.SEGMENT_HEADER_BYTES, size


def _allocate(path: Path, size: int, header: bytes, *, is_filled: bool) -> mmap.mmap:
    """Make, fill, map and only then name the file: a reader never meets a segment without a
    header."""
    part = path.with_suffix(".part")
    try:
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)
            else:  # macOS: zeros reserve the blocks too
                is_filled = True
            for at in range(0, size if is_filled else 0, len(_ZEROS)):
                os.pwrite(handle, _ZEROS[: size - at], at)
            os.pwrite(handle, header, 0)
            rows = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        os.rename(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise WorkerFailure(
            f"cannot write capture file {path}: {error.strerror}",
            hint="free disk space, or point --run-dir at another disk",
        ) from error
    return rows
