"""From a suite and its history to a night: expected times, red seeds, rows of broken turns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cli import main
from experiments.history.rounds import Round
from experiments.history.store import History
from experiments.nights import playing
from experiments.nights.choice import Shard
from experiments.nights.night import Night, NightDir
from experiments.nights.planning import (
    SuiteRequest,
    keep_scenarios,
    plan_night,
    refuse_edited,
    tidy,
)
from experiments.nights.playing import NightTurns, with_whole_time
from experiments.resolved import Resolved
from harness.errors import Exit, UsageError
from tests.lent import settings
from tests.unit.test_nights import an_end

SUITE = """
name: mine
budget: 10m
cells:
  - scenarios: [kafka-smoke, kafka-acks1]
  - bugs: [sarama-2377]
    rounds: 2
"""
RED = Round(
    key="1", night="20260101", suite="mine", cell="kafka-smoke", scenario="kafka-smoke", expect="clean",
    seed=4711, verdict="fail", exit_code=1, duration_s=99.0, folder="/runs/1",
)  # fmt: skip


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(SUITE)
    return str(path)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History.open(tmp_path / "history.sqlite") as made:
        yield made


def plan(suite: str, history: History | None, **changes: object):  # type: ignore[no-untyped-def]
    request = replace(SuiteRequest(suite=suite, seed=5), **changes)  # type: ignore[arg-type]
    return plan_night(
        settings(Path("runs")), request, history, Path("history.sqlite"), lambda text: None
    )


def test_without_a_history_times_are_guessed_from_the_load(suite: str) -> None:
    expected = plan(suite, None).choice.expected_s
    # warm-up and load, and 25 s around it; of two variants, or of both versions of a bug, twice
    assert expected == {
        "kafka-smoke": 37.0, "kafka-acks1": 2 * (35.0 + 25.0), "sarama-2377 stopped-broker": 2 * (11.0 + 25.0)
    }  # fmt: skip


def test_a_history_gives_times_and_seeds_that_are_still_red(suite: str, history: History) -> None:
    history.add(RED)
    planned = plan(suite, history)
    turns = [turn for turn in planned.night.turns if turn.cell == "kafka-smoke"]
    assert [(turn.seed == 4711, turn.is_sticky, turn.expected_s) for turn in turns] == [
        (False, False, 99.0), (True, True, 99.0),
    ]  # fmt: skip
    assert planned.choice.expected_s["kafka-smoke"] == 198.0


def test_what_does_not_fit_is_left_out_and_says_why(suite: str) -> None:
    night = plan(suite, None, budget_s=120.0).night
    assert [cell.id for cell in night.cells] == ["kafka-smoke", "sarama-2377 stopped-broker"]
    assert night.left_out == {"kafka-acks1": "would not fit the budget: about 120 s"}


def test_the_command_line_decides_what_the_suite_leaves_open(suite: str) -> None:
    night = plan(suite, None, runtime="process", shard=Shard(1, 3), fail_on="none").night
    assert {cell.runtime for cell in night.cells} == {"process"}
    assert (night.shard, night.fail_on, len(night.cells)) == ("1/3", "none", 1)
    assert night.command.endswith("--shard 1/3 --seed 5 --runtime process")


@pytest.mark.parametrize(
    ("hunt", "told"),
    [
        ("{client: sarama, budget: 2s}", "a budget of 2 s is shorter than one round"),
        ("{client: sarama, budget: 10m, reference: nats.go}", "nats.go is for nats"),
        ("{scenario: nats-smoke, client: sarama, budget: 10m}", "sarama is for kafka"),
    ],
    ids=["no round fits", "a reference of another system", "a client of another system"],
)
def test_a_hunt_that_could_not_begin_is_refused_before_the_night(
    hunt: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\nhunts:\n  - {hunt}\n")
    with pytest.raises(UsageError, match=told) as error:
        plan(str(path), None, offline=True)
    assert str(error.value).startswith(f"{path}: hunt ")


def test_a_plan_names_the_tools_that_the_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    which = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **more: None if name == "node" else which(name, **more)
    )
    scenario = tmp_path / "js.yaml"
    scenario.write_text("name: js\nload: {producers: {p: {client: kafkajs}}}\n")
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ncells:\n  - scenarios: [js.yaml]\n")
    assert main(["suite", "plan", str(path), "--offline"]) == Exit.ENVIRONMENT
    assert "missing  here: client kafkajs: needs node" in capsys.readouterr().out


def test_an_edited_scenario_does_not_continue_a_night(tmp_path: Path) -> None:
    scenario, path = tmp_path / "one.yaml", tmp_path / "mine.yaml"
    scenario.write_text("name: one\nload: {rate: 500, duration: 9s}\n")
    path.write_text("name: mine\ncells:\n  - scenarios: [one.yaml]\n")
    night = plan(str(path), None).night
    night_dir = NightDir(tmp_path / "n")
    night_dir.root.mkdir()
    keep_scenarios(night_dir, night)
    refuse_edited(night_dir, night)
    scenario.write_text("# a comment\nname: one\nload: {rate: 800, duration: 9s}\n")
    with pytest.raises(
        UsageError, match=r"one.yaml was edited since n began: load.rate: 500 -> 800"
    ) as caught:
        refuse_edited(night_dir, night)
    assert f"`brokerstorm suite run {path}` starts a new night" in caught.value.hint


def turns_of(night: Night, history: History, folder: Path) -> NightTurns:
    return NightTurns(settings(folder), NightDir(folder / "n"), night, history, print)


def test_a_broken_turn_has_a_row_in_every_cell_of_the_history(
    suite: str, history: History, tmp_path: Path
) -> None:
    night = plan(suite, None).night
    turn = next(turn for turn in night.turns if turn.cell == "kafka-acks1")
    ended = an_end(turn, verdict="broken", exit_code=4, reasons=["no memory"])
    rows = turns_of(night, history, tmp_path)._rows(turn, ended)
    assert [(row.cell, row.exit_code, row.verdict, row.seed) for row in rows] == [
        (f"kafka-acks1/{variant}", 4, None, turn.seed) for variant in night.cells[1].variants
    ]


def test_what_comes_before_a_round_counts_in_its_time() -> None:
    rows = [
        replace(RED, duration_s=30.0),
        replace(RED, duration_s=10.0),
        replace(RED, duration_s=None),
    ]
    assert [row.duration_s for row in with_whole_time(rows, 80.0)] == [60.0, 20.0, None]
    assert with_whole_time(rows, 20.0) == rows  # adopted: nobody measured more


def test_turns_on_the_same_brokers_share_a_cluster(
    suite: str, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that follow each other; the cluster is opened for the plans of all of them."""
    opened: list[int] = []

    @contextmanager
    def open_one(context: object, resolved: Resolved, *_: object, **__: object) -> Iterator[object]:
        opened.append(len(resolved.plans))
        yield object()

    monkeypatch.setattr(playing, "CampaignRunner", open_one)
    night = plan(suite, None).night
    turns = turns_of(night, history, tmp_path)
    one = [turns._campaign_of(turn) for turn in night.turns]
    assert opened == [5], "of a scenario, two variants and both versions of a bug"
    assert len({id(each) for each in one}) == 1
    turns._clear()
    assert turns._campaign_of(night.turns[-1]) is not one[0]


def test_a_suite_that_says_nothing_of_keeping_loses_nothing(
    suite: str, history: History, tmp_path: Path
) -> None:
    assert list(tidy(tmp_path, plan(suite, history).night, history)) == []
