"""Opens the database of a history: sound, of this schema, of no other kind; errors of SQLite as
ours."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from experiments.history.schema import MIGRATIONS, VERSION
from harness.errors import EnvironmentNotReady, UsageError
from harness.rundir import open_regular

_SIDE_FILES: Final = ("-wal", "-shm")
#: Names of databases, and how each SQLite 3 file begins.
_SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")
_HEADER: Final = b"SQLite format 3\0"
#: Size of the largest text in a history, and of a history that is merged: ten years of fifty cells
#: are less.
_MOST_VALUE_BYTES: Final = 16 << 20
_MOST_BYTES: Final = 256 << 20
#: How long checking or reading a file may take, and after how many steps of SQLite that is looked
#: at.
_LONGEST_S: Final = 60.0
_STEPS: Final = 100_000


def connected(path: Path, wait_s: float) -> sqlite3.Connection | None:
    """A connection to a sound file (or to none yet); None where it is damaged or no database.

    The file may come from a stranger: its size of values is bounded, its schema is checked before
    anything of it is run, and no function of its schema can have an effect.

    Raises:
        UsageError: the path is not a regular file, a table has another shape, or checking it takes
            too long.
    """
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UsageError(
            f"cannot use {path} as a history: it is not a regular file", hint="name a file"
        )
    connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        _require_our_tables(connection, path)
        with watched(connection, path):
            if connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
                return connection
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            connection.close()
            raise
    except UnicodeDecodeError:
        # as `_is_damage` has it: the message of that error would repeat the text that cannot be
        # read
        pass
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _require_our_tables(connection: sqlite3.Connection, path: Path) -> None:
    """A view in the place of a table can be without end, and a trigger does something at each
    change.

    Raises:
        UsageError: a table of ours is something else in a file of a schema that we know.
    """
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 0 < version <= VERSION:
        return
    query = "SELECT name, type, sql FROM sqlite_master WHERE tbl_name IN ({}) AND type != 'index'"
    with closing(sqlite3.connect(":memory:")) as reference:
        for step in MIGRATIONS[:version]:
            reference.executescript(step)
        names = [
            name
            for (name,) in reference.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        marks = ", ".join("?" * len(names))
        wanted = set(reference.execute(query.format(marks), names).fetchall())
    found = set(connection.execute(query.format(marks), names).fetchall())
    if odd := sorted(str(name) for name, _, _ in found ^ wanted):
        raise UsageError(
            f"{path} is not a history: {odd[0][:40]!a} in it is not as brokerstorm makes it",
            hint="name a history that `suite run` has written",
        )


@contextmanager
def watched(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Let a signal end what SQLite does in the block, and end it after `_LONGEST_S`.

    Raises:
        UsageError: it took that long.
    """
    end = time.monotonic() + _LONGEST_S
    raised: list[BaseException] = []

    def is_over() -> bool:
        try:
            return time.monotonic() > end
        except BaseException as error:  # noqa: BLE001 - of a signal; SQLite would swallow it
            raised.append(error)
            return True

    connection.set_progress_handler(is_over, _STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if raised:
            raise raised[0] from None
        if _code(error) == sqlite3.SQLITE_INTERRUPT:
            raise UsageError(f"reading {path} took longer than {_LONGEST_S:g} s") from error
        raise
    finally:
        connection.set_progress_handler(None, 0)


@contextmanager
def foreign(path: Path, wait_s: float) -> Iterator[Path]:
    """A copy of a history of another machine, brought to this schema; the file itself is only read.

    Raises:
        UsageError: it cannot be read, is damaged or no history.
    """
    if not path.exists():
        raise UsageError(f"no history at {path}", hint="`brokerstorm suite run FILE` writes one")
    with tempfile.TemporaryDirectory(prefix="brokerstorm-") as work, told(path, wait_s):
        copy = Path(work) / "history.sqlite"
        for suffix in ("", "-wal"):
            source = Path(f"{path}{suffix}")
            if source.exists():
                _copy(source, Path(f"{copy}{suffix}"))
        try:
            connection = connected(copy, wait_s)
            if connection is None:
                raise UsageError(f"{path} is damaged, or no history; it is left as it is")
            with closing(connection):
                if not _version(connection, path):
                    raise UsageError(f"{path} is empty: there is nothing in it to merge")
                migrate(connection, path)
        except UsageError as error:
            raise UsageError(str(error).replace(str(copy), str(path)), hint=error.hint) from error
        yield copy


def _copy(source: Path, target: Path) -> None:
    with open_regular(source) as file, target.open("wb") as copied:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            raise UsageError(
                f"{source} is larger than {_MOST_BYTES >> 20} MiB: not a history to merge"
            )
        shutil.copyfileobj(file, copied, 1 << 20)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is damaged. Text that is not UTF-8 is damage, because brokerstorm writes
    UTF-8; the error of Python's module has no code then."""
    is_undecodable = _code(error) == 0 and str(error).startswith("Could not decode to UTF-8")
    return is_undecodable or _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: sqlite3.Error) -> int:
    """SQLite's code of an error; 0 for an error of Python's own module, which has none."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def refuse_another_kind(path: Path) -> None:
    """A file that neither begins as a database nor is named like one may be dear to the user.

    Raises:
        UsageError: it is left as it is.
    """
    with open_regular(path) as file:
        begins = file.read(len(_HEADER))
    if begins != _HEADER and path.suffix not in _SUFFIXES:
        raise UsageError(
            f"{path} is not a history, and no database at all; it is left as it is",
            hint=f"name the history another way, such as {path.with_suffix('.sqlite').name}",
        )


def set_aside(path: Path, wait_s: float) -> list[str]:
    """Rename a damaged file and the files next to it; of two processes one does, the other finds it
    done."""
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
    return [
        f"the history {path} was damaged: it was renamed to {aside.name}, and a new one was created"
    ]


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
        raise UsageError(
            f"{path} is a database, but not a history of brokerstorm", hint="name another file"
        )
    return version


@contextmanager
def told(path: Path, wait_s: float) -> Iterator[None]:
    """Errors of SQLite as errors of ours, with the next step."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = _code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise _locked(path, wait_s) from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise EnvironmentNotReady(
                f"cannot write to the history {path}: {error}",
                hint="free some space on that disk; nothing is lost",
            ) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise UsageError(
                f"cannot use {path} as a history: {error}", hint="name a file that can be written"
            ) from error
        raise damaged(path, error) from error
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise damaged(path, error) from error
        raise EnvironmentNotReady(
            f"the history {path} was damaged while it was open: {error}",
            hint="the next command renames it and creates a new one; `history import` adds the runs again",
        ) from error


def damaged(path: Path, error: Exception) -> UsageError:
    """Return the error for a file that SQLite can read and that is not a history."""
    what = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return UsageError(
        f"the history {path} is damaged: {what}",
        hint=f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.damaged')}",
    )


def _locked(path: Path, wait_s: float) -> EnvironmentNotReady:
    return EnvironmentNotReady(
        f"another process has held the history {path} for {wait_s:g} s",
        hint="wait for it to end; `fuser` names the process",
    )
