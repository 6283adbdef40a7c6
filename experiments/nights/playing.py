"""Plays the turns of a night: a cell with one seed each, as `run` or `repro` would; what breaks
once more.

Turns that follow each other share a cluster where they can. A turn is finished as soon as its rows
are in the history and it is kept in the night's folder. What is killed before that is run again,
unless it was judged already; the rows of a turn are the same when they are added twice.
"""

from __future__ import annotations

import math
import shutil
import time
import traceback
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from analysis.findings import Result
from analysis.report.documents import read_campaign, read_result
from experiments import variants
from experiments.campaign import CampaignRunner
from experiments.context import CommandContext
from experiments.downloads import fetch_files, fetch_spark
from experiments.experiment import Budget, Experiment, OutOfBudget, Request
from experiments.folders import set_aside
from experiments.history.hours import rounds_with_hours
from experiments.history.rounds import Labels, broken_round
from experiments.hunt.hunting import RESULT, hunt
from experiments.leftovers import end_leftovers
from experiments.nights.hunts import hunt_reasons, hunt_request, hunt_round
from experiments.nights.night import BREAKS, Ended, Night, NightDir, Turn, again, word_of
from experiments.nights.planning import resolve_cell
from experiments.repro import rounds as repro
from experiments.repro.request import ReproRequest
from experiments.resolved import Resolved, RoundOptions
from harness.errors import BrokerstormError, EnvironmentNotReady, Exit
from harness.rundir import RunDir, read_json, reading

if TYPE_CHECKING:
    from analysis.spark.session import WarmSession
    from experiments.history.rounds import Round
    from experiments.history.store import History

#: Below it no run can be captured.
LEAST_FREE_BYTES = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest(Request):
    """A turn to play.

    Attributes:
        broken: what the attempt before it broke with; empty = it is the first one.
    """

    turn: Turn
    broken: list[str] = field(default_factory=list)

    @classmethod
    def from_turn(cls, turn: Turn) -> TurnRequest:
        return cls(
            turn=turn, name=turn.folder, key=turn.key, expected_s=turn.expected_s, told=_first_line
        )

    def once_more(self, ended: Ended) -> TurnRequest:
        """The second attempt, whatever time is left."""
        return replace(
            self, name=again(self.name), broken=why_broken(ended), expected_s=-math.inf, told=_line
        )


def _first_line(ended: Ended) -> str:
    if ended.exit_code in BREAKS:
        return f"broke: {ended.cell}: {'; '.join(why_broken(ended))}; it is run once more"
    return _line(ended)


def _line(ended: Ended) -> str:
    seed = f"seed {ended.seed}{', red before' if ended.is_sticky else ''}"
    return f"{ended.verdict}: {ended.cell}, {seed}, {ended.duration_s:.0f} s"


def why_broken(ended: Ended) -> list[str]:
    """Return why an attempt is repeated."""
    return [*ended.reasons[:1], f"exit code {ended.exit_code}"]


def every_turn(
    turns: Sequence[Turn], tell: Callable[[str], None]
) -> Generator[TurnRequest, Ended, None]:
    """Asks for each turn, twice if it breaks the first time. ``tell`` gets a line of each that is
    not run."""
    for turn in turns:
        request = TurnRequest.from_turn(turn)
        try:
            ended = yield request
            if ended.exit_code in BREAKS:
                yield request.once_more(ended)
        except OutOfBudget as error:
            tell(f"not run: {turn.cell}: {error}")


