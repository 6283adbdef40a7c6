"""A night on several machines: one name, one history in the end; and how its runs are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli import main
from harness.rundir import read_json, write_json
from tests.unit.test_history_rounds import finished_run
from tests.unit.test_ten_nights import SUITE, Scripted

NIGHT = "20261122-shared"


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("experiments.nights.playing.NightTurns", Scripted)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    path = tmp_path / "ten.yaml"
    path.write_text(SUITE)
    return path


def play(suite: Path, runs: str, *arguments: str) -> int:
    base = ["--run-dir", str(suite.parent / runs)]
    return main([*base, "suite", "run", str(suite), "--offline", *arguments])


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    capsys.readouterr()
    code = main([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_machines_that_share_a_night_write_one_page(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2, 3):
        assert play(suite, f"m{number}", "--shard", f"{number}/3", "--night", NIGHT) == 0
    files = [tmp_path / f"m{number}" / "history.sqlite" for number in (1, 2, 3)]
    run_dir = ("--run-dir", tmp_path / "all")
    code, merged = answer(capsys, *run_dir, "history", "merge", *files)
    assert (code, set(merged["added"].values())) == (0, {3})  # a cell each, of three rounds
    _, report = answer(capsys, *run_dir, "suite", "report")
    assert (report["night"], len(report["cells"]), report["not_run"]) == (NIGHT, 3, {})


def test_a_history_that_cannot_be_merged_is_told_and_the_others_are_taken(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(suite, "m1", "--night", NIGHT) == 0
    (tmp_path / "torn.sqlite").write_text("nothing of ours " * 500)
    files = (tmp_path / "m1" / "history.sqlite", tmp_path / "torn.sqlite")
    code, merged = answer(capsys, "--run-dir", tmp_path / "all", "history", "merge", *files)
    assert (code, sum(merged["added"].values()), list(merged["left_out"])) == (
        2,
        9,
        [str(files[1])],
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--night", "tonight"], "--night tonight must begin with the day"),
        (["--night", "20261121"], "--night 20261121 would sort before 20261122-shared"),
        (["--night", NIGHT], "20261122-shared is there already"),
        (["--night", NIGHT, "--resume"], "remove --night"),
    ],
)
def test_a_name_that_would_mix_up_nights_is_refused(
    arguments: list[str], said: str, suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(suite, "m1", "--night", NIGHT) == 0
    capsys.readouterr()
    assert play(suite, "m1", *arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_nights_and_their_runs_are_listed(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(suite, "m1", "--only", "kafka-quick", "--night", NIGHT) == 0
    night = tmp_path / "m1" / NIGHT
    first, *others = sorted(path for path in night.glob("*/") if path.name[-1].isdigit())
    first.rmdir()
    made = finished_run(first)
    write_json(made.manifest, {**read_json(made.manifest), "status": "complete"})
    run_dir = ("--run-dir", tmp_path / "m1")
    _, listed = answer(capsys, *run_dir, "list", "nights")
    (row,) = listed["items"]
    assert (row["night"], row["suite"], row["status"], row["verdict"]) == (
        NIGHT,
        "ten",
        "complete",
        "pass: 1 pass",
    )
    _, listed = answer(capsys, *run_dir, "list", "runs", NIGHT)
    by_id = {row["run_id"]: row for row in listed["items"]}
    assert by_id[f"{NIGHT}/{first.name}"]["status"] == "complete"
    assert {row["status"] for name, row in by_id.items() if first.name not in name} == {"removed"}
    assert len(by_id) == len(others) + 1
    assert main([*map(str, run_dir), "show", f"{NIGHT}/{first.name}"]) in (0, 1, 3)
    assert main([*map(str, run_dir), "trace", "1/0/0", NIGHT]) == 2
    assert f"`brokerstorm list runs {NIGHT}` names them" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_night_is_shown_as_it_ended(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert play(suite, "m1", "--only", "kafka-quick", "--night", NIGHT) == 0
    run_dir = ("--run-dir", str(tmp_path / "m1"))
    page = tmp_path / "m1" / NIGHT / "report.html"
    for named in ([NIGHT], []):  # a folder of one night and no run: that is the latest
        capsys.readouterr()
        assert main([*run_dir, "show", *named]) == 0
        out = capsys.readouterr().out
        assert "ten: pass: 1 pass" in out
        assert str(page) in out
        assert main([*run_dir, "show", *named, "--html"]) == 0
    assert opened == [page.as_uri()] * 2
    code, document = answer(capsys, *run_dir, "show", NIGHT)
    assert (code, document) == (0, read_json(page.with_name("suite.json")))
    document["exit_code"] = 1
    write_json(page.with_name("suite.json"), document)
    assert main([*run_dir, "show", NIGHT]) == 1
    page.with_name("suite.json").unlink()
    capsys.readouterr()
    assert main([*run_dir, "show", NIGHT]) == 2
    assert f"{NIGHT} is not over" in capsys.readouterr().err


def test_a_night_that_is_not_there_is_one_line(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--run-dir", str(tmp_path), "list", "runs", "20261122"]) == 2
    assert "no night '20261122' in" in " ".join(capsys.readouterr().err.split())
    assert main(["list", "faults", "20261122"]) == 2


def test_two_nights_are_compared_by_their_names(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for night in ("20261122", "20261123"):
        assert play(suite, "m1", "--only", "kafka-quick", "--night", night) == 0
    run_dir = ("--run-dir", tmp_path / "m1")
    code, found = answer(capsys, *run_dir, "compare", "20261122", "20261123")
    assert (code, found["a"], found["b"]) == (0, "20261122", "20261123")
    assert {row["name"] for row in found["rows"]} >= {"result", "rounds", "p99"}
    assert main([*map(str, run_dir), "compare", "20261122", "other"]) == 2
    assert "20261122 is a night and the other is not" in " ".join(capsys.readouterr().err.split())
