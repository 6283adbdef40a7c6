"""Which rounds of a campaign share a cluster: not the one after a round that left it in pieces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments import campaign as module
from experiments.campaign import CampaignRunner
from experiments.experiment import RoundRequest, Rounds
from experiments.resolved import Resolved, RoundOptions
from experiments.variants import one_after_the_other
from harness.errors import Interrupted, WorkerError
from harness.run.interrupts import Interrupts
from harness.run.lifecycle import RunOutcome
from harness.rundir import RunDir
from tests.lent import settings
from tests.unit.test_repro_rounds import Notes

WHOLE, BROKEN = RunOutcome("complete"), RunOutcome("complete", is_restored=False)
PLAN: Any = SimpleNamespace(
    system="kafka",
    version="4.1.2",
    external=None,
    topology="",
    broker_config={},
    limits={"ready": 1.0},
    variant="a",
)


class Campaign(CampaignRunner):
    """One whose clusters, faults and judging only leave a line in a log."""

    def __init__(
        self, folder: Path, interrupts: Interrupts, log: list[str], **options: bool
    ) -> None:
        context = replace(settings(folder), interrupts=interrupts)
        super().__init__(
            context, Resolved(plans=[], options=RoundOptions(**options)), RunDir(folder), ""
        )  # type: ignore[arg-type]
        self.progress = Notes()
        self.log = log
        self.phases: list[str] = []

    def _open_cluster(self, plan: Any) -> Any:
        return Opened(self.log)

    def _injector(self, plan: Any, cluster: Any, run: RunDir) -> Any:
        return None

    def _on_phase(self, name: str) -> None:
        self.phases.append(name)

    def _judge(self, run: RunDir) -> Any:
        self.log.append("judged")


class Opened:
    """A cluster that only says what happens to it."""

    admin: Any = None
    runtime: Any = None

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def up(self, *, timeout_s: float) -> None:
        self.log.append("up")

    def down(self) -> None:
        self.log.append("down")


def test_a_round_after_a_client_that_refused_to_start_gets_fresh_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise WorkerError("AckEvery=50 requires one topic")

    campaign = Campaign(tmp_path, Interrupts(), [])
    monkeypatch.setattr(module, "LiveRun", lambda *_, **__: SimpleNamespace(execute=refuse))
    monkeypatch.setattr(
        module, "drop_topics", lambda admin, plan: campaign.log.append("topics deleted")
    )
    with pytest.raises(WorkerError):
        campaign.run_round(PLAN, RunDir(tmp_path / "1"), is_last=False)
    assert campaign.log == ["up", "topics deleted"]


def test_sealing_and_judging_are_phases_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign(tmp_path, Interrupts(), [])
    play([WHOLE], campaign, tmp_path, monkeypatch)
    assert campaign.phases == ["seal", "judge"]


def rounds(
    outcomes: list[RunOutcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupts: Interrupts,
    **options: bool,
) -> list[str]:
    """What happens to clusters in as many rounds, and with ``options`` when they are judged."""
    campaign = Campaign(tmp_path, interrupts, [], **options)
    play(outcomes, campaign, tmp_path, monkeypatch)
    return [line for line in campaign.log if options or line != "judged"]


def play(
    outcomes: list[RunOutcome], campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(outcomes)
    live = lambda *_, **__: SimpleNamespace(execute=lambda: next(left))  # noqa: E731
    monkeypatch.setattr(module, "LiveRun", live)
    monkeypatch.setattr(
        module, "drop_topics", lambda admin, plan: campaign.log.append("topics deleted")
    )
    for name in ("seal", "drop_segments"):
        monkeypatch.setattr(module, name, lambda *_: None)
    for number, _ in enumerate(outcomes, start=1):
        try:
            campaign.run_round(
                PLAN, RunDir(tmp_path / str(number)), is_last=number == len(outcomes)
            )
        except Interrupted:
            campaign.log.append("stopped")


def test_a_round_after_one_that_broke_the_cluster_gets_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rounds([WHOLE, BROKEN, WHOLE], tmp_path, monkeypatch, Interrupts()) == [
        *("up", "topics deleted"),
        "down",
        *("up", "down"),
    ]


def test_after_a_signal_nothing_is_done_to_topics_that_go_with_their_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = Interrupts()
    interrupts.stop.set()
    assert rounds([WHOLE], tmp_path, monkeypatch, interrupts) == ["up", "down", "stopped"]


def test_a_round_that_was_cut_is_judged_and_the_next_one_is_not_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `run` asks for. `LiveRun.execute` says when there is something to judge."""
    interrupts = Interrupts()
    interrupts.begin_finishing()
    interrupts.stop.set()
    assert rounds([WHOLE], tmp_path, monkeypatch, interrupts, judges_cut=True) == [
        "up",
        "down",
        "judged",
    ]
    assert interrupts.gives_up.is_set(), "whatever comes next is ended at once"
    campaign = Campaign(tmp_path, interrupts, [])
    played = Rounds(RunDir(tmp_path), campaign)
    request = RoundRequest(name="b-1", key="", plan=PLAN)
    assert played.run(one_after_the_other([request, request])) is None
    assert played.outcomes == []