class NightTurns(Experiment[TurnRequest, Ended]):
    """The turns of a night on live clusters. Use it as a ``with`` block: clusters and Spark end
    with it.

    Args:
        tell: gets a line of what happens while no view is open.
    """

    def __init__(
        self,
        context: CommandContext,
        night_dir: NightDir,
        night: Night,
        history: History,
        tell: Callable[[str], None],
    ) -> None:
        from analysis.spark.session import WarmSession

        super().__init__(night_dir.run, Ended, Budget(night.budget_s), self._note)
        self.budget = Budget(night.budget_s, spent_s=sum(each.duration_s for each in self.outcomes))
        self._context = context
        self._dir = night_dir
        self._night = night
        self._history = history
        self._say = tell
        self._planned: dict[str, Resolved] = {}
        self._cluster = ExitStack()
        self._session: WarmSession = WarmSession(None)
        self._campaign: CampaignRunner | None = None
        self._bed: Hashable = None

    def __enter__(self) -> NightTurns:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
        self._session.close()

    def play(self) -> None:
        """Play every turn that is not finished and fits what is left of the budget.

        Raises:
            Interrupted: stopped; what is finished is kept, and ``--resume`` continues.
            EnvironmentNotReady: the disk is full; what is finished is kept, and ``--resume``
                continues.
        """
        if not self._night.offline:
            self._fetch([turn for turn in self._night.turns if turn.folder not in self._kept])
        try:
            self.run(every_turn(self._night.turns, self._note))
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot keep how a turn ended: {error.strerror or error}", hint=self._resume_hint()
            ) from error

    def _note(self, text: str) -> None:
        (self._campaign.progress.note if self._campaign else self._say)(text)

    def _resume_hint(self) -> str:
        return (
            f"free some space; then `brokerstorm suite run {self._night.file} --resume` continues"
        )

    # ----- one turn -------------------------------------------------------------------------------

    def _played_before(self, request: TurnRequest) -> Ended | None:
        """A turn that was judged when the night was killed."""
        with suppress(BrokerstormError):
            ended = self._judged(request, self._dir.folder(request.name))
            if ended is not None and ended.exit_code not in BREAKS:
                self._note(f"{ended.cell}, seed {ended.seed}: was judged already: {ended.verdict}")
                return self._in_history(request, ended)
        return None

    def _judged(self, request: TurnRequest, root: RunDir) -> Ended | None:
        """How a turn ended, from its folder; None = it was not judged to the end."""
        if self._night.cell(request.turn).hunt is not None:
            return _ended_hunt(request, root) if (root.root / RESULT).exists() else None
        return ended_of(request, root) if root.junit.exists() else None  # it is written last

    def _play(self, request: TurnRequest) -> Ended:
        started, began, root = datetime.now(UTC), time.monotonic(), self._dir.folder(request.name)
        if root.root.exists():  # cut short: what it captured stays
            set_aside(root.root, "cut")
        try:
            self._play_live(request.turn, root)
            ended = self._judged(request, root)
            if ended is None:
                raise EnvironmentNotReady("it was not judged to its end")
        except Exception as error:  # noqa: BLE001 - what breaks one turn must not stop the others
            self._context.interrupts.raise_if_stopped()
            ended = _broken(request, error, root)
        took_s = round(time.monotonic() - began, 3)
        ended = replace(ended, started=started.isoformat(timespec="seconds"), duration_s=took_s)
        if ended.exit_code in BREAKS:
            self._require_disk()
            self._clear()
        return self._in_history(request, ended)

    def _in_history(self, request: TurnRequest, ended: Ended) -> Ended:
        """The rows first: a turn that is finished is in the history."""
        if ended.exit_code not in BREAKS or request.broken:
            for row in self._rows(request.turn, ended):
                self._history.add(row)
        return ended

    def _require_disk(self) -> None:
        """Every turn that comes would break on a full disk, and be over.

        Raises:
            EnvironmentNotReady: the room is not sufficient.
        """
        free_bytes = shutil.disk_usage(self._dir.root).free
        if free_bytes < LEAST_FREE_BYTES:
            raise EnvironmentNotReady(
                f"the disk of {self._dir.root} is full: {free_bytes / 1e6:.0f} MB are free",
                hint=self._resume_hint(),
            )

    def _play_live(self, turn: Turn, root: RunDir) -> None:
        """Play a turn as `run`, `repro` or `hunt` would. May raise anything."""
        cell = self._night.cell(turn)
        if cell.hunt is not None:
            self._leave()  # it has clusters of its own
            request = hunt_request(
                cell,
                cell.hunt,
                self._dir.root.parent,
                seed=turn.seed,
                offline=self._night.offline,
            )
            hunt(self._context, request, root=root, session=self._session)
            return
        campaign = self._campaign_of(turn)
        shared: dict[str, Any] = {
            "seed": turn.seed,
            "overrides": cell.overrides,
            "runtime": cell.runtime,
            "keep_up": False,
            "offline": self._night.offline,
            "master": None,
        }
        if cell.pair:
            asked = ReproRequest(
                bug=cell.scenario,
                pair=cell.pair,
                rounds=cell.tries,
                quick=True,
                client_jars=None,
                **shared,
            )
            prepared = repro.prepare_repro(self._context, asked, root)
        else:
            run = variants.RunRequest(
                scenario=cell.scenario, rounds=1, variant="", replay=None, **shared
            )
            prepared = variants.prepare_run(self._context, run, root)
        prepared.play(campaign, goes_on=True)

    def _rows(self, turn: Turn, ended: Ended) -> list[Round]:
        """The rounds of a finished turn for the history."""
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
        if ended.verdict != "broken" and cell.hunt is not None:
            folder = self._dir.folder(ended.folder)
            with reading(folder):
                return [hunt_round(folder, cell, labels, ended, read_json(folder.root / RESULT))]
        if ended.verdict != "broken":
            rows = rounds_with_hours(self._dir.folder(ended.folder), labels)
            return with_whole_time(rows, ended.duration_s)
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

    # ----- clusters -------------------------------------------------------------------------------

    def _campaign_of(self, turn: Turn) -> CampaignRunner:
        """The clusters for a turn, shared with the turns before it where they can be shared."""
        bed = self._bed_of(turn)
        if self._campaign is None or bed != self._bed:
            self._leave()
            turns = self._night.turns[self._night.turns.index(turn) :]
            plans = [
                plan
                for each in takewhile(lambda one: self._bed_of(one) == bed, turns)
                for plan in self._resolved(each).plans
            ]
            options = RoundOptions(
                runtime=self._night.cell(turn).runtime, offline=self._night.offline
            )
            campaign = CampaignRunner(
                self._context,
                Resolved(plans=plans, options=options),
                self._dir.run,
                self._night.command,
                session=self._session,
            )
            self._campaign = self._cluster.enter_context(campaign)
            self._bed = bed
        return self._campaign

    def _leave(self) -> None:
        """End the clusters of the turns before."""
        self._campaign = None
        self._cluster.close()

    def _clear(self) -> None:
        """After a turn that broke: what comes next gets a fresh cluster, nothing of the old one is
        left."""
        try:
            self._leave()
        except BrokerstormError as error:
            self._note(f"the cluster did not end: {error}")
        end_leftovers(self._dir.id)
        self._session.close()  # it may be what broke; the next turn opens another

    def _bed_of(self, turn: Turn) -> tuple[str, frozenset[str]]:
        """Brokers and runtime, and what faults need of the cluster's start, such as a proxy before
        it."""
        return self._night.cell(turn).group, self._resolved(turn).needs

    def _resolved(self, turn: Turn) -> Resolved:
        """The rounds of a turn; none where it cannot be planned, which playing it will tell."""
        if turn.folder not in self._planned:
            found = Resolved(plans=[])
            with suppress(BrokerstormError):
                found = resolve_cell(self._night.cell(turn), seed=turn.seed)
            self._planned[turn.folder] = found
        return self._planned[turn.folder]

    def _fetch(self, turns: Sequence[Turn]) -> None:
        """Download and build what turns need. What is not available breaks its own turns, later."""
        wanted: dict[Hashable, Resolved] = {}
        for turn in turns:
            for plan in self._resolved(turn).plans:
                one = replace(self._resolved(turn), plans=[plan])
                wanted[_downloads(one)] = one
        with closing(self._context.progress()) as progress:
            if wanted:
                fetch_spark(progress.download)
            for one in wanted.values():
                try:
                    fetch_files(one, progress.download)
                except BrokerstormError as error:
                    self._context.interrupts.raise_if_stopped()
                    progress.note(f"not fetched for {one.plans[0].scenario}: {error}")


