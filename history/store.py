"""The history file: SQLite, one row a round, whole after kill -9 and with two writers.

Each change is one transaction in a write-ahead log that is synced before `add` returns. Beside the file
stand ``-wal`` and ``-shm`` while it is open (and after a kill -9): copy all three, or close it first.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from statistics import median
from typing import Any, Final

from filelock import FileLock, Timeout

from harness.errors import EnvironmentNotReady, UsageError
from history.rounds import Found, Round
from history.schema import COLUMNS, MIGRATIONS, VERSION

DEFAULT_NAME: Final = "history.sqlite"
#: How long another writer is waited for.
WAIT_S: Final = 30.0
#: Nights that an expected duration is the median of.
_EXPECTED_NIGHTS: Final = 5
_SIDE_FILES: Final = ("-wal", "-shm")
#: Names of databases, and how each SQLite 3 file begins.
_SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")
_HEADER: Final = b"SQLite format 3\0"
_FOUND = ("class", "status", "count", "episodes", "sentence", "message", "place", "said")


class History:
    """An open history. Use `open`, and `close` (or ``with``) when done.

    ``notes``: what opening it had to do that the user must be told, one line each.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, notes: Sequence[str], wait_s: float
    ) -> None:
        self.path = path
        self.notes = list(notes)
        self._connection = connection
        self._wait_s = wait_s

    @classmethod
    def open(cls, path: Path, *, wait_s: float = WAIT_S) -> History:
        """Open a history, made if it is missing and brought to the schema of this version if it is older.

        A damaged file is kept aside under another name and a new one begun; ``notes`` says so.

        Raises:
            UsageError: written by a newer version, something else than a database, or the path cannot be
                used.
            EnvironmentNotReady: another process has held it for ``wait_s``, or the disk is full.
        """
        notes = []
        with _told(path, wait_s):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot make the folder of {path}: {error.strerror}") from error
            connection = _connected(path, wait_s)
            if connection is None:
                _refuse_another_kind(path)
                notes = _set_aside(path, wait_s)
                connection = _connected(path, wait_s)
            if connection is None:
                raise UsageError(f"{path} cannot be used as a history", hint="name another file")
            try:
                _migrate(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, notes, wait_s)

    def close(self) -> None:
        """Close the file; what was added is in it."""
        self._connection.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----- writing

    def add(self, row: Round, *, replace: bool = True) -> bool:
        """Keep a round; with the same ``key`` there is one row, the newer one.

        Args:
            replace: False keeps the row that is there.

        Returns:
            False where a row was there and was kept.

        Raises:
            EnvironmentNotReady: locked for too long, or the disk is full. Nothing of the row is kept.
        """
        values = _values(row)
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        with self._writing() as connection:
            if (
                not replace
                and connection.execute("SELECT 1 FROM rounds WHERE key = ?", (row.key,)).fetchone()
            ):
                return False
            connection.execute("DELETE FROM rounds WHERE key = ?", (row.key,))
            connection.execute(f"INSERT INTO rounds ({names}) VALUES ({marks})", tuple(values.values()))
            connection.executemany(
                f"INSERT INTO findings (key, number, {', '.join(_FOUND)}) VALUES (?, ?{', ?' * len(_FOUND)})",
                [(row.key, number, *asdict(each).values()) for number, each in enumerate(row.found)],
            )
        return True

    def skip(self, night: str, suite: str, cell: str, why: str) -> None:
        """Note that a cell did not run that night, and why; a later call has the last word."""
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?)", (night, suite, cell, why)
            )

    # ----- reading

    def nights(self, suite: str | None = None) -> list[str]:
        """Every night that has a round or a skipped cell, oldest first."""
        query = "SELECT night FROM rounds WHERE {0} UNION SELECT night FROM skipped WHERE {0} ORDER BY night"
        where = "suite = :suite" if suite is not None else ":suite IS NULL"
        return [str(night) for (night,) in self._rows(query.format(where), {"suite": suite})]

    def suites(self) -> list[str]:
        """Every suite, the one that ran last first."""
        query = "SELECT suite FROM rounds GROUP BY suite ORDER BY max(night) DESC, suite"
        return [str(suite) for (suite,) in self._rows(query)]

    def finished_cells(self, night: str, suite: str | None = None) -> dict[str, list[Round]]:
        """By cell, the rounds of a night that came to an end, broken ones too, in their order."""
        made: dict[str, list[Round]] = defaultdict(list)
        query = "WHERE night = ? AND exit_code IS NOT NULL AND (? IS NULL OR suite = ?) ORDER BY cell, round"
        for row in self._rounds(query, (night, suite, suite)):
            made[row.cell].append(row)
        return dict(made)

    def last_rounds(self, cell: str, nights: int, *, suite: str | None = None) -> list[Round]:
        """Every round of a cell in the last ``nights`` nights that it ran in, oldest first."""
        chosen = "cell = :cell AND (:suite IS NULL OR suite = :suite)"
        query = (
            f"WHERE {chosen} AND night IN (SELECT DISTINCT night FROM rounds WHERE {chosen}"
            " ORDER BY night DESC LIMIT :nights) ORDER BY night, round, key"
        )
        return list(self._rounds(query, {"cell": cell, "suite": suite, "nights": nights}))

    def rounds(self, suite: str, *, since: str = "", until: str = "\U0010ffff") -> list[Round]:
        """Every round of a suite from night ``since`` to night ``until``, both included, oldest first."""
        query = "WHERE suite = ? AND night >= ? AND night <= ? ORDER BY night, cell, round, key"
        return list(self._rounds(query, (suite, since, until)))

    def every_round(self) -> Iterator[Round]:
        """Every round of every suite, oldest night first."""
        return self._rounds("ORDER BY night, suite, cell, round, key", ())

    def skipped(self, night: str, suite: str) -> dict[str, str]:
        """Cells that did not run that night -> why."""
        query = "SELECT cell, why FROM skipped WHERE night = ? AND suite = ? ORDER BY cell"
        return {str(cell): str(why) for cell, why in self._rows(query, (night, suite))}

    def expected_s(self, cell: str, *, suite: str | None = None) -> float | None:
        """How long a round of the cell takes: the median of its last nights, seconds; None: unknown."""
        rows = self.last_rounds(cell, _EXPECTED_NIGHTS, suite=suite)
        known = [row.duration_s for row in rows if row.duration_s is not None]
        return median(known) if known else None

    # ----- SQL

    def _rows(self, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        with _told(self.path, self._wait_s):
            return self._connection.execute(query, values).fetchall()

    def _rounds(self, where: str, values: Any) -> Iterator[Round]:
        names = ", ".join(column.name for column in COLUMNS)
        rows = self._rows(f"SELECT {names} FROM rounds {where}", values)
        found: dict[str, list[Found]] = defaultdict(list)
        query = f"SELECT key, {', '.join(_FOUND)} FROM findings WHERE key IN (SELECT key FROM rounds {where})"
        for key, *values_of in self._rows(f"{query} ORDER BY key, number", values):
            found[key].append(_found(values_of))
        for row in rows:
            yield _round(row, found)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which takes the writer's lock at once: no read that has to become a write."""
        with _told(self.path, self._wait_s):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _found(values: Sequence[Any]) -> Found:
    return Found(**dict(zip((field.name for field in fields(Found)), values, strict=True)))


def _values(row: Round) -> dict[str, Any]:
    """Column -> SQLite value."""
    made: dict[str, Any] = {}
    for column in COLUMNS:
        value = getattr(row, column.name)
        made[column.name] = json.dumps(value, default=str) if column.is_json else value
    return made


def _round(values: Sequence[Any], found: Mapping[str, list[Found]]) -> Round:
    made: dict[str, Any] = {}
    for column, value in zip(COLUMNS, values, strict=True):
        made[column.name] = json.loads(value) if column.is_json else value
    for name in ("is_sticky", "is_control"):
        made[name] = bool(made[name])
    return Round(**made, found=found.get(made["key"], []))


# ----- opening -------------------------------------------------------------------------------------------


def _connected(path: Path, wait_s: float) -> sqlite3.Connection | None:
    """A connection to a sound file (or to none yet); None where it is damaged or no database."""
    connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        if connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            return connection
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            connection.close()
            raise
    connection.close()
    return None


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _refuse_another_kind(path: Path) -> None:
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


def _set_aside(path: Path, wait_s: float) -> list[str]:
    """Rename a damaged file and what stands beside it; of two processes one does, the other finds it done."""
    lock = FileLock(f"{path}.lock", timeout=wait_s)
    try:
        with lock:
            again = _connected(path, wait_s)
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


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to `VERSION`, in one transaction.

    Raises:
        UsageError: it is of a newer version, or is a database of something else.
    """
    if _version(connection, path) == VERSION:
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
def _told(path: Path, wait_s: float) -> Iterator[None]:
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
