"""A folder in which rounds are played: who holds it, how it is gone on with, what is kept aside."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli import main
from experiments import folders
from experiments.folders import begun, keep_asked, playing, set_aside
from harness.errors import BrokerstormError, EnvironmentNotReady, HealError, Interrupted, UsageError
from harness.rundir import RunDir

GOES_ON = "brokerstorm shrink --resume r1"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setattr(folders, "end_leftovers", lambda run_id: None)
    return RunDir(tmp_path / "r1").create()


def test_what_a_killed_process_left_is_ended_by_who_holds_the_folder_alone(
    root: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(folders, "end_leftovers", ended.append)
    with playing(root, GOES_ON):
        with pytest.raises(EnvironmentNotReady, match="r1 is still being run by another process"):
            playing(root, GOES_ON).__enter__()
        assert ended == ["r1"]
    with playing(root, GOES_ON):
        assert ended == ["r1", "r1"]


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (Interrupted("stopped", signal_number=2), f"`{GOES_ON}` continues"),
        (EnvironmentNotReady("no leader"), f"`{GOES_ON}` continues"),
        (HealError("still paused", hint="`brokerstorm clean`"), "`brokerstorm clean`"),
    ],
)
def test_what_ends_it_early_says_how_to_go_on(
    root: RunDir, error: BrokerstormError, hint: str
) -> None:
    with pytest.raises(type(error)) as caught, playing(root, GOES_ON):
        raise error
    assert caught.value.hint == hint


def test_a_folder_that_is_gone_is_not_gone_on_with(root: RunDir) -> None:
    def fails() -> None:
        with playing(root, GOES_ON):
            shutil.rmtree(root.root)
            raise EnvironmentNotReady("no leader")

    with pytest.raises(EnvironmentNotReady) as caught:
        fails()
    assert caught.value.hint == ""


@dataclass(frozen=True)
class Wanted:
    cls: str


def test_the_folder_to_go_on_in_is_named_by_its_id_or_its_path(tmp_path: Path) -> None:
    folder = RunDir(tmp_path / "runs" / "r1-shrink-x")
    keep_asked(folder, "shrink", Wanted("hang"))
    for name in (folder.run_id, str(folder.root)):
        root, asked = begun(tmp_path / "runs", name, "shrink", Wanted)
        assert (root.root, asked) == (folder.root, Wanted("hang"))
    for name, kind in (("r2", "shrink"), (folder.run_id, "bisect")):
        with pytest.raises(UsageError, match=f"no {kind} '{name}'") as caught:
            begun(tmp_path / "runs", name, kind, Wanted)
    assert caught.value.hint == "found there: none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema_version": 1, "kind": "shrink"}', "asked|document"),
        ('{"schema_version": 1, "kind": "shrink", "asked": {}}', "cls: Field required"),
        ('{"schema_version": 2, "kind": "shrink", "asked": {}}', "schema_version is 2"),
        ("[]", "not a JSON object"),
    ],
)
def test_a_folder_that_is_damaged_or_of_another_version_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    RunDir(tmp_path).experiment.write_text(text)
    with pytest.raises(UsageError, match=message):
        begun(tmp_path, ".", "shrink", Wanted)


def test_a_round_makes_room_and_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "2.8.1-1"
    for number in (1, 2):
        folder.mkdir()
        (folder / "captured").write_text(str(number))
        assert set_aside(folder, "cut") == f"2.8.1-1-cut-{number}"
        assert (tmp_path / f"2.8.1-1-cut-{number}" / "captured").read_text() == str(number)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bisect --resume r1 --seed 7", "a bisection with its original options\n  remove --seed"),
        (
            "shrink --resume r1 --class hang --seed 7",
            "a search with its original options\n  remove --class, --seed",
        ),
        ("suite run quick --resume --only a", "a night with its original options\n  remove --only"),
        ("shrink --resume r1", "no search 'r1'"),
    ],
)
def test_resume_takes_nothing_that_was_decided_before(
    line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--run-dir", str(tmp_path), *line.split()]) == 2
    assert told in capsys.readouterr().err
