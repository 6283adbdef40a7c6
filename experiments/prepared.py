"""`run` and `repro`: what is decided before anything is started, played, and what the rounds say together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.report.documents import read_result
from experiments.context import CommandContext
from experiments.experiment import Budget, Rounds, Strategy, close_run_folder, kept
from experiments.judging import RoundOutcome, TellStopped, summarize
from experiments.player import RunOptions, opened_campaign
from harness.errors import BrokerstormError
from harness.rundir import RunDir

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.verdict.campaign import Campaign, Question
    from experiments.campaign import CampaignRunner
    from harness.clusters.external import External
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is to be played.

    Attributes:
        plans: of all rounds that can be foreseen.
        strategy: asks for the rounds.
        names: of the folders of the rounds, where they are known; else `question` is.
        question: what `repro` was asked.
        max_time_s: after which no round begins; None = no limit.
    """

    root: RunDir
    plans: list[Plan]
    about: str
    command: str
    warnings: tuple[str, ...]
    strategy: Strategy[None]
    names: Sequence[str] = ()
    question: Question | None = None
    external: External | None = None
    max_time_s: float | None = None

    def summary(self, outcomes: Sequence[RoundOutcome], duration_s: float) -> Campaign:
        """What the rounds say together, written into the folder."""
        return summarize(
            self.root,
            self.plans,
            outcomes,
            command=self.command,
            about=self.about,
            duration_s=duration_s,
            names=self.names,
            question=self.question,
        )

    def play(
        self, campaign: CampaignRunner, progress: BaseProgress, *, goes_on: bool = False
    ) -> Result | Campaign:
        """Play all rounds: the result of the only one, or the summary of several.

        Args:
            goes_on: others are played after these on the same cluster.

        Raises:
            BrokerstormError: interrupted, or it could not be run; what is finished can be analysed.
        """
        began = time.monotonic()
        for text in self.warnings:
            progress.note(f"warning: {text}")
        experiment = Rounds(
            self.root, campaign, budget=Budget(self.max_time_s), tell=progress.note, goes_on=goes_on
        )
        experiment.at_its_rate(*self.plans)
        experiment.run(self.strategy)
        if not self.root.campaign.exists():
            return read_result(self.root)
        return self.summary(experiment.outcomes, time.monotonic() - began)


def play(
    context: CommandContext, options: RunOptions, prepared: Prepared, tell_stopped: TellStopped, **more: Any
) -> Result | Campaign:
    """As `Prepared.play`, on clusters of its own.

    Args:
        tell_stopped: gets what the finished rounds had found when the rest could not be played.
        more: as of `opened_campaign`.
    """
    began, root = time.monotonic(), prepared.root
    try:
        opened = opened_campaign(
            context, options, root, prepared.plans, prepared.command, is_latest=True, **more
        )
        with opened as (campaign, progress):
            return prepared.play(campaign, progress)
    except BrokerstormError as error:
        outcomes = kept(root, RoundOutcome)
        if root.campaign.exists() and outcomes:
            tell_stopped(root, prepared.summary(outcomes, time.monotonic() - began))
        close_run_folder(root, error)
        raise
