"""The one object of a command before anything is started: what follows from its plans is found
once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import faults
from experiments.plans import ScenarioRequest, for_a_new_run, resolve
from experiments.resolved import RoundOptions
from harness.contracts.plan import RateStep
from harness.plan.rates import decided, is_open
from harness.run.worker_specs import coordinated
from harness.rundir import RunDir, write_json


def test_the_faults_of_a_round_are_compiled_once_whatever_its_tag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved = resolve(ScenarioRequest(scenario="kafka-smoke", seed=3, rounds=2), RoundOptions())
    compiled: list[int] = []
    compile_ = faults.compile

    def counted(*steps: Any, **more: Any) -> faults.Timeline:
        compiled.append(more["seed"])
        return compile_(*steps, **more)

    monkeypatch.setattr(faults, "compile", counted)
    assert resolved.needs == faults.needs_of(resolved.timelines)
    assert len(resolved.clusters) == 1
    for plan, timeline in zip(resolved.plans, resolved.timelines, strict=True):
        again = for_a_new_run(plan)
        played = resolved.timeline(again)
        assert played.firings == timeline.firings
        assert played.inventory.topics == tuple(again.topics)
        assert played.inventory.coordinated == coordinated(again) != timeline.inventory.coordinated
    assert compiled == [3, 4]


def test_a_replayed_run_is_the_only_round_and_gives_its_rate_to_a_scenario(tmp_path: Path) -> None:
    asked = ScenarioRequest(scenario="kafka-smoke", seed=5)
    (open_plan,) = resolve(asked, RoundOptions()).plans
    assert is_open(open_plan)
    step = RateStep(
        variant="",
        rate_per_s=1200,
        tried_per_s=1800,
        acked_per_s=1800,
        late_s=0.0,
        open=0,
        held=True,
    )
    run = RunDir(tmp_path / "run").create()
    write_json(run.plan, decided(open_plan, 1200, [step]).model_dump(mode="json"))

    again = resolve(replace(asked, scenario="", seed=None), RoundOptions(replay=run))
    assert (again.seed, again.scenario, [plan.rate_per_s for plan in again.plans]) == (
        5,
        None,
        [1200],
    )
    both = resolve(replace(asked, seed=9, rounds=2), RoundOptions(replay=run))
    assert [(plan.seed, plan.rate_per_s) for plan in both.plans] == [(9, 1200), (10, 1200)]
