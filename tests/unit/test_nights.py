"""Nights: every turn once, whatever breaks or is killed; what is left of the budget; what is
kept."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.folders import ROUNDS
from experiments.history.rounds import Labels, Round, broken_round
from experiments.history.store import History
from experiments.nights.document import SCHEMA_FILE, not_run_of, summarize
from experiments.nights.matrix import Cell
from experiments.nights.model import Keep
from experiments.nights.night import Ended, Night, NightDir, Turn, turns_of, unfinished
from experiments.nights.playing import NightTurns, TurnRequest, ended_now
from harness.errors import EnvironmentNotReady, Exit, Interrupted, UsageError
from harness.run.interrupts import Interrupts
from harness.rundir import RunDir, append_jsonl, write_json
from tests.lent import settings

JUDGED = "judged.json"
Script = Callable[[Turn, int], int]


class Played(NightTurns):
    """Turns that come out as a script says (turn, attempt -> exit code, or an exception)."""

    def __init__(
        self,
        night_dir: NightDir,
        history: History,
        script: Script = lambda turn, attempt: 0,
        *,
        work_s: float = 0.0,
        interrupts: Interrupts | None = None,
    ) -> None:
        self.script = script
        self.work_s = work_s
        self.attempts: list[str] = []
        self.notes: list[str] = []
        self.cleared = 0
        context = replace(settings(night_dir.root.parent), interrupts=interrupts or Interrupts())
        super().__init__(context, night_dir, night_dir.load(), history, self.notes.append)

    def _fetch(self, turns: Sequence[Turn]) -> None:
        self.fetched = [turn.folder for turn in turns]

    def _play_live(self, turn: Turn, root: RunDir) -> None:
        root.root.mkdir()
        self.attempts.append(root.run_id)
        time.sleep(self.work_s)
        code = self.script(turn, 2 if root.run_id.endswith("-again") else 1)
        write_json(root.root / JUDGED, {"code": code})
        time.sleep(self.work_s)

    def _judged(self, request: TurnRequest, root: RunDir) -> Ended | None:
        path = root.root / JUDGED
        if not path.exists():
            return None
        code = json.loads(path.read_text())["code"]
        return ended_now(request, code, [] if code == 0 else ["why"], command="brokerstorm run it")

    def _clear(self) -> None:
        self.cleared += 1

    def _rows(self, turn: Turn, ended: Ended) -> list[Round]:
        labels = Labels(night="n", suite="s", cell=turn.cell, round=turn.number)
        return [broken_round(labels, scenario="x", exit_code=ended.exit_code, reason="")]


def a_night(folder: Path, cells: int = 3, **changes: object) -> NightDir:
    made = [
        Cell(id=f"{'ab'[n % 2]} {n}", scenario=f"{n}")
        for n in sorted(range(cells), key=lambda n: n % 2)
    ]
    night = Night(
        suite="s", about="", file="s.yaml", started="2026-01-01T00:00:00+00:00", seed=7, budget_s=None,
        fail_on="any", keep=Keep(1.0, 0.0, None), shard="", offline=False, command="", history="",
        cells=made, turns=turns_of(made, 7, {}, {cell.id: 10.0 for cell in made}), left_out={},
    )  # fmt: skip
    night_dir = NightDir(folder / "20260101-000000-s")
    night_dir.root.mkdir(parents=True)
    night_dir.save(replace(night, **changes))  # type: ignore[arg-type]
    return night_dir


def play(
    night_dir: NightDir, script: Script = lambda turn, attempt: 0, **more: Any
) -> tuple[list[Ended | None], Played]:
    """How each turn of the night ended, and who played those that were left."""
    with (
        History.open(night_dir.root / "history.sqlite") as history,
        Played(night_dir, history, script, **more) as played,
    ):
        played.play()
    return all_of(night_dir), played


def all_of(night_dir: NightDir) -> list[Ended | None]:
    return [night_dir.ended().get(turn.folder) for turn in night_dir.load().turns]


def words(ended: Sequence[Ended | None]) -> list[str]:
    return [each.verdict if each else "not run" for each in ended]


def test_every_turn_is_played_once_and_fetched_ahead_of_the_first(tmp_path: Path) -> None:
    ended, played = play(a_night(tmp_path))
    assert words(ended) == ["pass"] * 3
    assert played.attempts == played.fetched
    assert len(played.fetched) == 3


@pytest.mark.parametrize("code", [Exit.ENVIRONMENT, Exit.NOT_HEALED, Exit.BUG])
def test_what_breaks_is_run_once_more_and_told(code: Exit, tmp_path: Path) -> None:
    ended, player = play(
        a_night(tmp_path),
        lambda turn, attempt: int(code) if turn.cell == "a 0" and attempt == 1 else 0,
    )
    assert words(ended) == ["pass"] * 3
    assert ended[0] is not None
    assert (ended[0].broken, ended[0].folder.endswith("-again")) == (
        ["why", f"exit code {code}"],
        True,
    )
    assert (player.cleared, len(player.attempts)) == (1, 4)
    assert any(note.startswith("broke: a 0: why; exit code") for note in player.notes)


def test_what_breaks_twice_stops_nothing(tmp_path: Path) -> None:
    def script(turn: Turn, attempt: int) -> int:
        if turn.cell == "a 0":
            raise EnvironmentNotReady("no memory")
        if turn.cell == "a 2":
            raise ZeroDivisionError("oops")
        return 3

    ended, _ = play(a_night(tmp_path), script)
    assert words(ended) == ["broken", "broken", "unknown"]
    assert [each.reasons for each in ended if each] == [
        ["no memory"], ["ZeroDivisionError: oops"], ["why"],
    ]  # fmt: skip


def test_a_cell_that_cannot_be_used_is_not_run_again(tmp_path: Path) -> None:
    def script(turn: Turn, attempt: int) -> int:
        raise UsageError("no such option")

    ended, player = play(a_night(tmp_path, 1), script)
    assert ended[0] is not None
    assert (ended[0].verdict, ended[0].exit_code, len(player.attempts)) == ("broken", Exit.USAGE, 1)


def test_what_no_longer_fits_the_budget_is_not_run(tmp_path: Path) -> None:
    night_dir = a_night(tmp_path, budget_s=15.0)
    night = night_dir.load()
    finish(night_dir, an_end(night.turns[0], duration_s=6.0))
    ended, player = play(night_dir)
    assert words(ended) == ["pass", "not run", "not run"]
    assert "not run: a 2: takes about 10 s, and 9 s of the budget are left" in player.notes
    assert [each.why for each in not_run_of(night_dir, night)] == ["the budget was used up"] * 2


def finish(night_dir: NightDir, *ended: Ended) -> None:
    """Keep how turns ended."""
    for each in ended:
        append_jsonl(night_dir.root / ROUNDS, asdict(each))


def an_end(turn: Turn, **changes: object) -> Ended:
    ended = Ended(
        cell=turn.cell, number=1, seed=turn.seed, is_sticky=False, folder=turn.folder, verdict="pass",
        exit_code=0, started="", ended="", duration_s=1.0,
    )  # fmt: skip
    return replace(ended, **changes)  # type: ignore[arg-type]


def test_a_signal_stops_the_night_and_not_only_the_turn(tmp_path: Path) -> None:
    interrupts = Interrupts()

    def script(turn: Turn, attempt: int) -> int:
        interrupts.stop.set()
        raise RuntimeError("the JVM went with the signal")

    night_dir = a_night(tmp_path)
    with pytest.raises(Interrupted):
        play(night_dir, script, interrupts=interrupts)
    assert words(all_of(night_dir)) == ["not run"] * 3


def test_a_full_disk_stops_the_night_and_not_every_turn_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(turn: Turn, attempt: int) -> int:
        if turn.cell == "a 2":
            raise OSError(errno.ENOSPC, "No space left on device")
        return 0

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    night_dir = a_night(tmp_path)
    with pytest.raises(EnvironmentNotReady, match="is full: 1 MB are free") as error:
        play(night_dir, script)
    assert "suite run s.yaml --resume" in error.value.hint
    monkeypatch.undo()
    assert words(play(night_dir)[0]) == ["pass"] * 3  # the first was finished and stays so


@pytest.mark.long
def test_kill_9_at_any_moment_loses_no_turn_and_runs_none_twice(tmp_path: Path) -> None:
    """A real process each time, killed at random moments; then one that may finish."""
    night_dir = a_night(tmp_path, cells=40)
    chance = random.Random(11)
    kills = 0
    while not all(all_of(night_dir)):
        child = os.fork()
        if child == 0:
            try:
                play(night_dir, work_s=0.012)
            finally:
                os._exit(0)
        if kills < 10:
            time.sleep(chance.uniform(0.01, 0.08))  # when does not matter: any moment must do
            os.kill(child, signal.SIGKILL)
            kills += 1
        os.waitpid(child, 0)
    folders = [path.parent.name for path in night_dir.root.glob(f"*/{JUDGED}")]
    turns = night_dir.load().turns
    assert kills == 10
    # each was judged once, in its own folder
    assert sorted(folders) == sorted(turn.folder for turn in turns)
    with closing(sqlite3.connect(night_dir.root / "history.sqlite")) as file:
        rows = [cell for (cell,) in file.execute("SELECT cell FROM rounds")]
    assert sorted(rows) == sorted(turn.cell for turn in turns)


def test_resume_wants_a_night_that_was_cut_short(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no unfinished night of s in"):
        unfinished(tmp_path, "s")
    night_dir = a_night(tmp_path)
    assert unfinished(tmp_path, "s") == night_dir
    write_json(night_dir.document, {})
    with pytest.raises(UsageError, match="is over: nothing is left to run"):
        unfinished(tmp_path, "s")


def test_the_document_of_a_night_says_what_its_report_decided(tmp_path: Path) -> None:
    import jsonschema

    night_dir = a_night(tmp_path, 2)
    night = night_dir.load()
    for turn, word in zip(night.turns, ("pass", "fail"), strict=True):
        finish(night_dir, an_end(turn, verdict=word))
    made = summarize(
        night_dir, night, verdict="pass", exit_code=0, counts="1 fail (none new), 1 pass"
    )
    document = json.loads(json.dumps(made.document()))
    assert (document["verdict"], document["verdicts"]["fail"]) == ("pass", 1)
    jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
