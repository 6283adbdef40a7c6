"""The command that a summary names to repeat a run: all of it, or the one round that the page is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import running
from commands.console import Settings
from commands.preflight import Preflight
from harness.plan.estimate import Estimate
from harness.run.interrupts import Interrupts


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
    rounds: int | None, variant: str, repeated: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Preflight((), (), Estimate(True, 0, 0, 0, 0, 0.0))
    monkeypatch.setattr(running, "preflight", lambda *_, **_more: nothing)
    settings = Settings(
        json=False, quiet=True, verbose=0, color=False, run_dir=tmp_path, interrupts=Interrupts()
    )
    request = running.RunRequest(
        **{"scenario": "kafka-quick", "seed": 7, "overrides": (), "rounds": rounds, "variant": variant},
        **{"replay": None, "keep_up": False, "offline": False, "runtime": "auto", "master": None},
    )
    prepared = running.prepare(settings, request)
    commands = [prepared.command_of(plan) for plan in prepared.plans]
    assert commands == [f"brokerstorm run kafka-quick {words}" for words in repeated]
