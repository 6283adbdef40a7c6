"""Outputs of an application that are rows of a database: a query of the user returns them.

The database is asked in a thread of its own, so that one that does not answer cannot hang a run.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harness.connections.redaction import SecretRemover
from harness.connections.secret import SecretSource
from harness.contracts.plan import ApplicationPlan
from harness.contracts.rows import Bounds
from harness.errors import EnvironmentNotReady
from harness.invocation import how_to_install_extra
from harness.protocols.cluster import StoredMessage
from harness.scenario.sql_output import GROUP, SHARED

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

Answer = TypeVar("Answer")
#: Rows that are fetched together, and how many such parts wait until they are taken.
_ROWS: Final = 1000
_PARTS: Final = 4
#: A question before and during the load is answered within this, or the database is silent.
_ANSWER_S: Final = 10.0
#: How often a thread that waits looks whether it is still wanted.
_LOOK_S: Final = 0.2
#: From 2000 to 2200: a number outside is in seconds, microseconds or nanoseconds.
_TIMES_MS: Final = range(946_684_800_000, 7_258_118_400_000)
_POSITIONS: Final = range(1 << 63)
#: Databases that are a file, which a program creates when it first writes.
_FILES: Final = "sqlite"


@dataclass(frozen=True)
class _End:
    """The last answer of a database; ``error``: why there are no more, or None."""

    error: Exception | None


class QueryRefused(EnvironmentNotReady):
    """The database answers, and refuses the query."""


class SqlOutputs:
    """The rows that a query returns; each is one output."""

    def __init__(self, application: ApplicationPlan, *, shared: Path, group: str) -> None:
        """``shared``, ``group``: the values of these places."""
        assert application.to_sql is not None
        self._key = f"applications.{application.name}.to"
        self._plan = application.to_sql
        self._folder = Path(application.folder)
        self._shared = shared
        self._group = group
        named = str(application.identity.get("column", ""))
        self._columns = [each for each in (named, self._plan.time, self._plan.position) if each]

    # -- the database ------------------------------------------------------------------------------

    @cached_property
    def _password(self) -> str:
        if not self._plan.password:
            return ""
        source = SecretSource(**self._plan.password)
        return source.read(f"{self._key}.password", self._folder).reveal()

    @cached_property
    def _url(self) -> URL:
        """The URL without a password; a path of SQLite begins where the program is started."""
        try:
            alchemy = importlib.import_module("sqlalchemy")
        except ModuleNotFoundError as error:
            raise EnvironmentNotReady(
                f"{self._key}.sql: outputs in a database need SQLAlchemy, which is not installed",
                hint=how_to_install_extra("sql"),
            ) from error
        text = self._plan.url.replace(SHARED, str(self._shared))
        try:
            url: URL = alchemy.make_url(text)
        except (alchemy.exc.ArgumentError, ValueError) as error:
            raise self._not_ready("sql", error) from None
        if url.get_backend_name() == _FILES:
            path = url.database or ""
            if path in ("", ":memory:"):
                raise EnvironmentNotReady(
                    f"{self._key}.sql: a database in memory has no rows of another program",
                    hint=f"name a file: sqlite:///{SHARED}/invoices.db",
                )
            if not path.startswith(("/", "file:")):
                url = url.set(database=str(self._folder / path))
        return url

    @cached_property
    def _engine(self) -> Engine:
        from sqlalchemy import create_engine, event
        from sqlalchemy.exc import ArgumentError
        from sqlalchemy.pool import NullPool

        url = self._url
        if self._password:
            url = url.set(password=self._password)
        try:
            engine = create_engine(url, poolclass=NullPool, hide_parameters=True)
        except ModuleNotFoundError as error:
            raise EnvironmentNotReady(
                f"{self._key}.sql: {url.drivername} needs the Python package {error.name}",
                hint=how_to_install_extra("sql")
                if error.name == "psycopg"
                else f"install it next to brokerstorm: pip install {error.name}",
            ) from error
        except (ArgumentError, TypeError, ValueError) as error:
            raise self._not_ready("sql", error) from None
        if url.get_backend_name() == "sqlite":
            # Its driver commits a WITH that deletes at once; other databases roll it back.
            event.listen(engine, "connect", lambda link, _: link.execute("PRAGMA query_only = ON"))
        return engine

    def _not_ready(self, key: str, error: Exception) -> EnvironmentNotReady:
        """Make an error of what a database or its driver says: one line, without the password."""
        own = getattr(error, "orig", None) or error
        lines = str(own).strip().splitlines() or [type(own).__name__]
        text = SecretRemover([self._password]).text(lines[0]) if self._password else lines[0]
        if key == "query":
            hint = "correct the query, or create what it names before the instances are ready"
            return QueryRefused(f"{self._key}.query: {text}", hint=hint)
        where = self._url.host or self._url.database or self._url.drivername
        hint = f"start the database, and check {self._key}.sql"
        return EnvironmentNotReady(f"{self._key}.{key}: {where}: {text}", hint=hint)

    def _answers(
        self, ask: Callable[[Connection], Iterable[Answer]], timeout_s: float
    ) -> Iterator[Answer]:
        """Ask in a thread; what the database answers, until the time is up.

        Raises:
            QueryRefused: the database refuses the query.
            EnvironmentNotReady: it cannot be reached, or does not answer in time.
        """
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        engine = self._engine
        answers: Queue[Answer | _End] = Queue(_PARTS)
        is_over = threading.Event()
        is_connected = threading.Event()

        def hand_over(answer: Answer | _End) -> None:
            while not is_over.is_set():
                with suppress(Full):
                    answers.put(answer, timeout=_LOOK_S)
                    return

        def run() -> None:
            error: Exception | None = None
            try:
                with engine.connect() as connection:
                    is_connected.set()
                    for answer in ask(connection):
                        hand_over(answer)
                        if is_over.is_set():
                            return
            except Exception as found:  # noqa: BLE001 - drivers raise errors of their own
                error = found
            hand_over(_End(error))

        threading.Thread(target=run, name="outputs-sql", daemon=True).start()
        end = time.monotonic() + timeout_s
        try:
            while True:
                try:
                    answer = answers.get(timeout=max(0.0, end - time.monotonic()))
                except Empty:
                    silent = TimeoutError(f"no answer within {timeout_s:g} s")
                    raise self._not_ready("sql", silent) from None
                if not isinstance(answer, _End):
                    yield answer
                    continue
                error = answer.error
                if error is None:
                    return
                if isinstance(error, EnvironmentNotReady):
                    raise error
                is_gone = isinstance(error, DBAPIError) and error.connection_invalidated
                is_refused = isinstance(error, SQLAlchemyError) and is_connected.is_set()
                raise self._not_ready("query" if is_refused and not is_gone else "sql", error)
        finally:
            is_over.set()

    # -- before and during the load ----------------------------------------------------------------

    def check(self) -> None:
        """Check the driver and the password, and connect, unless the database is a file.

        Raises:
            EnvironmentNotReady: one of these is missing, or the database does not answer.
        """
        self._password  # noqa: B018 - read, so that a missing one is found
        if self._engine.url.get_backend_name() != _FILES:
            list(self._answers(lambda connection: (), _ANSWER_S))

    def open(self, *, is_new: bool) -> str:
        """Check that the query returns no row before there are outputs.

        Args:
            is_new: False: the run is resumed, and has outputs already.

        Returns:
            Why the database refuses the query now, as it does before the program has created its
            tables; empty = it does not.

        Raises:
            EnvironmentNotReady: the database does not answer, a column is missing, or there are
                rows of an earlier run.
        """
        try:
            has_rows = any(self._parts(_ANSWER_S, most=1))
        except QueryRefused as error:
            return str(error)
        if has_rows and is_new:
            raise EnvironmentNotReady(
                f"{self._key}.query: it returns rows before the run has begun",
                hint=f"delete them, or select the rows of this run: WHERE run = :{GROUP}",
            )
        return ""

    def places(self) -> dict[str, str]:
        """The values of ``{database}`` and ``{database-password}``."""
        url = self._url.set(drivername=self._url.get_backend_name())
        return {
            "database": url.render_as_string(hide_password=False),
            "database-password": self._password,
        }

    def close(self) -> None:
        """Nothing is open between questions."""

    def size(self) -> object:
        from sqlalchemy import text

        def ask(connection: Connection) -> Iterator[int]:
            counted = text(f"SELECT COUNT(*) FROM (\n{self._plan.query}\n) outputs_until_now")
            yield int(connection.execute(counted, self._values(counted)).scalar_one())

        return next(self._answers(ask, _ANSWER_S))

    # -- the end -----------------------------------------------------------------------------------

    def stream(self, partition: int) -> str:
        return "rows"

    def read(self, take: Callable[[StoredMessage], None], *, timeout_s: float) -> list[Bounds]:
        number = 0
        for rows in self._parts(timeout_s):
            for row in rows:
                take(self._message(row, number))
                number += 1
        return []

    def _values(self, statement: Any) -> dict[str, str]:
        return {name: self._group for name in statement.compile().params}

    def _parts(self, timeout_s: float, *, most: int = 0) -> Iterator[list[dict[str, Any]]]:
        """Rows in parts, a dictionary each; the first ``most`` of them, 0 = all.

        Raises:
            EnvironmentNotReady: they cannot be read, or lack a column.
        """
        from sqlalchemy import text

        def ask(connection: Connection) -> Iterator[list[dict[str, Any]]]:
            query = text(self._plan.query)
            streaming = connection.execution_options(stream_results=True, max_row_buffer=_ROWS)
            found = streaming.execute(query, self._values(query))
            self._require_columns(list(found.keys()))
            if most:
                yield [dict(row) for row in found.mappings().fetchmany(most)]
                return
            for part in found.mappings().partitions(_ROWS):
                yield [dict(row) for row in part]

        return self._answers(ask, timeout_s)

    def _require_columns(self, columns: Sequence[str]) -> None:
        missing = [each for each in self._columns if each not in columns]
        if missing:
            raise EnvironmentNotReady(
                f"{self._key}.query: it returns no column {missing[0]}, only {', '.join(columns)}",
                hint=f"name a column: SELECT id AS {missing[0]}",
            )

    def _message(self, row: Mapping[str, Any], number: int) -> StoredMessage:
        plan = self._plan
        position = row[plan.position] if plan.position else number
        if type(position) is not int or position not in _POSITIONS:
            raise EnvironmentNotReady(
                f"{self._key}.position: {plan.position} must be a whole number from 0, got {position!r}"
            )
        value, columns = row_as_output(row)
        t_ms = self._time_ms(row[plan.time]) if plan.time else 0
        return StoredMessage(0, position, t_ms, b"", value, columns)

    def _time_ms(self, value: Any) -> int:
        """A time as milliseconds since 1970; 0 = NULL.

        Raises:
            EnvironmentNotReady: the value is not a time.
        """
        if value is None:
            return 0
        with suppress(ValueError):
            at = datetime.fromisoformat(value) if isinstance(value, str) else value
            if isinstance(at, datetime):
                at = at if at.tzinfo else at.replace(tzinfo=UTC)
                at = round(at.timestamp() * 1000)
            if type(at) is int and at in _TIMES_MS:
                return at
        raise EnvironmentNotReady(
            f"{self._key}.time: {self._plan.time} must be a timestamp or milliseconds since 1970, "
            f"got {value!r}"
        )


def row_as_output(row: Mapping[str, Any]) -> tuple[bytes, list[tuple[str, bytes]]]:
    """A row as the value of a message, a JSON object, and as its headers: each column that is not
    NULL."""
    columns = [(name, _bytes(value)) for name, value in row.items() if value is not None]
    value = json.dumps(dict(row), default=_text, ensure_ascii=False)
    return value.encode(errors="replace"), columns


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    return str(value).encode(errors="replace")
