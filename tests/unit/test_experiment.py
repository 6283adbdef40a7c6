"""A folder in which rounds are played: who holds it, how it is gone on with, what is kept aside."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli import main
from experiments import experiment
from experiments.campaign import Campaign, try_round
from experiments.experiment import begun, playing, set_aside
from harness.errors import BrokerstormError, EnvironmentNotReady, HealError, Interrupted, UsageError
from harness.rundir import RunDir

GOES_ON = "brokerstorm shrink --resume r1"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setattr(experiment, "end_leftovers", lambda run_id: None)
    return RunDir(tmp_path / "r1").create()


def test_what_a_killed_process_left_is_ended_by_who_holds_the_folder_alone(
    root: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(experiment, "end_leftovers", ended.append)
    with playing(root, GOES_ON):
        with pytest.raises(EnvironmentNotReady, match="r1 is still being run by another process"):
            playing(root, GOES_ON).__enter__()
        assert ended == ["r1"]
    with playing(root, GOES_ON):
        assert ended == ["r1", "r1"]


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (Interrupted("stopped", signal_number=2), f"`{GOES_ON}` goes on"),
        (EnvironmentNotReady("no leader"), f"`{GOES_ON}` goes on"),
        (HealError("still paused", hint="`brokerstorm clean`"), "`brokerstorm clean`"),
    ],
)
def test_what_ends_it_early_says_how_to_go_on(root: RunDir, error: BrokerstormError, hint: str) -> None:
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


def test_the_folder_to_go_on_in_is_named_by_its_id_or_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r1"
    folder.mkdir(parents=True)
    (folder / "shrink.json").write_text("{}")
    for name in ("r1", str(folder)):
        assert begun(tmp_path / "runs", name, "shrink.json", "search").root == folder
    with pytest.raises(UsageError, match="no search 'r2'") as caught:
        begun(tmp_path / "runs", "r2", "shrink.json", "search")
    assert caught.value.hint == "there: r1"


def test_a_round_makes_room_and_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "2.8.1-1"
    for number in (1, 2):
        folder.mkdir()
        (folder / "captured").write_text(str(number))
        assert set_aside(folder, "cut") == f"2.8.1-1-cut-{number}"
        assert (tmp_path / f"2.8.1-1-cut-{number}" / "captured").read_text() == str(number)
    assert not folder.exists()


def test_a_cluster_in_trouble_is_replaced_but_not_before_anything_was_played() -> None:
    closed: list[None] = []

    def not_ready(*_: object, **__: object) -> None:
        raise EnvironmentNotReady("no leader\nfor orders-3")

    campaign = cast("Campaign", SimpleNamespace(run_round=not_ready, close=lambda: closed.append(None)))
    plan: Any = None
    with pytest.raises(EnvironmentNotReady):
        try_round(campaign, plan, RunDir(Path()), command="", is_first=True)
    assert closed == []
    why = try_round(campaign, plan, RunDir(Path()), command="", is_first=False)
    assert (why, len(closed)) == ("the cluster was not ready: no leader for orders-3", 1)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bisect --resume r1 --seed 7", "a bisection as it was begun\n  leave out --seed"),
        ("shrink --resume r1 --class hang --seed 7", "a search as it was begun\n  leave out --class, --seed"),
        ("suite run quick --resume --only a", "a night as it was begun\n  leave out --only"),
        ("shrink --resume r1", "no search 'r1'"),
    ],
)
def test_resume_takes_nothing_that_was_decided_before(
    line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--run-dir", str(tmp_path), *line.split()]) == 2
    assert told in capsys.readouterr().err
