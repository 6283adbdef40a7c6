"""The history file: idempotent, whole after kill -9, with two writers, of another schema, locked,
damaged."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.history.rounds import Found, Round
from experiments.history.schema import VERSION
from experiments.history.store import History
from harness.errors import EnvironmentNotReady, UsageError

ROOT = Path(__file__).resolve().parents[2]
#: Adds rounds for ever, and says each one's number when `add` has returned.
WRITER = """
import sys, itertools
from pathlib import Path
from experiments.history.rounds import Round
from experiments.history.store import History
name, file = sys.argv[1:]
with History.open(Path(file)) as history:
    for number in itertools.count():
        row = Round(key=f"{name}-{number}", night="n1", suite="s", cell=name, scenario="x", exit_code=0)
        history.add(row)
        print(number, flush=True)
"""


def a_round(key: str = "k1", **changes: Any) -> Round:
    made = Round(
        key=key,
        night="2026-11-20",
        suite="nightly",
        cell="kafka-storm",
        scenario="kafka-storm",
        seed=2**63 - 1,
        verdict="fail",
        exit_code=1,
        found=[
            Found(cls="acked-lost", status="violation", count=3, message="1/2/3", where="orders-2")
        ],
        latency_ms={"p99": 12.5},
        recoveries_s=[0.5],
        settings={"acks": "all"},
        duration_s=60.0,
    )
    return replace(made, **changes)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def test_a_round_comes_back_as_it_was_added_and_only_once(file: Path) -> None:
    with History.open(file) as history:
        assert history.add(a_round())
        assert history.add(a_round(verdict="pass", found=[]))
        assert not history.add(a_round(), replace=False)
    with History.open(file) as history:
        assert list(history.every_round()) == [a_round(verdict="pass", found=[])]
        assert history.add(a_round())
        assert list(history.every_round()) == [a_round()]


def test_unknown_is_null(file: Path) -> None:
    with History.open(file) as history:
        history.add(a_round(seed=None, duration_s=None, verdict=None, latency_ms={}))
    question = "SELECT seed, duration_s, verdict, json_extract(latency_ms, '$.p99') FROM rounds"
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute(question).fetchall() == [(None, None, None, None)]


def test_what_a_suite_asks(file: Path) -> None:
    with History.open(file) as history:
        for night in (1, 2, 3):
            for number in (1, 2):
                row = a_round(
                    f"{night}-{number}", night=f"n{night}", round=number, duration_s=10.0 * night
                )
                history.add(row)
        history.add(a_round("open", night="n3", cell="other", exit_code=None))
        history.skip("n3", "nightly", "big", "no time left")
        assert history.nights() == ["n1", "n2", "n3"]
        assert [row.key for row in history.last_rounds("kafka-storm", 2)] == [
            "2-1",
            "2-2",
            "3-1",
            "3-2",
        ]
        assert history.expected_s("kafka-storm") == 20.0
        assert history.expected_s("never") is None
        assert history.skipped("n3", "nightly") == {"big": "no time left"}
        assert [row.key for row in history.rounds("nightly", since="n3")] == ["3-1", "3-2", "open"]


def writer(name: str, file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, name, str(file)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def test_two_writers_and_kill_9_lose_no_round_that_was_added(file: Path) -> None:
    """Both are killed in the middle of writing; each said of how many rounds `add` had returned."""
    History.open(file).close()
    writers = {name: writer(name, file) for name in ("a", "b")}
    said = {}
    for name, process in writers.items():
        assert process.stdout is not None
        said[name] = [process.stdout.readline() for _ in range(25)]
    for process in writers.values():
        process.send_signal(signal.SIGKILL)
    for name, process in writers.items():
        said[name] += process.communicate()[0].splitlines()
    with History.open(file) as history:
        assert history.notes == []
        kept = Counter(row.cell for row in history.every_round())
    assert {name: kept[name] - len(said[name]) for name in kept} in (
        {"a": more_a, "b": more_b} for more_a in (0, 1) for more_b in (0, 1)
    )  # the last one may have been added and not yet said


def test_a_newer_schema_is_refused_and_left_as_it_is(file: Path) -> None:
    History.open(file).close()
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(UsageError, match=f"schema {VERSION + 1}"):
        History.open(file)
    assert [path.name for path in file.parent.iterdir() if "damaged" in path.name] == []


def test_the_database_of_something_else_is_refused(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE cookies (name TEXT)")
    connection.close()
    with pytest.raises(UsageError, match="not a history of brokerstorm"):
        History.open(file)


def test_a_locked_file_is_waited_for_and_then_told(file: Path) -> None:
    History.open(file).close()
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with History.open(file, wait_s=0.05) as history:
        with pytest.raises(
            EnvironmentNotReady, match=r"another process has held the history .* for 0\.05 s"
        ):
            history.add(a_round())
        holder.execute("ROLLBACK")
        assert history.add(a_round())
    holder.close()


@pytest.mark.parametrize("damage", ["no database", "torn"])
def test_a_damaged_file_is_kept_aside_told_and_a_new_one_begun(file: Path, damage: str) -> None:
    if damage == "no database":
        file.write_text("this is not a database, " * 100)
    else:
        with History.open(file) as history:
            for number in range(300):
                history.add(a_round(str(number)))
        data = bytearray(file.read_bytes())
        data[8192 : 8192 * 4] = os.urandom(8192 * 3)
        file.write_bytes(data)
    before = file.read_bytes()
    with History.open(file) as history:
        (note,) = history.notes
        history.add(a_round())
        assert len(list(history.every_round())) == 1
    (aside,) = [path for path in file.parent.iterdir() if "damaged" in path.name]
    assert aside.name in note
    assert aside.read_bytes() == before


def test_a_file_of_another_kind_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "suite.yaml"
    mine.write_text("cells: []\n")
    with pytest.raises(UsageError, match="no database at all; it is left as it is"):
        History.open(mine)
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert mine.read_text() == "cells: []\n"


def test_a_path_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="as a history"):
        History.open(tmp_path)
