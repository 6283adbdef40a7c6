"""The command that a summary names to repeat a run: all of it, or the one round that the page is about;
from any folder, not only from where it was typed."""

from __future__ import annotations

import os
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from analysis.verdict.campaign import Question
from commands.console import Settings
from experiments import variants as running
from experiments.nights.planning import SuiteRequest, plan_night
from experiments.preflight import Preflight
from experiments.repro import rounds as repro
from experiments.repro.request import ReproRequest
from experiments.shrink import rounds as shrinks
from experiments.shrink.rounds import ShrinkRequest
from experiments.variants import RunRequest
from harness.plan.estimate import Estimate
from harness.run.interrupts import Interrupts
from harness.rundir import RunDir
from harness.scenario.bundled import BUNDLED


@pytest.mark.parametrize(
    ("rounds", "variant", "repeated"),
    [
        (None, "", ["--seed 7 --variant unsafe", "--seed 7 --variant safe"]),
        (None, "safe", ["--seed 7 --variant safe"]),
        (
            2,
            "",
            [
                "--seed 7 --rounds 1 --variant unsafe",
                "--seed 7 --rounds 1 --variant safe",
                "--seed 8 --rounds 1 --variant unsafe",
                "--seed 8 --rounds 1 --variant safe",
            ],
        ),
    ],
)
def test_each_round_says_how_to_repeat_that_round(
    rounds: int | None, variant: str, repeated: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Preflight((), (), Estimate(True, 0, 0, 0, 0, 0.0))
    monkeypatch.setattr(running, "preflight", lambda *_, **_more: nothing)
    settings = Settings(
        json=False, quiet=True, verbose=0, color=False, run_dir=tmp_path, interrupts=Interrupts()
    )
    request = running.RunRequest(
        **{"scenario": "kafka-quick", "seed": 7, "overrides": (), "rounds": rounds, "variant": variant},
        **{"replay": None, "keep_up": False, "offline": False, "runtime": "auto", "master": None},
    )
    prepared = running.prepare(settings, request)
    commands = [prepared.command_of(plan) for plan in prepared.plans]
    assert commands == [f"brokerstorm run kafka-quick {words}" for words in repeated]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user is: a scenario, and a suite in a folder below."""
    (tmp_path / "short.yaml").write_text((BUNDLED / "kafka-smoke.yaml").read_text())
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "near.yaml").write_text((BUNDLED / "kafka-smoke.yaml").read_text())
    suite = "name: mine\ncells:\n  - scenarios: [near.yaml, kafka-quick]\n"
    (tmp_path / "below" / "suite.yaml").write_text(suite)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(kind: type, **given: Any) -> Any:
    """A request with what is given, and nothing else."""
    return kind(**{each.name: given.get(each.name, each.default if "replay" in each.name else "")
                   for each in fields(kind)} | given)  # fmt: skip


def files_of(command: str) -> list[str]:
    """Words of a command that name a file or a folder."""
    words = [word.partition("dir:")[2] or word for word in shlex.split(command)]
    return [word for word in words if "/" in word or word.endswith(".yaml")]


def test_run_names_its_files_by_their_whole_path(folder: Path) -> None:
    given = {"scenario": "short.yaml", "overrides": ("load.producers.shop.client_version=dir:build",),
             "cluster_file": Path("mine.yaml"), "replay": RunDir(Path("runs/r1"))}  # fmt: skip
    command = running._repeat_command(asked(RunRequest, **given, runtime="auto"), 7)
    names = ["short.yaml", "build", "runs/r1", "mine.yaml"]
    assert files_of(command) == [str(folder / name) for name in names]
    ready = running._repeat_command(asked(RunRequest, scenario="kafka-quick", replay=None, runtime="auto"), 7)
    assert ready == "brokerstorm run kafka-quick --seed 7"


def test_repro_and_shrink_do_too(folder: Path) -> None:
    shrink = asked(ShrinkRequest, target="short.yaml", overrides=(), runtime="auto")
    assert files_of(shrinks._repeat_command(shrink, 7)) == [str(folder / "short.yaml")]
    question = asked(Question, quick=True, until_hit=False)
    request = asked(ReproRequest, bug="short.yaml", overrides=(), runtime="auto", client_jars=Path("jars"))
    command = repro._repeat_command(request, question, 7)
    assert files_of(command) == [str(folder / name) for name in ("short.yaml", "jars")]


def test_the_cells_and_the_command_of_a_night_mean_the_same_from_any_folder(folder: Path) -> None:
    def night(suite: str) -> Any:
        return plan_night(SuiteRequest(suite=suite, seed=5), None, Path("h.sqlite"), lambda text: None).night

    one = night("below/suite.yaml")
    os.chdir(folder / "below")
    other = night("suite.yaml")
    assert [cell.scenario for cell in one.cells] == [str(folder / "below" / "near.yaml"), "kafka-quick"]
    assert files_of(one.command) == [str(folder / "below" / "suite.yaml")]
    assert (one.command, one.cells, one.turns) == (other.command, other.cells, other.turns)
