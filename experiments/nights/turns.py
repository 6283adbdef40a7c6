"""Plays the turns of a night live: a cell with one seed, as `run` or `repro` would, on shared clusters."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from experiments import variants as running
from experiments.context import Context
from experiments.downloads import fetch_files, fetch_spark
from experiments.experiment import Rounds, play_in
from experiments.leftovers import end_leftovers
from experiments.nights.matrix import Cell
from experiments.nights.night import Ended, Night, NightDir, Turn
from experiments.nights.playing import Played
from experiments.plans import choose_plans, needs_of, read_scenario
from experiments.player import Options, opened_campaign
from experiments.preflight import clients_of
from experiments.repro import rounds as repro
from experiments.repro.request import ReproRequest
from harness.errors import BrokerstormError
from harness.rundir import RunDir

if TYPE_CHECKING:
    from analysis.spark.session import WarmSession
    from experiments.campaign import Campaign
    from experiments.history.rounds import Round
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress


class LivePlayer:
    """Turns on live clusters. Use it as a ``with`` block: the Spark session ends with it."""

    def __init__(self, context: Context, night_dir: NightDir, night: Night) -> None:
        from analysis.spark.session import WarmSession

        self._context = context
        self._dir = night_dir
        self._night = night
        self._session: WarmSession = WarmSession(None)
        self._stack = ExitStack()
        self._planned: dict[str, list[Plan]] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self._session)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def bed(self, turn: Turn) -> tuple[str, frozenset[str]]:
        """Brokers and runtime, and what faults need of the cluster's start, such as a proxy before it."""
        return self._night.cell(turn).group, needs_of(self._plans(turn))

    def fetch(self, turns: Sequence[Turn]) -> None:
        wanted = {_downloads(plan): plan for turn in turns for plan in self._plans(turn)}
        with closing(self._context.progress()) as progress:
            if wanted:
                fetch_spark(progress.download)
            for plan in wanted.values():
                try:
                    fetch_files([plan], progress.download)
                except BrokerstormError as error:
                    self._context.interrupts.raise_if_stopped()
                    progress.note(f"not fetched for {plan.scenario}: {error}")

    @contextmanager
    def opened(self, turns: Sequence[Turn]) -> Iterator[LiveBed]:
        options = Options(self._night.cell(turns[0]).runtime, self._night.offline)
        plans = [plan for turn in turns for plan in self._plans(turn)]
        opened = opened_campaign(
            self._context, options, self._dir.run, plans, self._night.command, session=self._session
        )
        with opened as (campaign, progress):
            yield LiveBed(self._context, self._dir, self._night, campaign, progress, self._session)

    def judged(self, root: RunDir) -> Played | None:
        if not root.junit.exists():  # written last
            return None
        with suppress(BrokerstormError):
            return played_of(root)
        return None

    def rows(self, turn: Turn, ended: Ended) -> list[Round]:
        from experiments.history.rounds import Labels, broken_round, rounds_of

        cell = self._night.cell(turn)
        labels = Labels(
            night=self._dir.id,
            suite=self._night.suite,
            cell=cell.id,
            round=turn.number,
            settings=dict(one.split("=", 1) for one in cell.overrides),
            is_sticky=turn.is_sticky,
            is_control=cell.is_control,
        )
        if ended.verdict != "broken":
            return with_whole_time(rounds_of(self._dir.folder(ended.folder), labels), ended.duration_s)
        known = {
            "seed": turn.seed,
            "system": cell.system,
            "client": cell.client,
            "client_version": cell.client_version or None,
            "folder": str(self._dir.root / ended.folder),
            "started": ended.started,
            "ended": ended.ended,
        }
        reason = "; ".join(ended.reasons)
        return [
            broken_round(
                replace(labels, cell=name),
                scenario=cell.scenario,
                exit_code=ended.exit_code,
                reason=reason,
                **known,
            )
            for name in cell.history_cells
        ]

    def _plans(self, turn: Turn) -> list[Plan]:
        """The plans of a turn; none where it cannot be planned, which playing it will tell."""
        if turn.folder not in self._planned:
            cell = self._night.cell(turn)
            plans: list[Plan] = []
            with suppress(BrokerstormError):
                read = read_scenario(cell.scenario, cell.overrides)
                plans = choose_plans(read, seed=turn.seed, rounds=1)
            arms = [plan for plan in plans if not cell.pair or plan.variant in cell.variants]
            self._planned[turn.folder] = arms
        return self._planned[turn.folder]


