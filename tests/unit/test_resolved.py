"""The one object of a command before anything is started: what follows from its plans is found once."""

from __future__ import annotations

from typing import Any

import pytest

import faults
from experiments.plans import ScenarioRequest, for_a_new_run, resolve
from experiments.resolved import RoundOptions
from harness.run.worker_specs import coordinated


def test_the_faults_of_a_round_are_compiled_once_whatever_its_tag(monkeypatch: pytest.MonkeyPatch) -> None:
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
