"""Every strategy, killed after each of its rounds and gone on with: the answer is as if it was
not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.experiment import RoundRequest
from experiments.judging import RoundOutcome, answer_of
from experiments.nights.night import nights
from experiments.plans import choose_plans, read_scenario
from experiments.repro import rounds as repro
from experiments.variants import one_after_the_other, until_hit
from harness.contracts.plan import Plan
from harness.errors import Exit
from harness.rundir import RunDir, read_json
from tests.made_up import MadeUp, judged
from tests.unit.test_bisection import bisection, fixed_in, script
from tests.unit.test_nights import a_night, all_of, play
from tests.unit.test_repro_rounds import CLEAN, HIT, TEXT, UNEXPOSED, request
from tests.unit.test_shrinking import Scripted, freeze_with_acks_1

#: Folder, and after how many rounds it is killed -> the answer, and what this process played.
Case = Callable[[Path, int], tuple[Any, list[str]]]


def variants(folder: Path, stops_after: int) -> tuple[Any, list[str]]:
    plans = choose_plans(read_scenario("kafka-quick"), seed=7, rounds=2)
    requests = [
        RoundRequest(name=str(n), key=plan.variant, plan=plan) for n, plan in enumerate(plans)
    ]
    made = MadeUp(folder, lambda asked: judged(HIT, variant=asked.key), stops_after=stops_after)
    made.run(one_after_the_other(requests))
    return made.outcomes, names(made)


def bisect(folder: Path, stops_after: int) -> tuple[Any, list[str]]:
    asked = bisection()
    made = MadeUp(folder, script(fixed_in("1.17.0")), stops_after=stops_after)
    return (made.run(asked.rounds(folder)), asked.examiner.steps), names(made)


def shrink(folder: Path, stops_after: int) -> tuple[Any, list[str]]:
    rounds = Scripted(freeze_with_acks_1)
    search, made = rounds.search(), MadeUp(folder, rounds, stops_after=stops_after)
    made.run(search.rounds())
    return (search.smallest, search.steps, search.is_whole), names(made)


def reproduction(**changes: Any) -> Case:
    """The second round of the affected version does not count; it hits in the third one and
    later."""

    def play_until(folder: Path, stops_after: int) -> tuple[Any, list[str]]:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "lost.yaml"
        file.write_text(TEXT)
        scenario = read_scenario(str(file))
        question = repro._question(scenario, request(file, **changes))
        pairs = repro._plans(scenario, question, 7, None)
        begun: list[str] = []
        asked = repro.PairRounds(
            question, pairs, "", lambda names: begun.__setitem__(slice(None), names)
        )
        if question.until_hit:
            asked.further = lambda number: repro._plans(scenario, question, 6 + number, None)[0]

        def come_out(wanted: RoundRequest) -> RoundOutcome:
            result = HIT if wanted.name[:5] in ("old-3", "old-4") else CLEAN
            result = UNEXPOSED if wanted.name == "old-2" else result
            return judged(result, variant=wanted.name[:3])

        made = MadeUp(folder, come_out, stops_after=stops_after)
        made.run(asked.rounds())
        return (answer_of(question, [*pairs[0]], made.outcomes), begun), names(made)

    return play_until


def night(folder: Path, stops_after: int) -> tuple[Any, list[str]]:
    night_dir = next(nights(folder), None) or a_night(folder)
    left = iter([*range(stops_after)])

    def turn(asked: Any, attempt: int) -> int:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return int(Exit.ENVIRONMENT) if (asked.cell, attempt) == ("a 2", 1) else 3

    _, played = play(night_dir, turn)
    ended = [
        each and (each.folder, each.verdict, each.broken, each.reasons)
        for each in all_of(night_dir)
    ]
    return ended, played.attempts


def names(made: MadeUp) -> list[str]:
    return [request.name for request in made.requests]


CASES: dict[str, Case] = {
    "variants": variants,
    "bisect": bisect,
    "shrink": shrink,
    "repro": reproduction(),
    "quick": reproduction(quick=True),
    "until hit": reproduction(until_hit=True),
    "night": night,
}


@pytest.mark.extended
@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_killed_after_any_round_it_ends_with_the_same_answer(case: str, tmp_path: Path) -> None:
    answer, whole = CASES[case](tmp_path / "whole", 10_000)
    assert len(whole) >= 3
    for kill in range(len(whole)):
        folder = tmp_path / f"{kill}"
        with pytest.raises(KeyboardInterrupt):
            CASES[case](folder, kill)
        told, rest = CASES[case](folder, 10_000)
        assert told == answer
        assert rest == whole[kill:]


@pytest.mark.long
@pytest.mark.parametrize("case", ["bisect", "shrink", "repro", "quick"])
def test_killed_after_every_round_it_still_ends_with_the_same_answer(
    case: str, tmp_path: Path
) -> None:
    answer, whole = CASES[case](tmp_path / "whole", 10_000)
    folder, rounds = tmp_path / "killed", 0
    while True:
        try:
            told, _ = CASES[case](folder, 1)
        except KeyboardInterrupt:
            rounds += 1
        else:
            break
    assert told == answer
    assert rounds == len(whole) - 1


@pytest.mark.parametrize(
    ("fails_at", "budget_s", "played"), [(9, None, 3), (99, 2.5, 3), (7, None, 1)]
)
def test_until_a_round_fails_each_has_a_fresh_seed(
    tmp_path: Path, fails_at: int, budget_s: float | None, played: int
) -> None:
    """What is to be played is said before, with the command that repeats it; in the end, what was
    played."""

    def come_out(wanted: RoundRequest) -> RoundOutcome:
        assert isinstance(wanted.plan, Plan)
        assert wanted.name in read_json(tmp_path / "campaign.json")["runs"]
        made.now_s += 1.0
        return judged(HIT if wanted.plan.seed == fails_at else CLEAN)

    def further(number: int) -> list[Plan]:
        return choose_plans(read_scenario("kafka-quick"), seed=6 + number, variant="safe")

    plans, folders = further(1), ["safe-1"]
    made = MadeUp(tmp_path, come_out, budget_s=budget_s)
    made.run(
        until_hit(RunDir(tmp_path), plans, folders, further, "all", lambda plan: f"one {plan.seed}")
    )
    assert [request.command for request in made.requests] == ["one 7", "one 8", "one 9"][:played]
    assert folders == names(made) == read_json(tmp_path / "campaign.json")["runs"]
    assert [plan.seed for plan in plans] == [7, 8, 9][:played]
