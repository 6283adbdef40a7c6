"""The command that a summary names to repeat a run: all of it, or the one round that the page is
about; from any folder, not only from where it was typed."""

from __future__ import annotations

import os
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from analysis.verdict.campaign import Question
from cli import cli
from commands.repeating import OF_THIS_TIME, repeat_command
from experiments import variants as running
from experiments.bisect.question import BisectRequest
from experiments.hunt.hunting import HuntRequest
from experiments.nights.planning import SuiteRequest, plan_night
from experiments.preflight import Preflight
from experiments.repro import rounds as repro
from experiments.repro.request import ReproRequest
from experiments.shrink.rounds import ShrinkRequest
from experiments.variants import RunRequest
from harness.plan.estimate import Estimate
from harness.rundir import RunDir
from harness.scenario.bundled import BUNDLED
from tests.lent import settings


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
    rounds: int | None,
    variant: str,
    repeated: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = Preflight((), (), Estimate(True, 0, 0, 0, 0, 0.0, 0.0))
    monkeypatch.setattr(running, "preflight", lambda *_, **_more: nothing)
    request = running.RunRequest(
        **{
            "scenario": "kafka-quick",
            "seed": 7,
            "overrides": (),
            "rounds": rounds,
            "variant": variant,
        },
        **{"replay": None, "keep_up": False, "offline": False, "runtime": "auto", "master": None},
    )
    prepared = running.prepare_run(settings(tmp_path), request)
    commands = [request.command for request in prepared.strategy]
    assert commands == [f"brokerstorm run kafka-quick {words}" for words in repeated]


@pytest.mark.parametrize(
    ("variants", "variant", "together"),
    [
        ("{smallest: {expect: stall}}", "", True),
        ("{smallest: {}}", "", False),
        ("{a: {expect: stall}}", "a", False),
    ],
)
def test_the_only_variant_is_judged_by_what_it_is_expected_to_show(
    variants: str, variant: str, together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Preflight((), (), Estimate(True, 0, 0, 0, 0, 0.0, 0.0))
    monkeypatch.setattr(running, "preflight", lambda *_, **_more: nothing)
    path = tmp_path / "smallest.yaml"
    path.write_text(f"name: smallest\nload: {{consumers: {{c: {{}}}}}}\nvariants: {variants}\n")
    request = running.RunRequest(
        **{"scenario": str(path), "seed": 7, "overrides": (), "rounds": None, "variant": variant},
        **{"replay": None, "keep_up": False, "offline": False, "runtime": "auto", "master": None},
    )
    prepared = running.prepare_run(settings(tmp_path), request)
    (asked,) = prepared.strategy
    assert prepared.root.campaign.exists() is together
    assert bool(asked.name) is together


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
    command = running._repeated(settings(folder), asked(RunRequest, **given, runtime="auto"), 7)
    names = ["short.yaml", "build", "runs/r1", "mine.yaml"]
    assert files_of(command) == [str(folder / name) for name in names]
    asked_for = asked(RunRequest, scenario="kafka-quick", replay=None, runtime="auto")
    ready = running._repeated(settings(folder), asked_for, 7)
    assert ready == "brokerstorm run kafka-quick --seed 7"


def test_repro_and_shrink_do_too(folder: Path) -> None:
    shrink = asked(ShrinkRequest, target="short.yaml", overrides=(), runtime="auto")
    assert files_of(settings(folder).repeat_command("shrink", shrink)) == [
        str(folder / "short.yaml")
    ]
    question = asked(Question, quick=True, until_hit=False)
    given = {
        "bug": "short.yaml",
        "overrides": (),
        "client_jars": Path("jars"),
        "fixed": "dir:mine 2.1",
    }
    command = repro._repeated(
        settings(folder), asked(ReproRequest, **given, runtime="auto"), question, 7
    )
    assert files_of(command) == [str(folder / name) for name in ("short.yaml", "jars", "mine 2.1")]


def test_the_cells_and_the_command_of_a_night_mean_the_same_from_any_folder(folder: Path) -> None:
    def night(suite: str) -> Any:
        request = SuiteRequest(suite=suite, seed=5)
        return plan_night(
            settings(folder), request, None, Path("h.sqlite"), lambda text: None
        ).night

    one = night("below/suite.yaml")
    os.chdir(folder / "below")
    other = night("suite.yaml")
    assert [cell.scenario for cell in one.cells] == [
        str(folder / "below" / "near.yaml"),
        "kafka-quick",
    ]
    assert files_of(one.command) == [str(folder / "below" / "suite.yaml")]
    assert (one.command, one.cells, one.turns) == (other.command, other.cells, other.turns)


#: Of each command that plays rounds every option that it repeats; the request that it becomes.
ASKED: dict[str, tuple[str, type]] = {
    "run": (
        "kafka-quick --seed 0 --set load.rate=9 --set a=b=c --for 8h --rounds 2 --until-hit "
        "--max-time 90s --window 5m --fail-fast --variant unsafe --replay r --runtime process "
        "--secure --master local[2]",
        RunRequest,
    ),
    "repro": (
        "sarama-2377 --pair p --rounds 7 --quick --until-hit --max-time 90s --seed 7 --set a=b"
        " --affected 1.0 --fixed 2.0 --runtime docker --master local[2]",
        ReproRequest,
    ),
    "bisect": (
        "kafka-quick --client sarama --good 1 --bad 2 --variant v --class acked-lost"
        " --error 0.125 --rate 0.75 --seed 7 --set a=b --runtime docker --master local[2]",
        BisectRequest,
    ),
    "shrink": (
        "kafka-quick --class hang --variant v --seed 7 --set a=b --runtime docker --master m",
        ShrinkRequest,
    ),
    "hunt": (
        "kafka-quick --client sarama@1 --system kafka --rounds 3 --corpus /c --known hang --known stall"
        " --variant v --seed 7 --set a=b --runtime docker --master m",
        HuntRequest,
    ),
    "suite run": ("nightly --only a --only b --shard 2/4 --seed 7 --runtime docker", SuiteRequest),
}


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters of a command line that say what is done."""
    command, depth = cli.commands[words[0]], 1
    if isinstance(command, click.Group):
        command, depth = command.commands[words[1]], 2
    given = command.make_context(words[0], words[depth:]).params
    return {name: value for name, value in given.items() if name not in OF_THIS_TIME}


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, (line, _) in ASKED.items()])
def test_what_is_repeated_asks_the_same(name: str, line: str) -> None:
    asked = parsed([*name.split(), *line.split()])
    named = {option for option in line.split() if option.startswith("--")}
    given = {name for name, value in asked.items() if value not in (None, False, (), "")}
    assert len(given) >= len(named), "every option of the line is told apart from its default"
    command, *words = shlex.split(repeat_command(cli, name, asked))
    assert (command, parsed(words)) == ("brokerstorm", asked)


@pytest.mark.parametrize(
    ("name", "request_type"), [(name, kind) for name, (_, kind) in ASKED.items()]
)
def test_every_parameter_is_repeated_or_known_not_to_be(name: str, request_type: type) -> None:
    asked = parsed([*name.split(), "x"])
    known = {each.name for each in fields(request_type)} | {"file"}
    assert set(asked) - known == set()
