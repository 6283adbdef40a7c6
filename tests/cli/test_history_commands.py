"""suite report, history import and history export, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cli import main
from experiments.history.store import History
from tests.history_samples import regressed
from tests.unit.test_history_rounds import finished_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with History.open(tmp_path / "history.sqlite") as history:
        for row in regressed():
            history.add(row)
    return tmp_path


def call(folder: Path, *arguments: str) -> int:
    return main(["--run-dir", str(folder), *arguments])


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.long
def test_a_report_is_written_and_fails_on_what_is_new_if_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(folder, "suite", "report") == 1  # a cell is red
    out = capsys.readouterr().out
    assert "acked-lost is new in kafka-storm since night-11" in " ".join(out.split())
    written = {path.name for path in (folder / "nightly-report").iterdir()}
    assert written == {"report.html", "summary.md", "junit.xml", "report.json"}
    assert call(folder, "suite", "report", "--fail-on", "new") == 1
    assert call(folder, "suite", "report", "--fail-on", "none") == 0
    assert call(folder, "suite", "report", "--fail-on", "new", "--night", "night-09") == 0


def test_a_report_as_json_is_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(folder, "suite", "report", "--json", "--to", str(folder / "out")) == 1
    assert printed(capsys) == json.loads((folder / "out" / "report.json").read_text())


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["suite", "report", "nope"], "has no suite 'nope'"),
        (["suite", "report", "--night", "never"], "no night 'never' of nightly"),
        (
            ["suite", "report", "--history", "missing.sqlite"],
            "no history at missing.sqlite yet",
        ),
        (
            ["history", "export", "x.parquet", "--history", "missing.sqlite"],
            "no history at",
        ),
        (["history", "import", "nope"], "no run 'nope'"),
    ],
)
def test_what_is_not_there_is_one_line(
    folder: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(folder, *arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_damaged_history_is_told_and_a_new_one_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "history.sqlite").write_text("nothing of ours " * 500)
    finished_run(tmp_path / "r1")
    assert call(tmp_path, "history", "import", "r1") == 0
    said = capsys.readouterr()
    assert "was damaged: it was renamed to history.sqlite.damaged-" in said.err
    assert "1 rounds added, 0 were there" in said.out


def test_runs_are_taken_in_once_and_those_without_a_verdict_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished_run(tmp_path / "r1")
    finished_run(tmp_path / "r2").result.unlink()
    assert call(tmp_path, "history", "import", "r1", "r2", "--json") == 0
    first = printed(capsys)
    assert (first["added"], first["already_there"], list(first["left_out"])) == (
        1,
        0,
        [str(tmp_path / "r2")],
    )
    assert call(tmp_path, "history", "import", "r1", "--json") == 0
    assert (printed(capsys)["added"], call(tmp_path, "history", "import", "r2")) == (0, 2)


def test_the_export_holds_every_round_with_null_for_unknown(folder: Path) -> None:
    file = folder / "out" / "h.parquet"
    assert call(folder, "history", "export", str(file)) == 0
    rows = duckdb.sql(
        f"SELECT count(*), count(rate_held_per_s), count(p99_ms), sum(len(findings)) FROM '{file}'"
    ).fetchall()
    assert rows == [(109, 0, 108, 3)]
    assert [path.name for path in file.parent.iterdir()] == ["h.parquet"]


def test_a_history_goes_through_a_store_to_another_machine(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, other = f"file://{tmp_path}/store/shard-2", tmp_path / "other"
    assert call(folder, "history", "upload", url) == 0
    there = capsys.readouterr().out.strip()
    assert there == f"{url}/history.sqlite"
    assert call(other, "history", "merge", there, f"{url}/none.sqlite", "--json") == 2
    found = printed(capsys)
    assert found["added"] == {there: len(regressed())}
    assert "cannot read" in found["left_out"][f"{url}/none.sqlite"]
    assert call(folder, "history", "upload", "shard-2") == 2
    assert "shard-2 is not a URL" in capsys.readouterr().err