def _downloads(one: Resolved) -> Hashable:
    """Return what two rounds must share to need the same downloads."""
    clients = sorted((client.library, client.version) for client in one.clients)
    return tuple(one.clusters), tuple(clients), one.needs


def with_whole_time(rows: Sequence[Round], took_s: float) -> list[Round]:
    """The rounds of a turn with the time that it took in all, shared as theirs is.

    What comes before a round (a cluster, a calibration) counts against the budget of the next night
    too.
    """
    known_s = sum(row.duration_s or 0.0 for row in rows)
    if not 0.0 < known_s < took_s:
        return list(rows)
    factor = took_s / known_s
    return [
        row
        if row.duration_s is None
        else replace(row, duration_s=round(row.duration_s * factor, 3))
        for row in rows
    ]


def ended_of(request: TurnRequest, root: RunDir) -> Ended:
    """How a turn ended, from its folder.

    Raises:
        UsageError: it is not judged, or not to the end.
    """
    found = read_campaign(root) if root.campaign.exists() else read_result(root)
    if isinstance(found, Result):
        reasons = list(found.reasons)
    elif found.reproduction is not None:
        reasons = [found.reproduction.why]
    else:
        reasons = [
            f"{each.name}: {each.outcome}" for each in found.variants if not each.as_expected
        ]
    took_s = round(sum(found.duration_s.values()), 3)
    return ended_now(request, found.exit_code, reasons, command=found.command, duration_s=took_s)


def _ended_hunt(request: TurnRequest, root: RunDir) -> Ended:
    """How a hunt ended, from its folder.

    Raises:
        UsageError: its result is damaged.
    """
    found = read_json(root.root / RESULT)
    with reading(root):
        return ended_now(
            request, found["exit_code"], hunt_reasons(found), command=str(found["command"])
        )


def ended_now(
    request: TurnRequest,
    exit_code: int,
    reasons: list[str],
    *,
    command: str = "",
    duration_s: float = 0.0,
) -> Ended:
    """How a turn ended now, with this exit code."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Ended(
        cell=request.turn.cell,
        number=request.turn.number,
        seed=request.turn.seed,
        is_sticky=request.turn.is_sticky,
        folder=request.name,
        verdict=word_of(exit_code),
        exit_code=int(exit_code),
        reasons=reasons,
        broken=request.broken,
        started=now,
        ended=now,
        duration_s=duration_s,
        command=command,
    )


def _broken(request: TurnRequest, error: Exception, root: RunDir) -> Ended:
    """How a turn ended that an error ended; of one that is ours, the traceback is kept in its
    folder."""
    text = " ".join(str(error).split())
    if isinstance(error, BrokerstormError):
        return ended_now(request, error.exit_code, [text])
    with suppress(OSError):
        root.root.mkdir(parents=True, exist_ok=True)
        (root.root / "traceback.txt").write_text("".join(traceback.format_exception(error)))
    return ended_now(request, Exit.BUG, [f"{type(error).__name__}: {text}"])
