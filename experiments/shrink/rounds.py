"""`brokerstorm shrink`: candidates played on shared clusters; the smallest scenario, written once found.

A candidate is written as a scenario file and read back, checked as any other; what `plan` refuses is not run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.context import Context
from experiments.experiment import close_run_folder, playing
from experiments.plans import choose_plans, drawn, for_a_new_run, read_scenario
from experiments.player import opened_campaign
from experiments.preflight import preflight
from experiments.shrink.targets import pinned_data, read_target, write_rate
from harness.errors import BrokerstormError, UsageError
from harness.rundir import RunDir, new_run

if TYPE_CHECKING:
    from analysis.findings import Result
    from experiments.campaign import Campaign
    from experiments.shrink.record import Record, Seen
    from experiments.shrink.search import Search
    from harness.contracts.plan import Plan
    from harness.scenario.model import Scenario

#: Files of a search, in its folder.
RECORD, SMALLEST, CANDIDATE = "shrink.json", "smallest.yaml", "candidate.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkRequest:
    """The command line of `shrink`. ``resume``: the folder of a search to go on with."""

    target: str
    cls: str
    variant: str
    overrides: tuple[str, ...]
    seed: int | None
    budget_s: float | None
    out: Path | None
    resume: RunDir | None
    offline: bool
    runtime: str
    master: str | None
    keep_up: bool = False


def shrink(context: Context, request: ShrinkRequest) -> tuple[RunDir, Search, Path]:
    """Search and write the smallest scenario; folder, what was found and its file.

    Raises:
        BrokerstormError: it could not be started or was interrupted; the best so far is kept.
    """
    root, record = _resumed(request) if request.resume else _prepared(context, request)
    out = request.out or root.root / SMALLEST
    goes_on = f"brokerstorm shrink --resume {root.run_id}"
    with playing(root, goes_on, lambda: f"best so far: {out}; " if out.exists() else ""):
        try:
            return root, _search(context, request, root, record, out), out
        except BrokerstormError as error:
            close_run_folder(root, error)
            raise


# ----- before anything is started ---------------------------------------------------------------------


def _prepared(context: Context, request: ShrinkRequest) -> tuple[RunDir, Record]:
    """Everything that is decided before anything is started.

    Raises:
        BrokerstormError: it could not be started, and there is no folder of it.
    """
    from experiments.shrink.record import Record

    if request.out and request.out.exists():
        raise UsageError(f"{request.out} exists", hint="--out names another file")
    target = read_target(
        context.run_dir,
        request.target,
        cls=request.cls,
        variant=request.variant,
        overrides=request.overrides,
    )
    seed = drawn(target.seed if request.seed is None else request.seed)
    preflight(choose_plans(target.scenario, seed=seed, rounds=1), context.run_dir, request.runtime).require()
    root = new_run(context.run_dir, f"shrink-{target.scenario.name}")
    asked = {
        "command": context.repeat_command("shrink", request, seed=seed),
        "cls": target.cls,
        "witness": target.witness,
        "seed": seed,
        "data": pinned_data(target),
    }
    return root, Record(root.root / RECORD, asked)


def _resumed(request: ShrinkRequest) -> tuple[RunDir, Record]:
    from experiments.shrink.record import Record

    assert request.resume is not None
    return request.resume, Record.read(request.resume.root / RECORD)


# ----- the rounds -------------------------------------------------------------------------------------


def _search(context: Context, request: ShrinkRequest, root: RunDir, record: Record, out: Path) -> Search:
    from experiments.shrink.document import smallest_text
    from experiments.shrink.reductions import shape_of
    from experiments.shrink.search import Search

    asked: dict[str, Any] = dict(record.asked)
    files = LiveCandidates(context, request.runtime, root, asked["command"], asked["witness"])
    first = files.plan(asked["data"], asked["seed"])
    with opened_campaign(context, request, root, [first], asked["command"]) as (campaign, progress):
        files.campaign = campaign
        if first.rate_choice is not None:
            (measured,) = campaign.with_rates([first], root)
            write_rate(asked["data"], int(measured.rate_per_s))
        record.asked = asked
        record.save()

        def keep() -> None:
            day = time.strftime("%Y-%m-%d")
            out.write_text(smallest_text(search, command=asked["command"], day=day))

        search = Search(
            shape_of(files.read(asked["data"]), asked["data"]),
            files,
            record,
            asked["cls"],
            asked["seed"],
            request.budget_s,
            tell=progress.note,
            on_better=keep,
        )
        try:
            search.run()
        finally:
            if search.shows:  # also when it is stopped: what was not tried is marked
                keep()
    return search


@dataclass(slots=True)
class LiveCandidates:
    """Reads candidates as the user's files are read; plays them, those with the same brokers on one cluster.

    Attributes:
        campaign: to play them in.
        witness: of a known bug, the text that a round must have, too.
    """

    context: Context
    runtime: str
    root: RunDir
    command: str
    witness: str
    campaign: Campaign | None = None
    _is_warm: bool = field(default=False, init=False)

    def read(self, data: Mapping[str, Any]) -> Scenario:
        """The checked scenario of a candidate; its file stays until the next one.

        Raises:
            BrokerstormError: it is none.
        """
        from experiments.shrink.words import file_text

        path = self.root.root / CANDIDATE
        path.write_text(file_text(data, [], {}))
        return read_scenario(str(path))

    def plan(self, data: Mapping[str, Any], seed: int) -> Plan:
        """Raises: BrokerstormError: what `plan` refuses, or what this machine lacks."""
        (plan,) = choose_plans(self.read(data), seed=seed, rounds=1)
        preflight([plan], self.context.run_dir, self.runtime).require()
        return plan

    def refusal(self, candidate: Mapping[str, Any]) -> str:
        try:
            self.plan(candidate, 0)
        except BrokerstormError as error:
            return " ".join(str(error).split()).removeprefix(f"{self.root.root / CANDIDATE}:")
        return ""

    def play(self, candidate: Mapping[str, Any], seed: int) -> Seen:
        from experiments.campaign import try_round
        from experiments.shrink.record import Seen

        scenario = self.read(candidate)
        plan = for_a_new_run(choose_plans(scenario, seed=seed, rounds=1)[0])
        run = self._folder()
        run.scenario.write_text(scenario.text)
        assert self.campaign is not None
        played = try_round(self.campaign, plan, run, command=self.command, is_first=not self._is_warm)
        if isinstance(played, str):
            return Seen({}, played, run.run_id)
        self._is_warm = True
        return seen_of(played.result, run, self.witness)

    def _folder(self) -> RunDir:
        """The next free one: a search that goes on keeps the rounds of before."""
        number = 1 + sum(path.name.startswith("round-") for path in self.root.root.iterdir())
        return RunDir(self.root.root / f"round-{number:03d}").create()


def seen_of(result: Result, run: RunDir, witness: str = "") -> Seen:
    """What a round shows: nothing if it is unknown, no fault took effect, or it is another bug."""
    from analysis.findings import Verdict
    from analysis.verdict.sightings import look_for
    from experiments.shrink.record import Seen

    told = (*result.violations(), *result.excused())
    classes = {found.cls: found.count for found in told}
    first_s = {found.cls: min(each.t_s for each in found.witnesses) for found in told if found.witnesses}
    fired = [fault for fault in result.faults if not fault.skipped]
    why_not = ""
    if result.verdict is Verdict.UNKNOWN:
        why_not = "unknown: " + (result.reasons[0] if result.reasons else "no reason is given")
    elif result.faults and not any(fault.effective for fault in fired):
        why_not = "no fault took effect"
    elif witness and classes and not look_for(run, witness).where:
        why_not = f"nothing has the text of the bug: {witness}"
    return Seen(classes, why_not, run.run_id, first_s)
