"""Opens the database of a history: sound, of this schema, of no other kind; errors of SQLite as ours."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from experiments.history.schema import MIGRATIONS, VERSION
from harness.errors import EnvironmentNotReady, UsageError

_SIDE_FILES: Final = ("-wal", "-shm")
#: Names of databases, and how each SQLite 3 file begins.
_SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")
_HEADER: Final = b"SQLite format 3\0"


def connected(path: Path, wait_s: float) -> sqlite3.Connection | None:
    """A connection to a sound file (or to none yet); None where it is damaged or no database."""
    connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        if connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
            return connection
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            connection.close()
            raise
    connection.close()
    return None


def require_sound(path: Path, wait_s: float) -> None:
    """That a history of another machine can be read, brought to this schema.

    Raises:
        UsageError: it cannot; it is left as it is.
    """
    if not path.is_file():
        raise UsageError(f"there is no history {path}", hint="name files that `suite run` has written")
    with told(path, wait_s):
        connection = connected(path, wait_s)
        if connection is None:
            raise UsageError(f"{path} is damaged, or no history; it is left as it is")
        try:
            if not _version(connection, path):
                raise UsageError(f"{path} is empty: there is nothing in it to merge")
            migrate(connection, path)
        finally:
            connection.close()


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def refuse_another_kind(path: Path) -> None:
    """A file that neither begins as a database nor is named like one may be dear to the user.

    Raises:
        UsageError: it is left as it is.
    """
    with path.open("rb") as file:
        begins = file.read(len(_HEADER))
    if begins != _HEADER and path.suffix not in _SUFFIXES:
        raise UsageError(
            f"{path} is no history, and no database at all; it is left as it is",
            hint=f"name the history another way, such as {path.with_suffix('.sqlite').name}",
        )


def set_aside(path: Path, wait_s: float) -> list[str]:
    """Rename a damaged file and what stands beside it; of two processes one does, the other finds it done."""
    lock = FileLock(f"{path}.lock", timeout=wait_s)
    try:
        with lock:
            again = connected(path, wait_s)
            if again is not None:
                again.close()
                return []
            aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
            for suffix in ("", *_SIDE_FILES):
                if os.path.exists(f"{path}{suffix}"):
                    os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    except Timeout as error:
        raise _locked(path, wait_s) from error
    return [f"the history {path} was damaged: it is kept as {aside.name}, and a new one is begun"]


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to `VERSION`, in one transaction.

    Raises:
        UsageError: it is of a newer version, or is a database of something else.
    """
    is_old = _version(connection, path) < VERSION  # before anything of the file is changed
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if not is_old:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in MIGRATIONS[_version(connection, path) :]:  # another process may have been first
            for statement in filter(str.strip, step.split(";")):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise UsageError(
            f"{path} has schema {version} of the history, this version knows up to {VERSION}",
            hint="use the newer brokerstorm that wrote it, or name another file",
        )
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise UsageError(f"{path} is a database of something else", hint="name another file")
    return version


@contextmanager
def told(path: Path, wait_s: float) -> Iterator[None]:
    """Errors of SQLite as errors of ours, with the next step."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = (error.sqlite_errorcode or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise _locked(path, wait_s) from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise EnvironmentNotReady(
                f"cannot write to the history {path}: {error}", hint="make room on that disk; nothing is lost"
            ) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise UsageError(
                f"cannot use {path} as a history: {error}", hint="name a file that can be written"
            ) from error
        raise
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        raise EnvironmentNotReady(
            f"the history {path} was damaged while it was open: {error}",
            hint="the next command keeps it aside and begins a new one; `history import` takes the runs back",
        ) from error


def _locked(path: Path, wait_s: float) -> EnvironmentNotReady:
    return EnvironmentNotReady(
        f"another process has held the history {path} for {wait_s:g} s",
        hint="wait for it to end; `fuser` names the process",
    )
