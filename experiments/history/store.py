"""The history file: SQLite, one row a round, whole after kill -9 and with two writers.

Each change is one transaction in a write-ahead log that is synced before `add` returns. Beside the
file are ``-wal`` and ``-shm`` while it is open (and after a kill -9): copy all three, or close it
first.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from statistics import median
from typing import Any, Final

from experiments.history.opening import (
    connected,
    damaged,
    foreign,
    migrate,
    refuse_another_kind,
    set_aside,
    told,
    watched,
)
from experiments.history.rounds import Found, Round
from experiments.history.schema import COLUMNS
from harness.contracts import typed
from harness.errors import UsageError
from harness.rundir import Document

DEFAULT_NAME: Final = "history.sqlite"
#: How long another writer is waited for.
WAIT_S: Final = 30.0
#: Nights that an expected duration is the median of.
_EXPECTED_NIGHTS: Final = 5
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
        """Open a history, made if it is missing and brought to the schema of this version if it is
        older.

        A damaged file is kept aside under another name and a new one begun; ``notes`` says so.

        Raises:
            UsageError: written by a newer version, something else than a database, or the path
                cannot be used.
            EnvironmentNotReady: another process has held it for ``wait_s``, or the disk is full.
        """
        notes = []
        with told(path, wait_s):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot create the folder of {path}: {error.strerror}") from error
            connection = connected(path, wait_s)
            if connection is None:
                refuse_another_kind(path)
                notes = set_aside(path, wait_s)
                connection = connected(path, wait_s)
            if connection is None:
                raise UsageError(f"{path} cannot be used as a history", hint="name another file")
            try:
                migrate(connection, path)
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
            EnvironmentNotReady: locked for too long, or the disk is full. Nothing of the row is
                kept.
        """
        with self._writing() as connection:
            return _insert(connection, row, replace=replace)

    def skip(self, night: str, suite: str, cell: str, why: str) -> None:
        """Note that a cell did not run that night, and why; a later call has the last word."""
        with self._writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO skipped VALUES (?, ?, ?, ?)", (night, suite, cell, why)
            )

    def copy_to(self, path: Path) -> None:
        """A whole copy of it in one file, while others may write to it.

        Raises:
            EnvironmentNotReady: locked for too long, or the disk is full.
        """
        with told(path, self._wait_s):
            self._connection.execute("VACUUM INTO ?", (str(path),))

    def merge(self, source: Path) -> tuple[int, int]:
        """Take all of another history that is not here yet, or nothing; (rounds added, already
        here).

        The other file stays as it is.

        Raises:
            UsageError: it is this file, no history, damaged, or of a newer schema.
            EnvironmentNotReady: locked for too long, or the disk is full.
        """
        if source.exists() and self.path.samefile(source):
            raise UsageError(
                f"{source} is the history that others are merged into",
                hint="remove it from the command",
            )
        with (
            foreign(source, self._wait_s) as copy,
            History.open(copy) as other,
            watched(other._connection, source),
        ):
            other.path = source  # for messages
            rounds, skipped = list(other.every_round()), other._every_skipped()
        with self._writing() as connection:
            added = sum(_insert(connection, row, replace=False) for row in rounds)
            connection.executemany("INSERT OR IGNORE INTO skipped VALUES (?, ?, ?, ?)", skipped)
        return added, len(rounds) - added

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

    def last_rounds(self, cell: str, nights: int, *, suite: str | None = None) -> list[Round]:
        """Every round of a cell in the last ``nights`` nights that it ran in, oldest first."""
        chosen = "cell = :cell AND (:suite IS NULL OR suite = :suite)"
        query = (
            f"WHERE {chosen} AND night IN (SELECT DISTINCT night FROM rounds WHERE {chosen}"
            " ORDER BY night DESC LIMIT :nights) ORDER BY night, round, key"
        )
        return list(self._rounds(query, {"cell": cell, "suite": suite, "nights": nights}))

    def rounds(self, suite: str, *, since: str = "", until: str = "\U0010ffff") -> list[Round]:
        """Every round of a suite from night ``since`` to night ``until``, both included, oldest
        first."""
        query = "WHERE suite = ? AND night >= ? AND night <= ? ORDER BY night, cell, round, key"
        return list(self._rounds(query, (suite, since, until)))

    def every_round(self) -> Iterator[Round]:
        """Every round of every suite, oldest night first."""
        return self._rounds("ORDER BY night, suite, cell, round, key", ())

    def skipped(self, night: str, suite: str) -> dict[str, str]:
        """Cells that did not run that night -> why."""
        query = "SELECT cell, why FROM skipped WHERE night = ? AND suite = ? ORDER BY cell"
        return {str(cell): str(why) for cell, why in self._rows(query, (night, suite))}

    def _every_skipped(self) -> list[tuple[str, str, str, str]]:
        """Night, suite, cell and reason of every cell that did not run."""
        rows = self._rows("SELECT night, suite, cell, why FROM skipped ORDER BY night, suite, cell")
        if not all(isinstance(value, str) for row in rows for value in row):
            raise damaged(
                self.path, ValueError("a cell that did not run has a value that is not text")
            )
        return [(night, suite, cell, why) for night, suite, cell, why in rows]

    def expected_s(self, cell: str, *, suite: str | None = None) -> float | None:
        """How long a round of the cell takes: the median of its last nights, seconds; None:
        unknown."""
        rows = self.last_rounds(cell, _EXPECTED_NIGHTS, suite=suite)
        known = [row.duration_s for row in rows if row.duration_s is not None]
        return median(known) if known else None

    # ----- SQL

    def _rows(self, query: str, values: Any = ()) -> list[tuple[Any, ...]]:
        with told(self.path, self._wait_s):
            return self._connection.execute(query, values).fetchall()

    def _rounds(self, where: str, values: Any) -> Iterator[Round]:
        names = ", ".join(column.name for column in COLUMNS)
        rows = self._rows(f"SELECT {names} FROM rounds {where}", values)
        found: dict[str, list[Document]] = defaultdict(list)
        query = f"SELECT key, {', '.join(_FOUND)} FROM findings WHERE key IN (SELECT key FROM rounds {where})"
        for key, *values_of in self._rows(f"{query} ORDER BY key, number", values):
            found[key].append(_found(values_of))
        for row in rows:
            try:
                made = _round(row, found)
            except (ValueError, TypeError, RecursionError) as error:
                raise damaged(self.path, error) from error
            yield typed(made, Round, f"{self.path}: round {ascii(row[0])[:80]}")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which takes the writer's lock at once: no read that has to become a
        write."""
        with told(self.path, self._wait_s):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, row: Round, *, replace: bool) -> bool:
    """Write a round within the transaction; False where one was there and was kept."""
    if (
        not replace
        and connection.execute("SELECT 1 FROM rounds WHERE key = ?", (row.key,)).fetchone()
    ):
        return False
    values = _values(row)
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    connection.execute("DELETE FROM rounds WHERE key = ?", (row.key,))
    connection.execute(f"INSERT INTO rounds ({names}) VALUES ({marks})", tuple(values.values()))
    connection.executemany(
        f"INSERT INTO findings (key, number, {', '.join(_FOUND)}) VALUES (?, ?{', ?' * len(_FOUND)})",
        [(row.key, number, *asdict(each).values()) for number, each in enumerate(row.found)],
    )
    return True


def _found(values: Sequence[Any]) -> Document:
    return dict(zip((field.name for field in fields(Found)), values, strict=True))


def _values(row: Round) -> dict[str, Any]:
    """Column -> SQLite value."""
    made: dict[str, Any] = {}
    for column in COLUMNS:
        value = getattr(row, column.name)
        made[column.name] = json.dumps(value, default=str) if column.is_json else value
    return made


def _round(values: Sequence[Any], found: Mapping[str, list[Document]]) -> Document:
    """The fields of a `Round`, not checked yet."""
    made: Document = {}
    for column, value in zip(COLUMNS, values, strict=True):
        made[column.name] = json.loads(value) if column.is_json else value
    for name in ("is_sticky", "is_control"):
        made[name] = bool(made[name])
    return made | {"found": found.get(made["key"], [])}