def with_whole_time(rows: Sequence[Round], took_s: float) -> list[Round]:
    """The rounds of a turn with the time that it took in all, shared as theirs is.

    What comes before a round (a cluster, a calibration) counts against the budget of the next night too.
    """
    known_s = sum(row.duration_s or 0.0 for row in rows)
    if not 0.0 < known_s < took_s:
        return list(rows)
    factor = took_s / known_s
    return [
        row if row.duration_s is None else replace(row, duration_s=round(row.duration_s * factor, 3))
        for row in rows
    ]


def _downloads(plan: Plan) -> tuple[Any, ...]:
    """What two plans must share to need the same downloads."""
    return plan.system, plan.version, tuple(sorted(clients_of(plan))), needs_of([plan])


class LiveBed:
    """A cluster for turns that follow each other."""

    def __init__(
        self,
        context: Context,
        night_dir: NightDir,
        night: Night,
        campaign: Campaign,
        progress: BaseProgress,
        session: WarmSession,
    ) -> None:
        self._context = context
        self._dir = night_dir
        self._night = night
        self._campaign = campaign
        self._progress = progress
        self._session = session

    def play(self, turn: Turn, root: RunDir) -> Played:
        try:
            self._play(self._night.cell(turn), turn.seed, root)
            return played_of(root)
        except BrokerstormError:
            raise
        except Exception:
            _keep_traceback(root)
            raise

    def clear(self) -> None:
        try:
            self._campaign.close()
        except BrokerstormError as error:
            self._progress.note(f"the cluster did not end: {error}")
        end_leftovers(self._dir.id)
        self._session.close()  # it may be what broke; the next turn opens another

    def note(self, text: str) -> None:
        self._progress.note(text)

    def _play(self, cell: Cell, seed: int, root: RunDir) -> None:
        began = time.monotonic()
        shared: dict[str, Any] = {
            "seed": seed,
            "overrides": cell.overrides,
            "runtime": cell.runtime,
            "keep_up": False,
            "offline": self._night.offline,
            "master": None,
        }
        if cell.pair:
            asked = ReproRequest(
                bug=cell.scenario, pair=cell.pair, rounds=cell.tries, quick=True, client_jars=None, **shared
            )
            rounds: Rounds = repro.prepare(self._context, asked, root)
        else:
            request = running.RunRequest(scenario=cell.scenario, rounds=1, variant="", replay=None, **shared)
            rounds = running.prepare(self._context, request, root)
        play_in(self._campaign, self._progress, rounds, began, goes_on=True)


def played_of(root: RunDir) -> Played:
    """What a turn came to, from its folder.

    Raises:
        UsageError: it is not judged, or not to the end.
    """
    from analysis.findings import Result
    from analysis.report.documents import read_campaign, read_result

    found = read_campaign(root) if root.campaign.exists() else read_result(root)
    if isinstance(found, Result):
        reasons = list(found.reasons)
    elif found.reproduction is not None:
        reasons = [found.reproduction.why]
    else:
        reasons = [f"{each.name}: {each.outcome}" for each in found.variants if not each.as_expected]
    took_s = sum(found.duration_s.values())
    return Played(found.exit_code, reasons, found.command, took_s)


def _keep_traceback(root: RunDir) -> None:
    """The traceback of the error that is being handled, into the folder of its turn."""
    with suppress(OSError):
        Path(root.root).mkdir(parents=True, exist_ok=True)
        (root.root / "traceback.txt").write_text(traceback.format_exc())
