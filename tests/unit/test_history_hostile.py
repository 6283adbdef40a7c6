"""History files that a stranger wrote or that were damaged: one line of error, never a traceback or
a hang.

A failure names its seed; `damaged(random.Random(seed), ...)` makes the same file again.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from experiments.history import opening
from experiments.history.schema import VERSION
from experiments.history.store import History
from harness.errors import EnvironmentNotReady, UsageError
from tests.history_samples import a_round

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS key, x AS night FROM n"


def a_history(path: Path) -> Path:
    with History.open(path) as history:
        for number in range(3):
            history.add(a_round(1, number, hit=True))
        history.skip("night-01", "nightly", "c", "no time left")
    return path


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    return path


def used(path: Path, tmp_path: Path) -> None:
    """Everything that reads a history, of this machine and of another."""
    with History.open(tmp_path / "own.sqlite") as own:
        own.merge(path)
    with History.open(path) as history:
        list(history.every_round())
        for suite in history.suites():
            for night in history.nights(suite):
                history.skipped(night, suite)


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE rounds", f"CREATE VIEW rounds AS {ENDLESS}"),
        ("CREATE TRIGGER t BEFORE INSERT ON rounds BEGIN DELETE FROM rounds; END",),
        ("DROP TABLE skipped", "CREATE TABLE skipped (night, suite, cell, why)"),
        ("DROP TABLE findings",),
    ],
    ids=["endless view", "trigger", "another table", "no table"],
)
def test_a_history_whose_tables_are_something_else_is_refused(
    statements: tuple[str, ...], tmp_path: Path
) -> None:
    other = changed(a_history(tmp_path / "other.sqlite"), *statements)
    before = other.read_bytes()
    with History.open(tmp_path / "own.sqlite") as own:
        with pytest.raises(UsageError, match="is not as brokerstorm makes it"):
            own.merge(other)
        assert own.nights() == []
    with pytest.raises(UsageError, match=r"other\.sqlite is not a history"):
        History.open(other)
    assert other.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        "settings = '['",
        "settings = x'00ff'",
        "settings = '" + "[" * 5_000 + "'",
        "night = CAST(x'ff' AS TEXT)",
        "sends = '[1]'",
        "seed = 'many'",
        "reasons = '{}'",
        "verdict = 'perhaps'",
    ],
)
def test_a_value_of_another_kind_is_one_line_and_is_not_merged(change: str, tmp_path: Path) -> None:
    other = changed(a_history(tmp_path / "other.sqlite"), f"UPDATE rounds SET {change}")
    with History.open(tmp_path / "own.sqlite") as own:
        with pytest.raises(UsageError, match=r"other\.sqlite"):
            own.merge(other)
        assert own.nights() == []
    with History.open(other) as history, pytest.raises(UsageError, match=r"other\.sqlite"):
        list(history.every_round())


def test_what_takes_too_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_LONGEST_S", 0.2)
    with closing(sqlite3.connect(":memory:")) as connection:
        with (
            pytest.raises(UsageError, match=r"took longer than 0\.2 s"),
            opening.watched(connection, tmp_path),
        ):
            connection.execute(f"SELECT count(*) FROM ({ENDLESS})").fetchall()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_signal_is_heard_while_a_history_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler of a signal runs in the next Python code, which is that of the watch."""
    monkeypatch.setattr(opening.time, "monotonic", [0.0].pop)  # the next call raises
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(IndexError),
        opening.watched(connection, tmp_path),
    ):
        connection.execute(f"SELECT count(*) FROM ({ENDLESS})").fetchall()


def test_a_merge_only_reads_the_other_file(tmp_path: Path) -> None:
    other = a_history(tmp_path / "theirs" / "other.sqlite")
    other.chmod(0o400)
    other.parent.chmod(0o500)
    with History.open(tmp_path / "own.sqlite") as own:
        assert own.merge(other) == (3, 0)
    assert [each.name for each in other.parent.iterdir()] == ["other.sqlite"]
    other.parent.chmod(0o700)


def test_a_schema_that_is_not_utf_8_is_damage(tmp_path: Path) -> None:
    path = a_history(tmp_path / "whole.sqlite")
    content = path.read_bytes()
    assert b" folder TEXT" in content
    path.write_bytes(content.replace(b" folder TEXT", b" f\x84lder TEXT"))
    assert opening.connected(path, wait_s=1) is None


@pytest.mark.slow
def test_much_damage(tmp_path: Path) -> None:
    whole = a_history(tmp_path / "whole.sqlite").read_bytes()
    for seed in range(450):
        path = tmp_path / f"{seed}.sqlite"
        path.write_bytes(damaged(random.Random(seed), whole))
        try:
            used(path, tmp_path)
        except (UsageError, EnvironmentNotReady):
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def damaged(rng: random.Random, content: bytes) -> bytes:
    """A history with one to forty bytes, or a stretch of bytes, that are others, or cut."""
    made = bytearray(content)
    kind = rng.choice(["bytes", "bytes", "page", "cut", "head"])
    if kind == "cut":
        return bytes(made[: rng.randrange(len(made))])
    if kind == "page":
        at = rng.randrange(len(made) - 64)
        made[at : at + 64] = rng.randbytes(64)
    for _ in range(rng.randint(1, 40) if kind == "bytes" else 3):
        made[rng.randrange(100 if kind == "head" else len(made))] = rng.randrange(256)
    return bytes(made)
