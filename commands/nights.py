"""Runs the turns of a night: shared clusters, one Spark session, downloads ahead, one retry."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from commands.campaigns import opened_campaign
from commands.console import Settings
from commands.plans import choose_plans, needs_of, read_scenario
from commands.turns import judged, keep_traceback, modified, play_cell, reasons_of
from commands.upkeep import end_leftovers, fetch_files
from harness.errors import BrokerstormError, EnvironmentNotReady, Exit
from suites.night import Ended, Night, NightDir, Turn, again, word_of

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.spark.session import WarmSession
    from harness.plan.model import Plan
    from harness.progress.view import BaseProgress
    from harness.run.campaign import Campaign
    from history.store import History

#: A turn that ends with one of these is run once more: it says nothing of clients and brokers.
BREAKS = (Exit.ENVIRONMENT, Exit.NOT_HEALED, Exit.BUG)
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Options:
    """As `commands.campaigns.RunOptions`."""

    runtime: str
    offline: bool
    keep_up: bool = False
    master: str | None = None


@dataclass(frozen=True, slots=True)
class _Bed:
    """What turns that share a cluster have in common."""

    group: str
    needs: frozenset[str]


class NightRun:
    """One process's part of a night: from the first turn that is not finished to the last.

    Args:
        tell: gets one line for everything that is not as planned.
    """

    def __init__(
        self, settings: Settings, night_dir: NightDir, night: Night, history: History, tell: Tell
    ) -> None:
        self._settings = settings
        self._dir = night_dir
        self._night = night
        self._history = history
        self._tell = tell

    def play(self) -> None:
        """Run every turn that is not finished and fits what is left of the budget.

        Raises:
            Interrupted: stopped; what is finished is kept, and `--resume` goes on.
            EnvironmentNotReady: the disk is full.
        """
        from analysis.spark.session import WarmSession

        left = [turn for turn in self._night.turns if self._dir.ended(turn) is None]
        left = [turn for turn in left if not self._adopt(turn)]
        for turn in left:
            self._dir.set_aside(turn)
        plans = {turn.folder: self._plans(turn) for turn in left}
        if not self._night.offline:
            self._fetch([plan for each in plans.values() for plan in each])
        with WarmSession(None) as session:
            for bed, turns in groupby(left, lambda turn: self._bed(turn, plans[turn.folder])):
                self._play_in(bed, list(turns), plans, session)

    # ----- before the first turn

    def _plans(self, turn: Turn) -> list[Plan]:
        """The plans of a turn; none where it cannot be planned, which playing it will tell."""
        cell = self._night.cell(turn)
        try:
            plans = choose_plans(read_scenario(cell.scenario, cell.overrides), seed=turn.seed, rounds=1)
        except BrokerstormError:
            return []
        return [plan for plan in plans if not cell.pair or plan.variant in cell.variants]

    def _bed(self, turn: Turn, plans: Sequence[Plan]) -> _Bed:
        return _Bed(self._night.cell(turn).group, needs_of(plans))

    def _fetch(self, plans: Sequence[Plan]) -> None:
        """Download and build ahead of the first turn; what cannot be had breaks its own turns only."""
        wanted = {
            str((plan.system, plan.version, [(p.client, p.client_version) for p in plan.producers],
                 [(c.client, c.client_version) for c in plan.consumers], sorted(needs_of([plan])))): plan
            for plan in plans
        }  # fmt: skip
        with closing(self._settings.progress()) as progress:
            for plan in wanted.values():
                try:
                    fetch_files([plan], progress.download)
                except BrokerstormError as error:
                    self._settings.interrupts.raise_if_stopped()
                    progress.note(f"not fetched for {plan.scenario}: {error}")

    # ----- the turns

    def _play_in(
        self, bed: _Bed, turns: Sequence[Turn], plans: dict[str, list[Plan]], session: WarmSession
    ) -> None:
        """Turns that share a cluster, one after the other."""
        options = _Options(self._night.cell(turns[0]).runtime, self._night.offline)
        every = [plan for turn in turns for plan in plans[turn.folder]]
        opened = opened_campaign(
            self._settings, options, self._dir.run, every, self._night.command, session=session
        )
        with opened as (campaign, progress):
            for turn in turns:
                if self._is_over_budget(turn):
                    progress.note(
                        f"{turn.cell}: not run: {turn.expected_s:.0f} s do not fit the budget any more"
                    )
                    continue
                self._finish(turn, self._turn(turn, campaign, progress), progress)

    def _is_over_budget(self, turn: Turn) -> bool:
        budget_s = self._night.budget_s
        if budget_s is None:
            return False
        ended = (self._dir.ended(each) for each in self._night.turns)
        spent_s = sum(each.duration_s for each in ended if each is not None)
        return spent_s + turn.expected_s > budget_s

    def _turn(self, turn: Turn, campaign: Campaign[Result], progress: BaseProgress) -> Ended:
        """Play a turn, twice if it breaks the first time."""
        began, started = time.monotonic(), datetime.now(UTC)
        broken: list[str] = []
        for name in (turn.folder, again(turn.folder)):
            code, reasons, command = self._attempt(turn, name, campaign, progress)
            if code not in BREAKS or broken:
                break
            broken = [*reasons, f"exit code {code}"][:1]
            progress.note(f"{turn.cell}: broke, and is run once more: {broken[0]}")
            self._clear(campaign, progress)
        if code in BREAKS:
            self._clear(campaign, progress)
        return Ended(
            cell=turn.cell,
            number=turn.number,
            seed=turn.seed,
            is_sticky=turn.is_sticky,
            folder=name,
            verdict=word_of(code),
            exit_code=code,
            reasons=reasons,
            broken=broken,
            started=started.isoformat(timespec="seconds"),
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            duration_s=round(time.monotonic() - began, 3),
            command=command,
        )

    def _attempt(
        self, turn: Turn, name: str, campaign: Campaign[Result], progress: BaseProgress
    ) -> tuple[int, list[str], str]:
        """Exit code, reasons and the command that repeats it.

        Raises:
            Interrupted: stopped.
        """
        root = self._dir.folder(name)
        try:
            cell, offline = self._night.cell(turn), self._night.offline
            code, command = play_cell(self._settings, cell, turn.seed, root, campaign, progress, offline)
        except Exception as error:  # noqa: BLE001 - what breaks a turn must not stop the others
            self._settings.interrupts.raise_if_stopped()
            code = int(error.exit_code) if isinstance(error, BrokerstormError) else Exit.BUG
            text = str(error) if isinstance(error, BrokerstormError) else f"{type(error).__name__}: {error}"
            if code == Exit.BUG:
                keep_traceback(root)
            return code, [" ".join(text.split())], ""
        return code, reasons_of(root), command

    def _clear(self, campaign: Campaign[Result], progress: BaseProgress) -> None:
        """A fresh cluster for what comes next, and nothing left of the one that broke."""
        try:
            campaign.close()
        except BrokerstormError as error:
            progress.note(f"the cluster did not end: {error}")
        end_leftovers(self._dir.id)

    # ----- what is kept

    def _finish(self, turn: Turn, ended: Ended, progress: BaseProgress) -> None:
        """Keep how a turn ended: in the history first, whose rows are the same when they are added again."""
        try:
            self._keep_rows(turn, ended)
            self._dir.finish(turn, ended)
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot keep how {turn.cell} ended: {error.strerror or error}",
                hint=f"free some space; then `{self._resume()}` goes on, finished cells are kept",
            ) from error
        progress.note(f"{ended.verdict}: {turn.cell}, seed {turn.seed}, {ended.duration_s:.0f} s")

    def _resume(self) -> str:
        return f"brokerstorm suite run {self._night.file} --resume"

    def _keep_rows(self, turn: Turn, ended: Ended) -> None:
        from history.rounds import Labels, broken_round, rounds_of

        cell = self._night.cell(turn)
        settings = dict(one.split("=", 1) for one in cell.overrides)
        labels = Labels(
            night=self._dir.id,
            suite=self._night.suite,
            cell=cell.id,
            round=turn.number,
            settings=settings,
            is_sticky=turn.is_sticky,
            is_control=cell.is_control,
        )
        if ended.verdict != "broken":
            rows = rounds_of(self._dir.folder(ended.folder), labels)
        else:
            name = cell.history_cells[0]
            rows = [
                broken_round(
                    replace(labels, cell=name),
                    scenario=cell.scenario,
                    exit_code=ended.exit_code,
                    reason="; ".join(ended.reasons),
                    seed=turn.seed,
                    system=cell.system,
                    folder=str(self._dir.root / ended.folder),
                    started=ended.started,
                    ended=ended.ended,
                )
            ]
        for row in rows:
            self._history.add(row)

    def _adopt(self, turn: Turn) -> bool:
        """Finish a turn that was judged when the night was killed, without running it again."""
        for name in (again(turn.folder), turn.folder):
            run = self._dir.folder(name)
            with suppress(BrokerstormError):
                found = judged(run)
                ended = Ended(
                    cell=turn.cell,
                    number=turn.number,
                    seed=turn.seed,
                    is_sticky=turn.is_sticky,
                    folder=name,
                    verdict=word_of(found.exit_code),
                    exit_code=found.exit_code,
                    reasons=reasons_of(run),
                    started=modified(run.plan if run.plan.exists() else run.scenario),
                    ended=modified(run.junit),
                    duration_s=round(sum(found.duration_s.values()), 3),
                    command=found.command,
                )
                self._keep_rows(turn, ended)
                self._dir.finish(turn, ended)
                self._tell(f"{turn.cell}, seed {turn.seed}: was judged already, {ended.verdict}")
                return True
        return False
