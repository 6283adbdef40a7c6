"""`repro --until-hit`: fresh seeds of the affected version until it shows, or the bound on its
rate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from analysis.findings import Result
from commands.rounds import repro_request
from experiments import experiment
from experiments.campaign import CampaignRunner
from experiments.experiment import Budget, Prepared
from experiments.repro import rounds as repro
from experiments.repro.request import refuse_mixture
from harness.errors import Interrupted, UsageError
from tests.lent import settings
from tests.unit.test_repro_rounds import CLEAN, HIT, UNEXPOSED, Played, asked, request

__all__ = ["asked"]  # a fixture


@pytest.fixture
def hunt(asked: Callable[..., Prepared]) -> Callable[..., tuple[Any, Played]]:
    def run(script: Callable[[int], Result], **changes: Any) -> tuple[Any, Played]:
        hunted = asked(until_hit=True, **changes)
        played = Played(lambda plan, name: script(int(name.rpartition("-")[2])))
        return hunted.play(cast("CampaignRunner", played)), played

    return run


def test_it_goes_on_with_fresh_seeds_until_it_shows(hunt: Callable[..., Any]) -> None:
    whole, played = hunt(lambda number: HIT if number == 5 else CLEAN)
    assert [plan.seed for plan in played.plans] == [7, 8, 9, 10, 11]
    assert {plan.variant for plan in played.plans} == {"old"}
    assert len({plan.run_tag for plan in played.plans}) == 5
    assert (whole.exit_code, whole.reproduction.outcome) == (0, "seen")
    assert whole.reproduction.why == "seen in round 5, after 4 without it with faults_effective 15"
    assert [arm.role for arm in whole.variants] == ["affected"]
    assert whole.command.endswith("--until-hit --seed 7")


def test_what_never_shows_is_bounded(
    hunt: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(experiment, "Budget", partial(Budget, clock=lambda: float(next(clock))))
    whole, played = hunt(lambda number: UNEXPOSED if number == 3 else CLEAN, max_time_s=20.0)
    counted = len(played.plans) - 1
    assert whole.exit_code == 1
    assert whole.reproduction.why == (
        f"not seen in {counted} rounds with faults_effective {3 * counted}: "
        f"rate below {100 * (1 - 0.05 ** (1 / counted)):.2g} % with 95 %"
    )
    assert whole.command.endswith("--until-hit --max-time 20s --seed 7")


def test_a_hunt_that_is_stopped_says_what_was_found_so_far(
    asked: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def play(plan: Any, name: str) -> Result:
        if name.endswith("-3"):
            raise Interrupted("stopped by SIGTERM", signal_number=15)
        return CLEAN

    monkeypatch.setattr(experiment, "CampaignRunner", lambda *_, **__: nullcontext(Played(play)))
    hunted = request(tmp_path / "lost.yaml", until_hit=True, affected="2.16.0")
    with pytest.raises(Interrupted):
        repro_request(settings(tmp_path / "runs"), hunted)
    out = capsys.readouterr().out
    assert "not seen in 2 rounds with faults_effective 6: rate below 78 %" in out
    assert "repeat " in out
    assert "exit " not in out, "the signal decides it"
    assert "2.16.0, instead of the one of the bug file" in out


def test_rounds_that_never_count_end_as_unknown(hunt: Callable[..., Any]) -> None:
    whole, played = hunt(lambda number: UNEXPOSED)
    assert len(played.plans) == repro.MOST_IDLE
    assert (whole.exit_code, whole.reproduction.why) == (3, "faults_effective 2, at least 3 needed")


@pytest.mark.parametrize("changes", [{"quick": True}, {"rounds": 4}, {"fixed": "1.0.2"}])
def test_what_does_not_go_with_it_is_refused(
    hunt: Callable[..., Any], changes: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="--until-hit runs the affected version"):
        hunt(lambda number: CLEAN, **changes)


def test_a_time_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--max-time requires --until-hit"):
        refuse_mixture(request(tmp_path, max_time_s=1.0))
