"""`brokerstorm run`: from what was asked to verdict, summary and exit code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.context import Context
from experiments.experiment import OutOfBudget, RoundRequest, Strategy, key_of
from experiments.judging import RoundOutcome, number_of
from experiments.load_request import LoadRequest, load_request, refuse_from_elsewhere
from experiments.plans import choose_plans, drawn, external_of, on_external, read_plan, read_scenario
from experiments.preflight import preflight
from experiments.prepared import Prepared
from harness.errors import UsageError
from harness.plan.rates import as_recorded
from harness.rundir import RunDir, new_run, write_json
from harness.telemetry.request import MetricsRequest

if TYPE_CHECKING:
    from harness.contracts.plan import Plan


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
    load_master: str | None = None
    load_tasks: int | None = None
    load_store: str = ""

    @property
    def load(self) -> LoadRequest | None:
        """Where the load comes from; None = this machine.

        Raises:
            UsageError: options do not fit.
        """
        return load_request(self.load_master, self.load_tasks, self.load_store, self.master)


def prepare(context: Context, request: RunRequest, root: RunDir | None = None) -> Prepared:
    """Everything that is decided before anything is started; ``root``: its folder, None = a new one.

    Raises:
        BrokerstormError: it could not be started, and there is no folder of it.
    """
    if request.cluster_file and request.keep_up:
        raise UsageError("--keep-up: the cluster of --cluster stays up anyway", hint="leave out --keep-up")
    if request.cluster_file and request.secure:
        raise UsageError("--secure: the cluster of --cluster is as it is", hint="leave out --secure")
    load = request.load
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
    if load:
        if request.metrics and (request.metrics.otlp or request.metrics.prometheus):
            raise UsageError(
                "metrics count rows of this machine, and those of --load-master are elsewhere",
                hint="leave out --otlp and --prometheus",
            )
        refuse_from_elsewhere(plans, external, secure=request.secure)
    # Refused before a folder is made.
    ready = preflight(plans, context.run_dir, request.runtime, external=external, secure=request.secure)
    warnings = ready.require().warnings
    root = root.create() if root else new_run(context.run_dir, name)
    if text:
        root.scenario.write_text(text)
    command, names = _repeated(context, request, seed), round_names(plans)
    if len(plans) > 1:
        # Written before the first starts: a campaign that is cut short still says what it was to be.
        write_json(root.campaign, {"schema_version": 1, "runs": names, "command": command})
        for plan, folder in zip(plans, names, strict=True):
            write_json(RunDir(root.root / folder).plan, plan.model_dump(mode="json"))

    return Prepared(
        root=root,
        plans=plans,
        about=about,
        command=command,
        warnings=warnings,
        strategy=one_after_the_other(_requests(context, request, plans, names)),
        names=names,
        external=external,
    )


def _requests(
    context: Context, request: RunRequest, plans: Sequence[Plan], names: Sequence[str]
) -> list[RoundRequest]:
    """The rounds in their order; each says how to repeat that round."""

    def command_of(plan: Plan) -> str:
        repeats = sum(each.variant == plan.variant for each in plans) > 1
        rounds, variant = 1 if repeats else request.rounds, plan.variant or request.variant
        return _repeated(context, replace(request, rounds=rounds, variant=variant), plan.seed)

    return [
        RoundRequest(
            name=folder if len(plans) > 1 else "",
            key=key_of(plan),
            plan=plan,
            number=number_of(plan, plans),
            command=command_of(plan),
            is_last=plan is plans[-1],
            told=_one_line if len(plans) > 1 else lambda outcome: "",
        )
        for plan, folder in zip(plans, names, strict=True)
    ]


def one_after_the_other(requests: Sequence[RoundRequest]) -> Strategy[None]:
    """All variants in turn, round by round."""
    with suppress(OutOfBudget):
        for request in requests:  # noqa: UP028 - a list takes no outcomes
            yield request


def round_names(plans: Sequence[Plan]) -> list[str]:
    """A folder name for each round: ``unsafe-1``, ``safe-1``, ``unsafe-2`` ..."""
    seen: dict[str, int] = {}
    names = []
    for plan in plans:
        label = plan.variant or "round"
        seen[label] = seen.get(label, 0) + 1
        names.append(f"{label}-{seen[label]}")
    return names


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
    assert each.run is not None
    found = ", ".join(f"{cls} {count:,}" for cls, count in each.run.violations.items())
    return f"{each.variant or 'round'}: {each.run.verdict}" + (f" ({found})" if found else "")
