"""What a run is made of: the only place where harness, faults and analysis meet."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.opening import Opening
from commands.summaries import judge_run
from harness.errors import UsageError
from harness.rundir import RunDir, point_latest, read_json

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.spark.session import WarmSession
    from commands.console import Settings
    from faults import Timeline
    from harness.plan.model import Plan
    from harness.progress.view import BaseProgress
    from harness.protocols.cluster import Cluster, FaultStorm
    from harness.run.campaign import Stage
    from harness.scenario.model import Scenario


def read_scenario(name: str, overrides: Sequence[str] = ()) -> Scenario:
    """A scenario checked against the workers, classes and fault kinds there are.

    Raises:
        ScenarioError: one line with place, key, value and what is allowed.
    """
    import faults
    from analysis.classes import CLASSES
    from harness.plan.build import topic_plans
    from harness.scenario.file import load_scenario
    from harness.workers import known_workers

    def check_faults(scenario: Scenario) -> None:
        faults.compile(
            scenario.faults,
            seed=0,
            load_s=scenario.load.duration,
            topics=topic_plans(scenario),
            nodes=node_roles(scenario.system, scenario.cluster.version, scenario.cluster.topology),
        )

    return load_scenario(
        name, overrides=overrides, clients=known_workers(), classes=list(CLASSES), check_faults=check_faults
    )


def node_roles(system: str, version: str = "", topology: str = "") -> dict[str, tuple[str, ...]]:
    """Nodes of a system's cluster and what each is."""
    from harness.clusters import spec_of

    return {service.name: service.roles for service in spec_of(system, version, topology).nodes}


def choose_plans(
    scenario: Scenario, *, seed: int, rounds: int | None = None, variant: str = "", salt: str = ""
) -> list[Plan]:
    """The plans of a run; ``rounds`` and ``variant`` narrow the scenario.

    Raises:
        UsageError: no such variant.
        ScenarioError: settings that the client refuses.
    """
    from harness.plan.build import build_plans

    if variant and variant not in scenario.variants:
        known = ", ".join(scenario.variants) or "none"
        raise UsageError(f"{scenario.name} has no variant {variant!r}", hint=f"its variants: {known}")
    wanted = scenario if rounds is None else scenario.model_copy(update={"rounds": rounds})
    return [
        plan for plan in build_plans(wanted, seed=seed, salt=salt) if not variant or plan.variant == variant
    ]


def timeline_of(plan: Plan) -> Timeline:
    """The firings of a plan."""
    import faults

    return faults.compile(
        plan.faults,
        seed=plan.seed,
        load_s=plan.load_s,
        topics=plan.topics,
        nodes=node_roles(plan.system, plan.version, plan.topology),
    )


def read_plan(run: RunDir) -> Plan:
    """The plan that a run was made from.

    Raises:
        UsageError: unreadable, or of another version.
    """
    from pydantic import ValidationError

    from harness.plan.model import Plan

    try:
        return Plan.model_validate(read_json(run.plan))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "plan"
        raise UsageError(f"{run.plan} is not a plan of this version: {where}: {first['msg']}") from error


def timeline_rows(timeline: Timeline) -> list[dict[str, Any]]:
    """Firings as JSON, each with the commands that it would send."""
    import faults

    return [
        {
            "id": f.id,
            "fault": f.kind,
            "target": f.target,
            "t_s": f.t_s,
            "for_s": f.for_s,
            "params": dict(f.params),
            "commands": faults.commands_of(f, timeline),
        }
        for f in timeline.firings
    ]


def new_run(run_dir: Path, name: str) -> RunDir:
    """A folder of its own for a run that starts now, named so that names sort by time.

    Raises:
        UsageError: the folder of runs cannot be written.
    """
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        for number in range(1, 100):
            folder = run_dir / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return RunDir(folder)
    except OSError as error:
        raise UsageError(
            f"cannot write to the run folder {run_dir}: {error.strerror}", hint="--run-dir names another"
        ) from error
    raise UsageError(f"{run_dir} already holds a hundred runs of this second")


def repeat_command(arguments: Sequence[str]) -> str:
    """The command that repeats a run, as a user would type it."""
    return shlex.join(["brokerstorm", *arguments])


def make_stage(
    settings: Settings,
    progress: BaseProgress,
    session: WarmSession,
    root: RunDir,
    plans: Sequence[Plan],
    *,
    runtime: str,
    offline: bool,
    replay: RunDir | None = None,
) -> Stage[Result]:
    """Cluster, faults and judging of a campaign; a cluster has what the faults of all plans need.

    Args:
        runtime: "auto", "process" or "docker"; what auto means is decided once for a cluster of one kind.
    """
    import faults
    from harness.run.campaign import Stage

    timelines = [timeline_of(plan) for plan in plans]
    opening = Opening(runtime, faults.needs_of(timelines), offline=offline, progress=progress)

    def open_cluster(plan: Plan, root: RunDir) -> Cluster:
        return opening.open(plan, timeline_of(plan), root)

    def storm(plan: Plan, cluster: Cluster, run: RunDir) -> FaultStorm:
        words = [plan.scenario, plan.variant, f"seed {plan.seed}"]
        progress.begin(
            " · ".join(word for word in words if word),
            rate_per_s=plan.rate_per_s,
            warm_up_s=plan.warm_up_s,
            load_s=plan.load_s,
        )
        timeline = timeline_of(plan) if replay is None else faults.load_replay(replay)
        stopping, hurry = settings.interrupts.stop, settings.interrupts.hurry
        return faults.Storm(timeline, cluster, run, on_event=progress.fault, stopping=stopping, hurry=hurry)

    def on_phase(name: str) -> None:
        if name == "ready":
            point_latest(root)  # from here on there is something to show
        if name == "drain":
            session.start()

    def judge(run: RunDir) -> Result:
        return judge_run(run, session, in_campaign=run.root != root.root)

    return Stage(open_cluster, storm, judge, on_phase)
