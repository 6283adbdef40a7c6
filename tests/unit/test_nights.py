"""Nights: every turn once, whatever breaks or is killed; what is left of the budget; what is kept."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from experiments.history.rounds import Labels, Round, broken_round
from experiments.history.store import History
from experiments.nights.document import SCHEMA_FILE, not_run_of, summarize
from experiments.nights.matrix import Cell
from experiments.nights.model import Keep
from experiments.nights.night import Ended, Night, NightDir, Turn, turns_of, unfinished
from experiments.nights.playing import NightRun, Played
from harness.errors import EnvironmentNotReady, Exit, Interrupted, UsageError
from harness.run.interrupts import Interrupts
from harness.rundir import RunDir, write_json

JUDGED = "judged.json"
Script = Callable[[Turn, int], int]


@dataclass
class Played1:
    """A player whose turns come out as a script says (turn, attempt -> exit code, or an exception)."""

    script: Script = lambda turn, attempt: 0
    work_s: float = 0.0
    beds: list[list[str]] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cleared: int = 0

    def bed(self, turn: Turn) -> str:
        return turn.cell.split()[0]

    def fetch(self, turns: Sequence[Turn]) -> None:
        self.fetched = [turn.folder for turn in turns]

    @contextmanager
    def opened(self, turns: Sequence[Turn]) -> Iterator[Played1]:
        self.beds.append([turn.folder for turn in turns])
        yield self

    def play(self, turn: Turn, root: RunDir) -> Played:
        root.root.mkdir()
        self.attempts.append(root.run_id)
        time.sleep(self.work_s)
        code = self.script(turn, 2 if root.run_id.endswith("-again") else 1)
        write_json(root.root / JUDGED, {"code": code})
        time.sleep(self.work_s)
        return Played(code, [] if code == 0 else ["why"], "brokerstorm run it")

    def clear(self) -> None:
        self.cleared += 1

    def note(self, text: str) -> None:
        self.notes.append(text)

    def judged(self, root: RunDir) -> Played | None:
        path = root.root / JUDGED
        return Played(json.loads(path.read_text())["code"], []) if path.exists() else None

    def rows(self, turn: Turn, ended: Ended) -> list[Round]:
        labels = Labels(night="n", suite="s", cell=turn.cell, round=turn.number)
        return [broken_round(labels, scenario="x", exit_code=ended.exit_code, reason="")]


def a_night(folder: Path, cells: int = 3, **changes: object) -> NightDir:
    made = [Cell(id=f"{'ab'[n % 2]} {n}", scenario=f"{n}") for n in sorted(range(cells), key=lambda n: n % 2)]
    night = Night(
        suite="s", about="", file="s.yaml", started="2026-01-01T00:00:00+00:00", seed=7, budget_s=None,
        fail_on="any", keep=Keep(1.0, 0.0, None), shard="", offline=False, command="", history="",
        cells=made, turns=turns_of(made, 7, {}, {cell.id: 10.0 for cell in made}), left_out={},
    )  # fmt: skip
    night_dir = NightDir(folder / "20260101-000000-s")
    night_dir.root.mkdir(parents=True)
    night_dir.save(replace(night, **changes))  # type: ignore[arg-type]
    return night_dir


def play(night_dir: NightDir, player: Played1) -> list[Ended | None]:
    with History.open(night_dir.root / "history.sqlite") as history:
        night = night_dir.load()
        NightRun(night_dir, night, history, player, Interrupts(), player.notes.append).play()
        return [night_dir.ended(turn) for turn in night.turns]


def words(ended: Sequence[Ended | None]) -> list[str]:
    return [each.verdict if each else "not run" for each in ended]


def test_turns_that_share_a_cluster_run_one_after_the_other(tmp_path: Path) -> None:
    player = Played1()
    assert words(play(a_night(tmp_path), player)) == ["pass"] * 3
    assert [len(turns) for turns in player.beds] == [2, 1]
    assert len(player.fetched) == 3  # ahead of the first


@pytest.mark.parametrize("code", [Exit.ENVIRONMENT, Exit.NOT_HEALED, Exit.BUG])
def test_what_breaks_is_run_once_more_and_told(code: Exit, tmp_path: Path) -> None:
    player = Played1(lambda turn, attempt: int(code) if turn.cell == "a 0" and attempt == 1 else 0)
    ended = play(a_night(tmp_path), player)
    assert words(ended) == ["pass"] * 3
    assert ended[0] is not None
    assert (ended[0].broken, ended[0].folder.endswith("-again")) == (["why", f"exit code {code}"], True)
    assert (player.cleared, len(player.attempts)) == (1, 4)
    assert any(note.startswith("broke: a 0: why; exit code") for note in player.notes)


def test_what_breaks_twice_stops_nothing(tmp_path: Path) -> None:
    def script(turn: Turn, attempt: int) -> int:
        if turn.cell == "a 0":
            raise EnvironmentNotReady("no memory")
        if turn.cell == "a 2":
            raise ZeroDivisionError("oops")
        return 3

    ended = play(a_night(tmp_path), Played1(script))
    assert words(ended) == ["broken", "broken", "unknown"]
    assert [each.reasons for each in ended if each] == [
        ["no memory"], ["ZeroDivisionError: oops"], ["why"],
    ]  # fmt: skip


def test_a_cell_that_cannot_be_used_is_not_run_again(tmp_path: Path) -> None:
    def script(turn: Turn, attempt: int) -> int:
        raise UsageError("no such option")

    player = Played1(script)
    ended = play(a_night(tmp_path, 1), player)
    assert ended[0] is not None
    assert (ended[0].verdict, ended[0].exit_code, len(player.attempts)) == ("broken", Exit.USAGE, 1)


def test_what_no_longer_fits_the_budget_is_not_run(tmp_path: Path) -> None:
    night_dir = a_night(tmp_path, budget_s=15.0)
    night = night_dir.load()
    night_dir.finish(night.turns[0], an_end(night.turns[0], duration_s=6.0))
    player = Played1()
    assert words(play(night_dir, player)) == ["pass", "not run", "not run"]
    assert "not run: a 2: takes about 10 s, and 9 s of the budget are left" in player.notes
    assert [each.why for each in not_run_of(night_dir, night)] == ["the budget was used up"] * 2


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
    night = night_dir.load()
    with History.open(tmp_path / "h.sqlite") as history, pytest.raises(Interrupted):
        NightRun(night_dir, night, history, Played1(script), interrupts, print).play()
    assert night_dir.ended(night.turns[0]) is None


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
        play(night_dir, Played1(script))
    assert "suite run s.yaml --resume" in error.value.hint
    monkeypatch.undo()
    assert words(play(night_dir, Played1())) == ["pass"] * 3  # the first was finished and stays so


@pytest.mark.long
def test_kill_9_at_any_moment_loses_no_turn_and_runs_none_twice(tmp_path: Path) -> None:
    """A real process each time, killed at random moments; then one that may finish."""
    night_dir = a_night(tmp_path, cells=40)
    chance = random.Random(11)
    kills = 0
    while not all(night_dir.ended(turn) for turn in night_dir.load().turns):
        child = os.fork()
        if child == 0:
            try:
                play(night_dir, Played1(work_s=0.012))
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
    assert sorted(folders) == sorted(turn.folder for turn in turns)  # each was judged once, in its own folder
    with closing(sqlite3.connect(night_dir.root / "history.sqlite")) as file:
        rows = [cell for (cell,) in file.execute("SELECT cell FROM rounds")]
    assert sorted(rows) == sorted(turn.cell for turn in turns)


def test_resume_wants_a_night_that_was_cut_short(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no night of s in"):
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
        night_dir.finish(turn, an_end(turn, verdict=word))
    made = summarize(night_dir, night, verdict="pass", exit_code=0, counts="1 fail (none new), 1 pass")
    document = json.loads(json.dumps(made.document()))
    assert (document["verdict"], document["verdicts"]["fail"]) == ("pass", 1)
    jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
