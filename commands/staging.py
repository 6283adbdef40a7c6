"""One cluster, one Spark session and one live view for all rounds of a command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol

from commands import wiring
from commands.console import Settings

if TYPE_CHECKING:
    from analysis.findings import Result
    from harness.plan.model import Plan
    from harness.progress.view import BaseProgress
    from harness.run.campaign import Campaign
    from harness.rundir import RunDir


class Manner(Protocol):
    """How the rounds are run, of a command line."""

    @property
    def keep_up(self) -> bool: ...
    @property
    def offline(self) -> bool: ...
    @property
    def runtime(self) -> str: ...
    @property
    def master(self) -> str | None: ...


@contextmanager
def opened_campaign(
    settings: Settings,
    manner: Manner,
    root: RunDir,
    plans: Sequence[Plan],
    command: str,
    *,
    replay: RunDir | None = None,
) -> Iterator[tuple[Campaign[Result], BaseProgress]]:
    """A campaign to play ``plans`` in, and its live view; everything is ended after it, whatever happened.

    With ``--keep-up`` the cluster stays when all went well.
    """
    from analysis.spark.session import WarmSession
    from harness.run.campaign import Campaign

    with closing(settings.progress()) as progress, WarmSession(manner.master) as session:
        stage = wiring.make_stage(
            settings,
            progress,
            session,
            root,
            plans,
            runtime=manner.runtime,
            offline=manner.offline,
            replay=replay,
        )
        campaign: Campaign[Result] = Campaign(
            root,
            stage,
            progress=progress,
            interrupts=settings.interrupts,
            command=command,
            offline=manner.offline,
            keep_up=manner.keep_up,
        )
        with campaign.opened():
            yield campaign, progress
            if manner.keep_up:
                _keep(campaign)


def _keep(campaign: Campaign[Result]) -> None:
    """Leave the cluster running."""
    from harness.clusters import BrokerCluster

    cluster = campaign.release()
    if isinstance(cluster, BrokerCluster):
        cluster.keep()
