"""`brokerstorm run`: from what was asked to verdict, summary and exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import experiment
from experiments.context import Context
from experiments.judging import RoundOutcome, TellStopped, summarize
from experiments.plans import (
    choose_plans,
    drawn,
    external_of,
    for_a_new_run,
    on_external,
    read_plan,
    read_scenario,
)
from experiments.preflight import preflight
from harness.errors import UsageError
from harness.rundir import RunDir, new_run, write_json
from harness.telemetry.request import MetricsRequest

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.verdict.campaign import Campaign as Summary
    from experiments.campaign import Campaign
    from harness.clusters.external import External
    from harness.contracts.plan import Plan
    from harness.progress.view import BaseProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The command line of `run`. ``scenario`` None = that of the replayed run."""

    scenario: str | None
    seed: int | None
    overrides: tuple[str, ...]
    rounds: int | None
    variant: str
    replay: RunDir | None
    keep_up: bool
    offline: bool
    runtime: str
    master: str | None
    cluster_file: Path | None = None
    metrics: MetricsRequest | None = None
    secure: bool = False


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """Everything decided before anything is started, and the rounds so far."""

    root: RunDir
    plans: list[Plan]
    about: str
    command: str
    command_of: Callable[[Plan], str]
    warnings: tuple[str, ...]
    external: External | None = None
    judged: list[RoundOutcome] = field(default_factory=list)

    def every_plan(self) -> list[Plan]:
        return self.plans

    def play(self, campaign: Campaign, progress: BaseProgress, *, goes_on: bool) -> None:
        """All variants in turn, round by round."""
        rounds = campaign.run(
            self.plans, root=self.root, command=self.command, command_of=self.command_of, goes_on=goes_on
        )
        for each in rounds:
            self.judged.append(each)
            if len(self.plans) > 1 and not goes_on:
                progress.note(_one_line(each))

    def summary(self, duration_s: float) -> Summary:
        from experiments.campaign import round_names

        return summarize(
            self.root,
            self.plans,
            self.judged,
            command=self.command,
            about=self.about,
            duration_s=duration_s,
            names=round_names(self.plans),
        )


def play(
    context: Context, request: RunRequest, prepared: PreparedRun, tell_stopped: TellStopped
) -> Result | Summary:
    """Run all rounds; as `experiments.experiment.play`."""
    return experiment.play(
        context,
        request,
        prepared,
        tell_stopped,
        replay=request.replay,
        external=prepared.external,
        metrics=request.metrics,
        secure=request.secure,
        judges_cut=True,
    )


def prepare(context: Context, request: RunRequest, root: RunDir | None = None) -> PreparedRun:
    """Everything that is decided before anything is started; ``root``: its folder, None = a new one.

    Raises:
        BrokerstormError: it could not be started, and there is no folder of it.
    """
    from experiments.campaign import round_names
    from harness.plan.rates import as_recorded

    if request.cluster_file and request.keep_up:
        raise UsageError("--keep-up: the cluster of --cluster stays up anyway", hint="leave out --keep-up")
    if request.cluster_file and request.secure:
        raise UsageError("--secure: the cluster of --cluster is as it is", hint="leave out --secure")
    external = external_of(request.cluster_file)
    if request.scenario is None:
        plans = [_replayed_plan(request)]
        name, about, text, seed = plans[0].scenario, plans[0].about, "", plans[0].seed
    else:
        scenario = read_scenario(request.scenario, request.overrides, external=external)
        seed = drawn(request.seed)
        plans = choose_plans(scenario, seed=seed, rounds=request.rounds, variant=request.variant)
        name, about, text = scenario.name, scenario.about, scenario.text
        if request.replay is not None:
            plans = [as_recorded(plan, read_plan(request.replay)) for plan in plans]
    plans = on_external(plans, external)
    # Refused before a folder is made.
    ready = preflight(plans, context.run_dir, request.runtime, external=external, secure=request.secure)
    warnings = ready.require().warnings
    root = root.create() if root else new_run(context.run_dir, name)
    plans = [for_a_new_run(plan) for plan in plans]
    if text:
        root.scenario.write_text(text)
    if len(plans) > 1:
        # Written before the first starts: a campaign that is cut short still says what it was to be.
        for plan, folder in zip(plans, round_names(plans), strict=True):
            write_json(RunDir(root.root / folder).plan, plan.model_dump(mode="json"))
    command = _repeated(context, request, seed)

    def command_of(plan: Plan) -> str:
        repeats = sum(each.variant == plan.variant for each in plans) > 1
        rounds, variant = 1 if repeats else request.rounds, plan.variant or request.variant
        return _repeated(context, replace(request, rounds=rounds, variant=variant), plan.seed)

    return PreparedRun(root, plans, about, command, command_of, warnings, external)


def _replayed_plan(request: RunRequest) -> Plan:
    """The plan of the run to replay.

    Raises:
        UsageError: it is several runs, or options do not fit.
    """
    assert request.replay is not None
    if request.overrides or request.variant or request.rounds:
        raise UsageError(
            "--replay alone repeats a run as it was: --set, --variant and --rounds need a SCENARIO too",
            hint=f"brokerstorm run SCENARIO --replay {request.replay.run_id} --set ...",
        )
    if request.replay.rounds():
        names = ", ".join(run.run_id for run in request.replay.rounds())
        raise UsageError(
            f"{request.replay.run_id} holds several runs: which one?",
            hint=f"--replay {request.replay.root}/RUN, RUN one of {names}",
        )
    return read_plan(request.replay)


def _repeated(context: Context, request: RunRequest, seed: int) -> str:
    """The command that does the same again; a replay has the seed of its run."""
    replay = request.replay.root if request.replay else None
    pinned = seed if request.scenario else None
    return context.repeat_command("run", request, seed=pinned, replay=replay)


def _one_line(each: RoundOutcome) -> str:
    found = ", ".join(f"{finding.cls} {finding.count:,}" for finding in each.result.violations())
    return f"{each.plan.variant or each.plan.scenario}: {each.result.verdict}" + (
        f" ({found})" if found else ""
    )
