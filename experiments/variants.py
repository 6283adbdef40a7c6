"""`brokerstorm run`: from what was asked to verdict, summary and exit code."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.context import Context
from experiments.judging import RoundOutcome, TellStopped, summarize
from experiments.plans import (
    choose_plans,
    external_of,
    for_a_new_run,
    on_external,
    read_plan,
    read_scenario,
)
from experiments.player import opened_campaign
from experiments.preflight import preflight
from harness.errors import BrokerstormError, Interrupted, UsageError
from harness.rundir import RunDir, new_run, write_json
from harness.telemetry.request import MetricsRequest

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.verdict.campaign import Campaign as Summary
    from experiments.campaign import Campaign
    from harness.clusters.external import External
    from harness.contracts.plan import Plan

MAX_SEED = 1_000_000


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
    """Everything decided before anything is started."""

    root: RunDir
    plans: list[Plan]
    about: str
    command: str
    command_of: Callable[[Plan], str]
    warnings: tuple[str, ...]
    external: External | None = None


def play(
    context: Context, request: RunRequest, prepared: PreparedRun, tell_stopped: TellStopped
) -> Result | Summary:
    """Run all rounds: the result of the only one, or the summary of several.

    Args:
        tell_stopped: gets what the finished rounds of several had found when a signal ended them.

    Raises:
        BrokerstormError: interrupted, or it could not be run; what is finished can be shown and analysed.
    """
    began = time.monotonic()
    rounds: list[RoundOutcome] = []
    try:
        _run_rounds(context, request, prepared, rounds)
    except BrokerstormError as error:
        if rounds and len(prepared.plans) > 1:
            so_far = _summarize(prepared, rounds, time.monotonic() - began)
            if isinstance(error, Interrupted):
                tell_stopped(prepared.root, so_far)
        close_run_folder(prepared.root, error)
        raise
    if len(prepared.plans) == 1:
        return rounds[0].result
    return _summarize(prepared, rounds, time.monotonic() - began)


def close_run_folder(root: RunDir, error: BrokerstormError) -> None:
    """Say what can still be had of a run that was cut short; nothing at all leaves no folder."""
    if not any(root.root.rglob("manifest.json")) and not root.cluster.exists():
        shutil.rmtree(root.root)
    elif not error.hint and (root.raw.exists() or root.campaign.exists()):
        error.hint = f"what was captured until then: `brokerstorm analyze {root.run_id}`"


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
        seed = request.seed if request.seed is not None else secrets.randbelow(MAX_SEED)
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


def _run_rounds(
    context: Context, request: RunRequest, prepared: PreparedRun, rounds: list[RoundOutcome]
) -> None:
    """Play what was prepared, and add each round to ``rounds`` once it is judged."""
    several = len(prepared.plans) > 1
    opened = opened_campaign(
        context,
        request,
        prepared.root,
        prepared.plans,
        prepared.command,
        replay=request.replay,
        external=prepared.external,
        metrics=request.metrics,
        secure=request.secure,
        judges_cut=True,
    )
    with opened as (campaign, progress):
        for text in prepared.warnings:
            progress.note(f"warning: {text}")
        for each in campaign.run(prepared.plans, command_of=prepared.command_of):
            rounds.append(each)
            if several:
                progress.note(_one_line(each))


def play_in(campaign: Campaign, prepared: PreparedRun) -> int:
    """Run what was prepared in a campaign that goes on after it; its exit code.

    Raises:
        BrokerstormError: as `Campaign.run`.
    """
    began = time.monotonic()
    rounds = list(
        campaign.run(
            prepared.plans,
            root=prepared.root,
            command=prepared.command,
            command_of=prepared.command_of,
            goes_on=True,
        )
    )
    if len(rounds) == 1:
        return rounds[0].result.exit_code
    return _summarize(prepared, rounds, time.monotonic() - began).exit_code


def _summarize(prepared: PreparedRun, rounds: Sequence[RoundOutcome], duration_s: float) -> Summary:
    from experiments.campaign import round_names

    return summarize(
        prepared.root,
        prepared.plans,
        rounds,
        command=prepared.command,
        about=prepared.about,
        duration_s=duration_s,
        names=round_names(prepared.plans),
    )


def _one_line(each: RoundOutcome) -> str:
    found = ", ".join(f"{finding.cls} {finding.count:,}" for finding in each.result.violations())
    return f"{each.plan.variant or each.plan.scenario}: {each.result.verdict}" + (
        f" ({found})" if found else ""
    )
