"""Histories of machines that shared a night become one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from experiments.history.schema import VERSION
from experiments.history.store import History
from harness.errors import UsageError
from tests.history_samples import a_round


def a_history(path: Path, *cells: str, skipped: str = "") -> Path:
    with History.open(path) as history:
        history.add(a_round(1, cell="before", hit=True))  # what each machine took along
        for cell in cells:
            history.add(a_round(2, cell=cell, hit=cell == "b"))
        if skipped:
            history.skip("night-02", "nightly", skipped, "no time left")
    return path


def test_all_of_it_is_taken_once(tmp_path: Path) -> None:
    first, second = (
        a_history(tmp_path / "1.db", "a"),
        a_history(tmp_path / "2.db", "b", skipped="c"),
    )
    with History.open(tmp_path / "all.sqlite") as history:
        assert [history.merge(each) for each in (first, second, second)] == [(2, 0), (1, 1), (0, 2)]
        assert [row.cell for row in history.rounds("nightly", since="night-02")] == ["a", "b"]
        # with its findings
        assert list(history.every_round())[-1] == a_round(2, cell="b", hit=True)
        assert history.skipped("night-02", "nightly") == {"c": "no time left"}


def test_a_round_that_is_here_stays_as_it_is(tmp_path: Path) -> None:
    other = a_history(tmp_path / "1.db", "a")
    with History.open(tmp_path / "all.sqlite") as history:
        history.add(a_round(1, cell="before", verdict="unknown"))
        assert history.merge(other) == (1, 1)
        assert next(iter(history.every_round())) == a_round(1, cell="before", verdict="unknown")


@pytest.mark.parametrize("fault", ["missing", "damaged", "newer", "of something else", "itself"])
def test_what_cannot_be_merged_is_refused_and_left_as_it_is(fault: str, tmp_path: Path) -> None:
    other = tmp_path / ("all.sqlite" if fault == "itself" else "other.sqlite")
    if fault == "damaged":
        other.write_text("no database " * 500)
    elif fault in ("newer", "of something else"):
        connection = sqlite3.connect(other)
        connection.execute("CREATE TABLE rounds (key TEXT)")
        connection.execute(f"PRAGMA user_version = {VERSION + 1 if fault == 'newer' else 0}")
        connection.close()
    before = other.read_bytes() if other.exists() else b""
    with History.open(tmp_path / "all.sqlite") as history:
        with pytest.raises(UsageError, match=other.name):
            history.merge(other)
        assert history.merge(a_history(tmp_path / "sound.db")) == (1, 0)
    assert fault == "itself" or not before or other.read_bytes() == before
    assert not list(tmp_path.glob("*damaged*"))
