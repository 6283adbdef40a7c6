"""Writes and reads a bundle: a gzipped tar of plain files below one folder.

Equal files make equal bytes: names sorted, no time, no owner. The reader trusts nothing: it takes
plain files only, whose names stay below the folder, and no more of them and no more bytes than a
bundle has. It reads the 512-byte headers itself, because a header of the extended formats may
announce a name of any length.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from harness.errors import UsageError
from harness.rundir import open_regular

BLOCK: Final = tarfile.BLOCKSIZE
SUFFIX: Final = ".tar.gz"
#: Of a bundle that is opened. Logs shrink to a twentieth, the capture hardly at all.
MOST_FILES: Final = 20_000
MOST_RATIO: Final = 100
SLACK_BYTES: Final = 64 << 20
_LONGEST_PART: Final = 200
_CHUNK: Final = 1 << 20
_PLAIN: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)


def most_bytes(archive_bytes: int) -> int:
    """How many bytes an archive of this size may unpack to."""
    return MOST_RATIO * archive_bytes + SLACK_BYTES


# -- writing


def write_archive(target: IO[bytes], folder: str, files: Mapping[str, bytes | Path]) -> None:
    """Write every file, by its path below ``folder``: its content, or the file that has it.

    Raises:
        UsageError: a name that is too long for a tar of plain files, or a file that cannot be read.
    """
    with gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=9, mtime=0) as packed:
        for name in sorted(files):
            data = _bytes_of(files[name])
            packed.write(_header(f"{folder}/{name}", len(data)))
            packed.write(data + bytes(-len(data) % BLOCK))
        packed.write(bytes(2 * BLOCK))


def _bytes_of(content: bytes | Path) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return content.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {content}: {error.strerror}") from error


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, 0
    try:
        return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape")
    except ValueError as error:
        raise UsageError(f"the name is too long for a bundle: {name}") from error


# -- reading


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of an archive. ``data`` must be read before the next one."""

    folder: str
    path: str
    size: int
    data: Iterator[bytes]


def entries(archive: Path) -> Iterator[Entry]:
    """The files of a bundle, in its order.

    Raises:
        UsageError: not a bundle, damaged, or not harmless.
    """
    file = open_regular(archive)
    size = os.fstat(file.fileno()).st_size
    with file, gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
        yield from _checked(archive, _Reader(archive, unpacked, most_bytes(size)))


class _Reader:
    """Reads exactly, and no more in all than it may.

    Raises:
        UsageError: the archive holds more or less than that, or is damaged.
    """

    def __init__(self, archive: Path, stream: gzip.GzipFile, most: int) -> None:
        self._archive, self._stream = archive, stream
        self._most = self._left = most

    def exactly(self, count: int) -> bytes:
        """Return exactly this many bytes."""
        self.require_room(count)
        self._left -= count
        try:
            data = self._stream.read(count)
        except gzip.BadGzipFile as error:
            raise _refused(self._archive, f"it is no {SUFFIX} archive, or damaged") from error
        except (EOFError, zlib.error) as error:
            raise _refused(self._archive, "it is cut short or damaged") from error
        except OSError as error:
            raise UsageError(f"cannot read {self._archive}: {error.strerror or error}") from error
        if len(data) < count:
            raise _refused(self._archive, "it is cut short or damaged")
        return data

    def require_room(self, count: int) -> None:
        """Raise UsageError if an entry of this size would exceed the limit."""
        if count > self._left:
            raise _refused(self._archive, f"it unpacks to more than {self._most >> 20:,} MiB")

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield the bytes of an entry in pieces."""
        for start in range(0, size, _CHUNK):
            yield self.exactly(min(_CHUNK, size - start))
        self.exactly(-size % BLOCK)


def _checked(archive: Path, reader: _Reader) -> Iterator[Entry]:
    seen: set[str] = set()
    top = ""
    try:
        while any(block := reader.exactly(BLOCK)):
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            folder, path = _place(archive, info)
            top = top or folder
            if folder != top:
                raise _refused(archive, f"it has two folders, {_shown(top)} and {_shown(folder)}")
            if path in seen:
                raise _refused(archive, f"it holds {_shown(path)} twice")
            seen.add(path)
            if len(seen) > MOST_FILES:
                raise _refused(archive, f"it holds more than {MOST_FILES:,} files")
            reader.require_room(info.size)
            data = reader.chunks(info.size)
            yield Entry(folder, path, info.size, data)
            for _ in data:  # what the caller left unread
                pass
    except tarfile.HeaderError as error:
        raise _refused(archive, f"not a tar archive of plain files: {error}") from error


def _place(archive: Path, info: tarfile.TarInfo) -> tuple[str, str]:
    """Folder, and path below it, of a harmless plain file."""
    if info.type not in _PLAIN or info.linkname:
        raise _refused(archive, f"{_shown(info.name)} is not a plain file")
    if info.size < 0:
        raise _refused(archive, f"{_shown(info.name)} has no size")
    parts = info.name.split("/")
    odd = any(
        part in ("", ".", "..") or len(part.encode(errors="surrogateescape")) > _LONGEST_PART
        for part in parts
    )
    if odd or len(parts) < 2 or not info.name.isprintable() or "\\" in info.name:
        raise _refused(archive, f"{_shown(info.name)} is not a path below its own folder")
    return parts[0], "/".join(parts[1:])


def _shown(name: str) -> str:
    return ascii(name[:80])


def _refused(archive: Path, why: str) -> UsageError:
    return UsageError(
        f"{archive} is not a bundle: {why}", hint="`brokerstorm bundle RUN` makes one"
    )


def unpack(
    archive: Path,
    target: Path,
    *,
    check: Callable[[Path], None],
    is_taken: Callable[[str], bool] = lambda _: True,
) -> list[str]:
    """Unpack into ``target``, which appears whole or not at all.

    Args:
        check: raises UsageError when the folder that was unpacked is not what it should be.
        is_taken: whether a file of this path is written.

    Returns:
        Paths of the files that were not written.

    Raises:
        UsageError: ``target`` has something in it, cannot be written, or the archive is not a
            bundle.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(
            f"{target} exists", hint="name an empty or a new folder: `brokerstorm open BUNDLE DIR`"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:80]}.part-"))
    except OSError as error:
        raise UsageError(f"cannot write to {target.parent}: {error.strerror}") from error
    try:
        ignored = _unpack(archive, part, is_taken)
        try:
            check(part)
        except UsageError as error:
            raise _refused(archive, str(error).replace(str(part), archive.name)) from error
        part.chmod(0o755)
        os.replace(part, target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return ignored


def _unpack(archive: Path, part: Path, is_taken: Callable[[str], bool]) -> list[str]:
    ignored = []
    for entry in entries(archive):
        if not is_taken(entry.path):
            ignored.append(entry.path)
            continue
        path = part.joinpath(*PurePosixPath(entry.path).parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        except (FileExistsError, NotADirectoryError) as error:
            raise _refused(archive, f"{_shown(entry.path)} is a file and a folder") from error
        with file:
            file.writelines(entry.data)
    return ignored
