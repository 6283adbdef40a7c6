"""Bisecting with scripted rounds: what is found, at what error; versions that are skipped; both directions;
going on after a kill at every point."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from analysis.verdict.bisection import ErrorBudget, Look, UnusableVersionError, expected_answers, search
from experiments.bisect.question import BisectQuestion
from experiments.bisect.rounds import OutOfTimeError, conclude
from experiments.bisect.state import FILE, BisectDir
from harness.errors import UsageError
from harness.rundir import RunDir

RELEASES = tuple(f"1.{n}.0" for n in range(30))
Shows = Callable[[str, int], bool | str]


def question(*, is_fix: bool = True, versions: tuple[str, ...] = RELEASES) -> BisectQuestion:
    old, new = versions[0], versions[-1]
    return BisectQuestion(
        scenario="kafka-smoke", overrides=(), client="sarama", variant="", expect="hang", counter="",
        floor=0, good=new if is_fix else old, bad=old if is_fix else new, versions=versions, repo="",
        is_fix=is_fix, error=0.05, rate=0.5, seed=7, runtime="auto", master=None, command="",
    )  # fmt: skip


class Player:
    """Rounds as a script says: shown or not, or why the round does not count. Kept as live ones are."""

    def __init__(self, kept: BisectDir, shows: Shows, *, unusable: Iterable[str] = ()) -> None:
        self.kept = kept
        self.shows = shows
        self.unusable = set(unusable)
        self.played: list[tuple[str, int]] = []

    def __call__(self, version: str, number: int) -> Look:
        if (known := self.kept.look(version, number)) is not None:
            return known
        if version in self.unusable:
            raise UnusableVersionError("it does not build")
        self.played.append((version, number))
        said = self.shows(version, number)
        why = said if isinstance(said, str) else ""
        look = Look(
            version=version, number=number, seed=6 + number, folder=f"{version}-{number}",
            shown=said is True, not_counted=why, duration_s=10.0,
        )  # fmt: skip
        self.kept.keep(look, 0.0)
        return look


def kept_in(folder: Path, **asked: Any) -> BisectDir:
    folder.mkdir(parents=True, exist_ok=True)
    return BisectDir(RunDir(folder), question(**asked), [])


def fixed_in(version: str) -> Shows:
    return lambda each, number: RELEASES.index(each) < RELEASES.index(version)


def broken_in(version: str) -> Shows:
    return lambda each, number: RELEASES.index(each) >= RELEASES.index(version)


def run(folder: Path, shows: Shows, *, unusable: Iterable[str] = (), is_fix: bool = True) -> dict[str, Any]:
    kept = kept_in(folder, is_fix=is_fix)
    return conclude(kept, Player(kept, shows, unusable=unusable), lambda text: None)


@pytest.mark.long
@pytest.mark.parametrize("first", ["1.1.0", "1.14.0", "1.29.0"])
@pytest.mark.parametrize("is_fix", [True, False])
def test_the_change_is_found_in_both_directions(tmp_path: Path, first: str, is_fix: bool) -> None:
    told = run(tmp_path, (fixed_in if is_fix else broken_in)(first), is_fix=is_fix)
    assert (told["outcome"], told["exit_code"], told["first"]) == ("found", 0, first)
    assert told["direction"] == ("first fixed" if is_fix else "first bad")
    assert [side["version"] for side in told["sides"]] == [told["before"], first]
    assert RELEASES.index(first) == RELEASES.index(told["before"]) + 1
    assert len(told["steps"]) <= expected_answers(len(RELEASES))
    assert told["error"] <= 0.05
    assert told["release_notes"] == f"https://github.com/IBM/sarama/releases/tag/v{first}"
    shown, clean = sorted(told["sides"], key=lambda side: -side["shown"])
    assert (shown["shown"], clean["shown"]) == (2, 0)
    assert clean["p_value"] <= clean["error"]
    assert len(clean["runs"]) == clean["counted"] == clean["rounds"]


@pytest.mark.long
def test_a_bug_of_60_percent_of_the_rounds_ends_right_within_the_stated_error(tmp_path: Path) -> None:
    dice = random.Random(1945)
    right = 0
    for number in range(300):
        first = dice.randrange(1, len(RELEASES))
        kept = kept_in(tmp_path)

        def play(version: str, number: int, first: int = first) -> Look:
            is_bad = RELEASES.index(version) < first
            shown = dice.random() < (0.6 if is_bad else 0.0)
            return Look(version=version, number=number, seed=0, folder="", shown=shown)

        told = conclude(kept, play, lambda text: None)
        assert told["error"] <= 0.05
        right += told["first"] == RELEASES[first]
    assert right >= 0.95 * 300


def test_versions_that_do_not_build_are_skipped_and_their_neighbours_tried(tmp_path: Path) -> None:
    told = run(tmp_path / "far", fixed_in("1.9.0"), unusable=RELEASES[12:18])
    assert (told["outcome"], told["first"]) == ("found", "1.9.0")
    skipped = [step["text"] for step in told["steps"] if step["decision"] == "undecided"]
    assert set(skipped) == {"skipped: it does not build"}
    near = run(tmp_path / "near", fixed_in("1.14.0"), unusable=RELEASES[12:14])
    assert (near["outcome"], near["exit_code"]) == ("narrowed", 3)
    assert (near["before"], near["between"], near["first"]) == ("1.11.0", ["1.12.0", "1.13.0"], "1.14.0")


def test_a_version_whose_rounds_do_not_count_is_skipped(tmp_path: Path) -> None:
    def shows(version: str, number: int) -> bool | str:
        return "no fault took effect" if version == "1.14.0" else fixed_in("1.20.0")(version, number)

    told = run(tmp_path, shows)
    assert (told["outcome"], told["first"]) == ("found", "1.20.0")
    (skipped,) = [step for step in told["steps"] if step["version"] == "1.14.0"]
    assert "4 did not count: no fault took effect" in skipped["text"]
    assert told["cost"]["rounds"] - told["cost"]["counted"] == 4


def test_a_version_that_was_skipped_is_asked_again_on_a_calmer_machine(tmp_path: Path) -> None:
    def busy(version: str, number: int) -> bool | str:
        if version == "1.14.0" and number != 2:
            return "sends were open at the end"
        return fixed_in("1.14.0")(version, number)

    kept = kept_in(tmp_path)
    first = Player(kept, busy)
    told = conclude(kept, first, lambda text: None)
    assert (told["outcome"], told["between"], told["first"]) == ("narrowed", ["1.14.0"], "1.15.0")
    for number in (1, 3, 4, 5):
        (tmp_path / f"1.14.0-{number}").mkdir()

    calm = BisectDir.load(RunDir(tmp_path))
    calm.ask_again()
    again = Player(calm, fixed_in("1.14.0"))
    told = conclude(calm, again, lambda text: None)
    assert (told["outcome"], told["first"]) == ("found", "1.14.0")
    assert [play for play in again.played if play[0] == "1.14.0"] == [
        ("1.14.0", number) for number in (1, 3, 4, 5, 6, 7, 8)
    ], "what counted is kept, the others have their seeds again"
    assert set(first.played).isdisjoint(set(again.played) - {("1.14.0", n) for n in (1, 3, 4, 5)})
    assert [each["folder"] for each in told["set_aside"]] == [
        f"1.14.0-{number}-aside-1" for number in (1, 3, 4, 5)
    ]
    assert all((tmp_path / each["folder"]).is_dir() for each in told["set_aside"])

    found = BisectDir.load(RunDir(tmp_path))
    found.ask_again()
    player = Player(found, busy)
    assert conclude(found, player, lambda text: None)["first"] == "1.14.0"
    assert not player.played, "an answer that was found stays"


def test_an_end_that_is_not_what_it_was_said_to_be_ends_it(tmp_path: Path) -> None:
    told = run(tmp_path / "bad", lambda version, number: False)
    assert (told["outcome"], told["exit_code"], told["first"]) == ("not confirmed", 1, "")
    assert told["why"].startswith("the bad end is not bad: 1.0.0: not shown in 8 rounds")
    told = run(tmp_path / "good", lambda version, number: True)
    assert told["why"].startswith("the good end is not good: 1.29.0: shown in 2 of 2 rounds")
    told = run(tmp_path / "none", lambda version, number: "the rate was not reached")
    assert (told["outcome"], told["exit_code"]) == ("unknown", 3)


@pytest.mark.long
def test_killed_at_any_round_it_goes_on_and_plays_none_twice(tmp_path: Path) -> None:
    shows = fixed_in("1.17.0")
    whole = kept_in(tmp_path / "whole")
    player = Player(whole, shows)
    answer = conclude(whole, player, lambda text: None)
    for kill in range(len(player.played)):
        kept = kept_in(tmp_path / f"killed-{kill}")
        kept.save(0.0)
        before = Player(kept, shows)

        def until(version: str, number: int, first: Player = before, kill: int = kill) -> Look:
            if len(first.played) == kill:
                raise KeyboardInterrupt
            return first(version, number)

        with pytest.raises(KeyboardInterrupt):
            conclude(kept, until, lambda text: None)
        again = BisectDir.load(kept.root)
        rest = Player(again, shows)
        told = conclude(again, rest, lambda text: None)
        assert rest.played == player.played[kill:]
        assert {**told, "bisect_id": ""} == {**answer, "bisect_id": ""}
        assert json.loads((kept.root.root / FILE).read_text()) == json.loads(json.dumps(told))


def test_what_a_cut_round_captured_is_set_aside(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    for number in (1, 2):
        kept.fresh_folder("1.0.0-1").root.mkdir()
        assert len(list(tmp_path.glob("1.0.0-1-cut-*"))) == number - 1


def test_without_time_it_says_what_is_known_and_can_go_on(tmp_path: Path) -> None:
    kept = kept_in(tmp_path)
    player = Player(kept, fixed_in("1.17.0"))

    def play(version: str, number: int) -> Look:
        if len(player.played) == 12:
            raise OutOfTimeError
        return player(version, number)

    told = conclude(kept, play, lambda text: None)
    assert (told["outcome"], told["exit_code"]) == ("unknown", 3)
    assert told["why"] == "the budget is used up; --resume goes on"
    assert conclude(kept, player, lambda text: None)["first"] == "1.17.0"


def test_a_folder_that_is_damaged_or_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"schema_version": 1}')
    with pytest.raises(UsageError, match="is damaged: no 'question'"):
        BisectDir.load(RunDir(tmp_path))
    (tmp_path / FILE).write_text('{"schema_version": 2}')
    with pytest.raises(UsageError, match="schema_version is 2"):
        BisectDir.load(RunDir(tmp_path))


@pytest.mark.parametrize("answers", [2, 7])
def test_the_shares_of_an_error_never_exceed_it(answers: int) -> None:
    budget = ErrorBudget(0.05, answers)
    for _ in range(3 * answers):
        budget.spend(budget.share())
    assert 0.04 < budget.spent < 0.05


def test_a_search_asks_only_what_is_between_the_ends() -> None:
    for count in range(2, 40):
        for first in range(1, count):
            asked: list[int] = []

            def is_new(index: int, asked: list[int] = asked, first: int = first) -> bool:
                asked.append(index)
                return index >= first

            assert search(count, is_new) == (first - 1, first)
            assert len(asked) <= expected_answers(count) - 2
            assert set(asked) <= set(range(1, count - 1))
            assert len(set(asked)) == len(asked)
