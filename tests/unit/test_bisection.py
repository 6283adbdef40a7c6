"""Bisecting with scripted rounds: what is found, at what error; versions that are skipped; both
directions; going on after a kill at every point."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from analysis.verdict.bisection import Asking, ErrorBudget, expected_answers, search
from experiments.bisect.question import BisectQuestion
from experiments.bisect.rounds import FILE, Bisection, ask_again, conclude
from experiments.experiment import RoundRequest
from experiments.folders import ROUNDS
from experiments.judging import RoundOutcome
from harness.contracts.plan import Plan
from harness.errors import UsageError
from harness.rundir import RunDir
from tests.made_up import MadeUp, Script, answered, judged, unusable
from tests.report_samples import failing, passing

RELEASES = tuple(f"1.{n}.0" for n in range(30))
Shows = Callable[[str, int], bool | str]


def question(*, is_fix: bool = True, versions: tuple[str, ...] = RELEASES) -> BisectQuestion:
    old, new = versions[0], versions[-1]
    return BisectQuestion(
        scenario="kafka-smoke", overrides=(), client="sarama", variant="", expect="acked-lost", counter="",
        floor=0, good=new if is_fix else old, bad=old if is_fix else new, versions=versions, repo="",
        is_fix=is_fix, error=0.05, rate=0.5, seed=7, runtime="auto", master=None, command="",
    )  # fmt: skip


def outcome(said: bool | str) -> RoundOutcome:
    """A round of 10 s: shown or not, or why it does not count."""
    if isinstance(said, str):
        return RoundOutcome(why_not=said, duration_s=10.0)
    return judged(failing() if said else passing(), duration_s=10.0)


def script(shows: Shows, unusable_ones: Iterable[str] = ()) -> Script:
    def play(request: RoundRequest) -> RoundOutcome:
        version, _, number = request.key.rpartition(" ")
        if version in unusable_ones:
            return unusable("it does not build")
        return outcome(shows(version, int(number)))

    return play


def no_plan(version: str, number: int) -> Plan:
    raise AssertionError("made-up rounds have none")


def bisection(**asked: Any) -> Bisection:
    return Bisection(question(**asked), no_plan)


def go_on(
    folder: Path, shows: Shows, *, is_fix: bool = True, **more: Any
) -> tuple[dict[str, Any], MadeUp]:
    """The document after everything was played that was not, and who played it."""
    played = MadeUp(folder, script(shows), **more)
    return conclude(played, bisection(is_fix=is_fix)).document(), played


def fixed_in(version: str) -> Shows:
    return lambda each, number: RELEASES.index(each) < RELEASES.index(version)


def broken_in(version: str) -> Shows:
    return lambda each, number: RELEASES.index(each) >= RELEASES.index(version)


def run(
    folder: Path, shows: Shows, *, unusable_ones: Iterable[str] = (), is_fix: bool = True
) -> dict[str, Any]:
    return conclude(
        MadeUp(folder, script(shows, unusable_ones)), bisection(is_fix=is_fix)
    ).document()


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
def test_a_bug_of_60_percent_of_the_rounds_ends_right_within_the_stated_error(
    tmp_path: Path,
) -> None:
    dice = random.Random(1945)
    right, shown, clean = 0, outcome(True), outcome(False)
    for _ in range(300):
        first = dice.randrange(1, len(RELEASES))

        def play(request: RoundRequest, first: int = first) -> RoundOutcome:
            is_bad = RELEASES.index(request.key.partition(" ")[0]) < first
            return shown if dice.random() < (0.6 if is_bad else 0.0) else clean

        asked = bisection()
        answer = answered(asked.rounds(tmp_path), play)
        assert asked.examiner.budget.spent <= 0.05
        right += answer.first == RELEASES[first]
    assert right >= 0.95 * 300


def test_versions_that_do_not_build_are_skipped_and_their_neighbours_tried(tmp_path: Path) -> None:
    told = run(tmp_path / "far", fixed_in("1.9.0"), unusable_ones=RELEASES[12:18])
    assert (told["outcome"], told["first"]) == ("found", "1.9.0")
    skipped = [step["text"] for step in told["steps"] if step["decision"] == "undecided"]
    assert set(skipped) == {"skipped: it does not build"}
    near = run(tmp_path / "near", fixed_in("1.14.0"), unusable_ones=RELEASES[12:14])
    assert (near["outcome"], near["exit_code"]) == ("narrowed", 3)
    assert (near["before"], near["between"], near["first"]) == (
        "1.11.0",
        ["1.12.0", "1.13.0"],
        "1.14.0",
    )


def test_a_version_whose_rounds_do_not_count_is_skipped(tmp_path: Path) -> None:
    def shows(version: str, number: int) -> bool | str:
        return (
            "no fault took effect" if version == "1.14.0" else fixed_in("1.20.0")(version, number)
        )

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

    told, first = go_on(tmp_path, busy)
    assert (told["outcome"], told["between"], told["first"]) == ("narrowed", ["1.14.0"], "1.15.0")
    for number in (1, 3, 4, 5):
        (tmp_path / f"1.14.0-{number}").mkdir()

    ask_again(RunDir(tmp_path), question())
    told, again = go_on(tmp_path, fixed_in("1.14.0"))
    assert (told["outcome"], told["first"]) == ("found", "1.14.0")
    names = [request.name for request in again.requests]
    assert [name for name in names if name.startswith("1.14.0-")] == [
        f"1.14.0-{number}" for number in (1, 3, 4, 5, 6, 7, 8)
    ], "what counted is kept, the others have their seeds again"
    twice = {request.name for request in first.requests} & set(names)
    assert twice == {f"1.14.0-{number}" for number in (1, 3, 4, 5)}
    assert [each["folder"] for each in told["set_aside"]] == [
        f"1.14.0-{number}-aside-1" for number in (1, 3, 4, 5)
    ]
    assert all((tmp_path / each["folder"]).is_dir() for each in told["set_aside"])

    ask_again(RunDir(tmp_path), question())
    told, last = go_on(tmp_path, busy)
    assert told["first"] == "1.14.0"
    assert not last.requests, "an answer that was found stays"


def test_a_version_that_could_not_be_had_is_asked_again(tmp_path: Path) -> None:
    shows = fixed_in("1.14.0")
    assert run(tmp_path, shows, unusable_ones=RELEASES[12:14])["outcome"] == "narrowed"
    ask_again(RunDir(tmp_path), question())
    told, _ = go_on(tmp_path, shows)
    assert (told["outcome"], told["first"], told["set_aside"]) == ("found", "1.14.0", [])


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
    answer, whole = go_on(tmp_path / "whole", shows)
    for kill in range(len(whole.requests)):
        folder = tmp_path / f"killed-{kill}"
        with pytest.raises(KeyboardInterrupt):
            go_on(folder, shows, stops_after=kill)
        told, rest = go_on(folder, shows)
        assert [each.name for each in rest.requests] == [
            each.name for each in whole.requests[kill:]
        ]
        assert {**told, "bisect_id": ""} == {**answer, "bisect_id": ""}
        assert json.loads((folder / FILE).read_text()) == json.loads(json.dumps(told))


def test_without_time_it_says_what_is_known_and_can_go_on(tmp_path: Path) -> None:
    told, _ = go_on(tmp_path, fixed_in("1.17.0"), budget_s=115.0)
    assert (told["outcome"], told["exit_code"]) == ("unknown", 3)
    assert told["why"] == "the budget is used up; --resume continues"
    told, _ = go_on(tmp_path, fixed_in("1.17.0"))
    assert told["first"] == "1.17.0"


def test_kept_rounds_of_another_question_are_refused(tmp_path: Path) -> None:
    go_on(tmp_path, fixed_in("1.17.0"), budget_s=115.0)
    rounds = tmp_path / ROUNDS
    rounds.write_text(rounds.read_text().replace("1.0.0 1", "1.0.0 7"))
    with pytest.raises(UsageError, match=r"1\.0\.0-1 was played of something else"):
        go_on(tmp_path, fixed_in("1.17.0"))


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

            def is_new(index: int, asked: list[int] = asked, first: int = first) -> Asking[bool]:
                asked.append(index)
                yield from ()
                return index >= first

            assert answered(search(count, is_new), script(fixed_in("1.1.0"))) == (first - 1, first)
            assert len(asked) <= expected_answers(count) - 2
            assert set(asked) <= set(range(1, count - 1))
            assert len(set(asked)) == len(asked)
