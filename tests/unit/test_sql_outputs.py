"""Outputs in a database: rows of SQLite and of PostgreSQL, and databases that cannot be used."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.plan import ApplicationPlan, DatabasePlan
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import StoredMessage
from harness.run import sql_outputs
from harness.run.identity import identity_reader
from harness.run.sql_outputs import SqlOutputs
from tests.planted.tiny_applications import applied
from tests.postgres import PASSWORD, Postgres, postgres, postgres_programs

pytest.importorskip("sqlalchemy")

QUERY = "SELECT id, stored, number FROM invoices WHERE run = :group ORDER BY number"
TABLE = "CREATE TABLE invoices (id TEXT, stored TEXT, number INTEGER, run TEXT)"
ROWS = [
    ("1/0/7", "2026-11-28T01:00:00.250+00:00", 3, "billing-7"),
    ("1/0/8", "2026-11-28 01:00:01", 4, "billing-7"),
    ("1/0/7", None, 6, "billing-7"),
    ("1/0/1", None, 1, "billing-6"),
]
AT_MS = 1_795_827_600_250


def outputs(tmp_path: Path, column: str = "id", **changes: Any) -> SqlOutputs:
    database = {"url": "sqlite:///invoices.db", "query": QUERY, "time": "stored", **changes}
    identity: dict[str, str | bool] = {"column": column} if column else {"json": "/id"}
    application = (
        applied()
        .plan.applications[0]
        .model_copy(
            update={
                "to": "",
                "to_sql": DatabasePlan(**database),
                "identity": identity,
                "folder": str(tmp_path),
            }
        )
    )
    assert isinstance(application, ApplicationPlan)
    return SqlOutputs(application, shared=tmp_path / "shared", group="billing-7")


def fill(path: Path, rows: Sequence[tuple[object, ...]] = ROWS) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(TABLE)
        database.executemany("INSERT INTO invoices VALUES (?, ?, ?, ?)", rows)


def read(source: SqlOutputs) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    assert source.read(found.append, timeout_s=10) == []
    return found


def test_each_row_of_this_run_is_an_output_that_names_its_input(tmp_path: Path) -> None:
    fill(tmp_path / "invoices.db")
    source = outputs(tmp_path, position="number")
    found = read(source)
    assert [(m.position, m.t_ms) for m in found] == [(3, AT_MS), (4, AT_MS + 750), (6, 0)]
    name_input = identity_reader({"column": "id"}, 1)
    seqs = [int.from_bytes((name_input(m) or b"")[16:24], "little") for m in found]
    assert seqs == [7, 8, 7]
    assert source.size() == 3
    assert source.stream(0) == "rows"


def test_without_a_column_for_them_there_are_numbers_and_no_times(tmp_path: Path) -> None:
    fill(tmp_path / "invoices.db")
    found = read(outputs(tmp_path, time=""))
    assert [(m.position, m.t_ms) for m in found] == [(0, 0), (1, 0), (2, 0)]


def test_a_query_may_end_with_a_comment(tmp_path: Path) -> None:
    fill(tmp_path / "invoices.db")
    assert outputs(tmp_path, query=f"{QUERY} -- of this run").size() == 3


def test_rows_before_the_run_are_refused_unless_it_is_resumed(tmp_path: Path) -> None:
    fill(tmp_path / "invoices.db")
    with pytest.raises(EnvironmentNotReady) as caught:
        outputs(tmp_path).open(is_new=True)
    assert str(caught.value) == (
        "applications.billing.to.query: it returns rows before the run has begun"
    )
    assert "WHERE run = :group" in caught.value.hint
    assert outputs(tmp_path).open(is_new=False) == ""


def test_a_table_that_the_program_will_create_is_no_error_yet(tmp_path: Path) -> None:
    assert outputs(tmp_path).open(is_new=True) == (
        "applications.billing.to.query: no such table: invoices"
    )
    fill(tmp_path / "invoices.db", rows=[])
    assert outputs(tmp_path).open(is_new=True) == ""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"column": "order_id"}, "query: it returns no column order_id, only id, stored, number"),
        ({"position": "nr"}, "query: it returns no column nr, only id, stored, number"),
        ({"position": "id"}, "position: id must be a whole number from 0, got '1/0/7'"),
        (
            {"query": "SELECT id, 1795827600000000 AS stored FROM invoices"},
            "time: stored must be a timestamp or milliseconds since 1970, got 1795827600000000",
        ),
        (
            {"query": "SELECT id, 1795827600 AS stored FROM invoices"},
            "time: stored must be a timestamp or milliseconds since 1970, got 1795827600",
        ),
        (
            {"query": "SELECT id, -1 AS number, stored FROM invoices", "position": "number"},
            "position: number must be a whole number from 0, got -1",
        ),
        ({"time": "id"}, "time: id must be a timestamp or milliseconds since 1970, got '1/0/7'"),
        ({"query": "SELEKT 1"}, 'query: near "SELEKT": syntax error'),
        (
            {"query": "WITH old AS (SELECT 1) DELETE FROM invoices RETURNING id, stored"},
            "query: attempt to write a readonly database",
        ),
        ({"url": "sqlite:////no/such/x.db"}, "sql: /no/such/x.db: unable to open database file"),
        ({"url": "sqlite://"}, "sql: a database in memory has no rows of another program"),
        ({"url": "nosuch://x/y"}, "sql: x: Can't load plugin: sqlalchemy.dialects:nosuch"),
        ({"url": "mysql+pymysql://u@x/y"}, "sql: mysql+pymysql needs the Python package pymysql"),
        (
            {"password": {"env": "NO_SUCH_VARIABLE"}},
            "password: the environment variable NO_SUCH_VARIABLE is empty or not set",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    fill(tmp_path / "invoices.db")
    with pytest.raises(EnvironmentNotReady) as caught:
        read(outputs(tmp_path, **changes))
    assert str(caught.value) == f"applications.billing.to.{problem}"


def test_a_database_that_does_not_answer_does_not_hang_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(sql_outputs, "_ANSWER_S", 0.2)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"postgresql+psycopg://billing@127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(EnvironmentNotReady, match=r"127\.0\.0\.1: no answer within 0\.2 s"):
            outputs(tmp_path, url=url).check()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    pytest.importorskip("psycopg")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server (apt-get install postgresql), or no user to run it")
    with postgres(programs) as running:
        yield running


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return "password"


@pytest.mark.long
def test_rows_of_postgresql_are_read_and_its_password_is_in_no_message(
    tmp_path: Path, server: Postgres, password_file: str
) -> None:
    import psycopg

    password = {"file": password_file}
    query = QUERY.replace("id,", "number::text AS id,")
    source = outputs(tmp_path, url=server.url, query=query, password=password, position="number")
    source.check()
    assert source.open(is_new=True) == (
        'applications.billing.to.query: relation "invoices" does not exist'
    )
    places = source.places()
    assert places["database-password"] == PASSWORD
    assert places["database"] == f"postgresql://billing@127.0.0.1:{server.port}/postgres"
    with psycopg.connect(places["database"], password=PASSWORD) as database:
        database.execute(TABLE.replace("stored TEXT", "stored TIMESTAMPTZ"))
        database.cursor().executemany("INSERT INTO invoices VALUES (%s, %s, %s, %s)", ROWS)
    assert source.size() == 3
    assert [(m.position, m.t_ms) for m in read(source)] == [(3, AT_MS), (4, AT_MS + 750), (6, 0)]

    (tmp_path / "password").write_text("wrong password")
    with pytest.raises(EnvironmentNotReady) as caught:
        outputs(tmp_path, url=server.url, password=password).check()
    assert "password authentication failed" in str(caught.value)
    assert "wrong password" not in str(caught.value)
    assert "\n" not in str(caught.value)
