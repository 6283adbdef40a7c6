"""`brokerstorm shrink`: candidates played on shared clusters; the smallest scenario, written once
found.

A candidate is written as a scenario file and read back, checked as any other; what `plan` refuses
is not run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from experiments.campaign import CampaignRunner
from experiments.context import CommandContext
from experiments.experiment import Budget, Rounds
from experiments.folders import begun, close_run_folder, keep_asked, playing
from experiments.plans import drawn, read_scenario, resolve_scenario
from experiments.preflight import preflight
from experiments.resolved import Resolved, RoundOptions
from experiments.shrink.document import smallest_text
from experiments.shrink.reductions import shape_of
from experiments.shrink.search import Search, Wanted
from experiments.shrink.targets import pinned_data, read_target, write_rate
from experiments.shrink.words import file_text
from harness.errors import BrokerstormError, UsageError
from harness.rundir import Document, RunDir, new_run

if TYPE_CHECKING:
    from harness.contracts.plan import Plan
    from harness.scenario.model import Scenario

KIND: Final = "search"
#: Files of a search, in its folder.
SMALLEST, CANDIDATE = "smallest.yaml", "candidate.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkRequest:
    """The command line of `shrink`. ``resume``: the folder of a search to continue, or its id."""

    target: str
    cls: str
    variant: str
    overrides: tuple[str, ...]
    seed: int | None
    budget_s: float | None
    out: Path | None
    resume: str | None
    offline: bool
    runtime: str
    master: str | None

    def options(self) -> RoundOptions:
        """Where and how the rounds run."""
        return RoundOptions(runtime=self.runtime, offline=self.offline, master=self.master)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkQuestion:
    """The question of `shrink`, written down before the first round.

    Attributes:
        cls: the class that must stay; empty = the one that the first round shows.
        witness: of a known bug, the text that a round must have, too.
        data: the scenario to make smaller.
        fixed: of a known bug, the same with the fixed version; empty = it is none.
        bug: of a known bug, the key ``bug`` without pairs.
    """

    command: str
    cls: str
    witness: str
    seed: int
    data: Document
    fixed: Document = field(default_factory=dict)
    bug: Document = field(default_factory=dict)


def shrink(context: CommandContext, request: ShrinkRequest) -> tuple[RunDir, Search, Path]:
    """Search and write the smallest scenario; folder, what was found and its file.

    Raises:
        BrokerstormError: it could not be started or was interrupted; the best so far is kept.
    """
    if request.resume is None:
        root, asked = _prepared(context, request)
    else:
        root, asked = begun(context.run_dir, request.resume, KIND, ShrinkQuestion)
    out = request.out or root.root / SMALLEST
    goes_on = f"brokerstorm shrink --resume {root.run_id}"
    with playing(root, goes_on, lambda: f"best so far: {out}; " if out.exists() else ""):
        try:
            return root, _search(context, request, root, asked, out), out
        except BrokerstormError as error:
            if request.resume is None:  # a folder that was there before is not removed
                close_run_folder(root, error)
            raise


# ----- before anything is started -----------------------------------------------------------------


def _prepared(context: CommandContext, request: ShrinkRequest) -> tuple[RunDir, ShrinkQuestion]:
    """Everything that is decided before anything is started.

    Raises:
        BrokerstormError: it could not be started, and it has no folder.
    """
    if request.out and request.out.exists():
        raise UsageError(f"{request.out} exists", hint="--output names another file")
    target = read_target(
        context.run_dir,
        request.target,
        cls=request.cls,
        variant=request.variant,
        overrides=request.overrides,
    )
    seed = drawn(target.seed if request.seed is None else request.seed)
    resolved = resolve_scenario(target.scenario, request.options(), seed=seed, rounds=1)
    preflight(resolved, context.run_dir, ask_indexes=False).require()
    root = new_run(context.run_dir, f"shrink-{target.scenario.name}")
    asked = ShrinkQuestion(
        command=context.repeat_command("shrink", request, seed=seed),
        cls=target.cls,
        witness=target.witness,
        seed=seed,
        data=pinned_data(target),
        fixed=pinned_data(replace(target, scenario=target.fixed)) if target.fixed else {},
        bug=target.bug,
    )
    keep_asked(root, KIND, asked)
    return root, asked


# ----- the rounds ---------------------------------------------------------------------------------


def _search(
    context: CommandContext, request: ShrinkRequest, root: RunDir, asked: ShrinkQuestion, out: Path
) -> Search:
    plan = partial(_plan, context, request.options(), root)
    first = plan(asked.data, asked.seed)
    resolved = Resolved(plans=[first], options=request.options(), seed=asked.seed)
    with CampaignRunner(context, resolved, root, asked.command) as campaign:
        budget = Budget(request.budget_s)
        experiment = Rounds(root, campaign, budget=budget)
        (measured,) = experiment.at_its_rate(first)
        if measured.rate_choice is not None:
            write_rate(asked.data, int(measured.rate_per_s))

        def keep() -> None:
            day = time.strftime("%Y-%m-%d")
            text = smallest_text(
                search, command=asked.command, day=day, fixed=asked.fixed, bug=asked.bug
            )
            out.write_text(text)

        search = Search(
            shape_of(_read(root, asked.data), asked.data),
            plan,
            Wanted(asked.cls, asked.witness),
            asked.seed,
            asked.command,
            tell=lambda text: campaign.progress.note(f"{text}{budget.left_text}"),
            on_better=keep,
        )
        try:
            experiment.run(search.rounds())
        finally:
            if search.shows:  # also when it is stopped: what was not tried is marked
                keep()
    return search


def _read(root: RunDir, data: Document) -> Scenario:
    """The checked scenario of a candidate; its file stays until the next one.

    Raises:
        BrokerstormError: it is none.
    """
    path = root.root / CANDIDATE
    path.write_text(file_text(data, [], {}))
    return read_scenario(str(path))


def _plan(
    context: CommandContext, options: RoundOptions, root: RunDir, data: Document, seed: int
) -> Plan:
    """Raises: BrokerstormError: what `plan` refuses, or what this machine lacks."""
    try:
        resolved = resolve_scenario(_read(root, data), options, seed=seed, rounds=1)
    except UsageError as error:
        text = str(error).removeprefix(f"{root.root / CANDIDATE}:")
        raise UsageError(text, hint=error.hint) from error
    preflight(resolved, context.run_dir, ask_indexes=False).require()
    (plan,) = resolved.plans
    return plan
