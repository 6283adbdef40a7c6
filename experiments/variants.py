"""`brokerstorm run`: from what was asked to verdict, summary and exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.report.documents import begin_campaign
from analysis.verdict.campaign import CLEAN, BegunCampaign
from experiments.context import CommandContext
from experiments.experiment import OutOfBudget, Prepared, RoundRequest, Strategy
from experiments.judging import RoundOutcome, number_of
from experiments.load_request import LoadRequest, load_request
from experiments.plans import ScenarioRequest, external_of, resolve, resolve_scenario
from experiments.preflight import preflight
from experiments.resolved import RoundOptions, key_of
from experiments.windows import WINDOW_S, WindowRequest
from harness.errors import UsageError
from harness.rundir import RunDir, new_run, write_json
from harness.telemetry.request import MetricsRequest

if TYPE_CHECKING:
    from harness.contracts.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(ScenarioRequest):
    """The command line of `run`; without ``scenario``, the replayed run is repeated."""

    replay: RunDir | None
    until_hit: bool = False
    max_time_s: float | None = None
    window_s: float | None = None
    fail_fast: bool = False
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
    load_port: int | None = None
    load_address: str = ""

    @property
    def windows(self) -> WindowRequest:
        """How a round is judged while it runs."""
        return WindowRequest(WINDOW_S if self.window_s is None else self.window_s, self.fail_fast)

    @property
    def load(self) -> LoadRequest | None:
        """The Spark cluster whose executors make the load; None = this machine.

        Raises:
            UsageError: options do not fit.
        """
        return load_request(
            self.load_master,
            self.load_tasks,
            self.load_store,
            self.master,
            port=self.load_port,
            address=self.load_address,
        )

    def options(self) -> RoundOptions:
        """Where and how the rounds run; the cluster of ``--cluster`` is asked for its id.

        Raises:
            BrokerstormError: as `external_of`, or options do not fit.
        """
        return RoundOptions(
            runtime=self.runtime,
            external=external_of(self.cluster_file),
            secure=self.secure,
            offline=self.offline,
            keep_up=self.keep_up,
            master=self.master,
            replay=self.replay,
            metrics=self.metrics,
            judges_cut=True,
            windows=self.windows,
            load=self.load,
        )


def prepare_run(
    context: CommandContext, request: RunRequest, root: RunDir | None = None
) -> Prepared:
    """Everything that is decided before anything is started; ``root``: its folder, None = a new
    one.

    Raises:
        BrokerstormError: it could not be started, and it has no folder.
    """
    _refuse_mixed(request)
    asked = replace(request, rounds=1) if request.until_hit else request
    options = request.options()
    resolved = resolve(asked, options)
    scenario, plans = resolved.scenario, list(resolved.plans)
    # Refused before a folder is made.
    warnings = preflight(resolved, context.run_dir).require().warnings
    root = root.create() if root else new_run(context.run_dir, plans[0].scenario)
    if scenario is not None:
        root.scenario.write_text(scenario.text)
    command, names = _repeated(context, request, resolved.seed), round_names(plans)
    strategy = one_after_the_other(_requests(context, request, plans, names))
    if request.until_hit:

        def further(number: int) -> Sequence[Plan]:
            assert scenario is not None
            seed = resolved.seed + number - 1
            return resolve_scenario(
                scenario, resolved.options, seed=seed, rounds=1, variant=request.variant
            ).plans

        strategy = until_hit(
            root, plans, names, further, command, partial(_of_round, context, request)
        )
    elif _is_campaign(request, plans):
        # Written before the first starts: a campaign that is cut short still says what it was to
        # be.
        begin_campaign(root, BegunCampaign(runs=names, command=command))
        for plan, folder in zip(plans, names, strict=True):
            write_json(RunDir(root.root / folder).plan, plan.model_dump(mode="json"))

    return Prepared(
        root=root,
        resolved=resolved,
        plans=plans,
        about=scenario.about if scenario else plans[0].about,
        command=command,
        warnings=warnings,
        strategy=strategy,
        names=names,
        max_time_s=request.max_time_s,
    )


def _refuse_mixed(request: RunRequest) -> None:
    """Raises: UsageError: options that contradict each other."""
    if request.cluster_file and request.keep_up:
        raise UsageError("--keep-up cannot be combined with --cluster", hint="remove --keep-up")
    if request.cluster_file and request.secure:
        raise UsageError("--secure cannot be combined with --cluster", hint="remove --secure")
    if request.load and request.metrics and (request.metrics.otlp or request.metrics.prometheus):
        raise UsageError(
            "metrics count rows of this machine only, and --load-master sends from others",
            hint="remove --otlp and --prometheus",
        )
    if request.max_time_s is not None and not request.until_hit:
        raise UsageError(
            "--max-time requires --until-hit", hint="add --until-hit; --for is the time of a load"
        )
    if request.fail_fast and (request.load or not request.windows.window_s):
        raise UsageError(
            "--fail-fast cannot be combined with --window 0s or --load-master",
            hint="for example --window 10m",
        )
    if request.until_hit and (request.rounds or request.replay or request.load):
        raise UsageError(
            "--until-hit plays as many rounds as it takes, each with faults of its own, from this machine",
            hint="remove --rounds, --replay and --load-master",
        )
    if request.replay and not request.scenario:
        _refuse_replay(request, request.replay)


def _refuse_replay(request: RunRequest, replayed: RunDir) -> None:
    """Raises: UsageError: the replayed run cannot be repeated as it was."""
    if request.overrides or request.variant or request.rounds or request.for_s is not None:
        raise UsageError(
            "--replay alone repeats a run as it was: --set, --for, --variant, --rounds need a SCENARIO too",
            hint=f"brokerstorm run SCENARIO --replay {replayed.run_id} --set ...",
        )
    if replayed.rounds():
        names = ", ".join(run.run_id for run in replayed.rounds())
        raise UsageError(
            f"{replayed.run_id} holds several runs: which one?",
            hint=f"--replay {replayed.root}/RUN, RUN one of {names}",
        )


def _of_round(context: CommandContext, request: RunRequest, plan: Plan) -> str:
    """The command that repeats one round of --until-hit."""
    once = replace(request, until_hit=False, max_time_s=None, variant=plan.variant)
    return _repeated(context, once, plan.seed)


def _is_campaign(request: RunRequest, plans: Sequence[Plan]) -> bool:
    """Whether the rounds are judged together, by what each variant is expected to show.

    The only variant of a scenario is, if it is to show a class: its verdict alone would be a pass
    when the class does not show. A round that is named (--variant, --replay) is repeated as a run
    of its own.
    """
    if len(plans) > 1:
        return True
    is_named = bool(request.variant or request.replay or request.load)
    return plans[0].expect != CLEAN and not is_named


def _requests(
    context: CommandContext, request: RunRequest, plans: Sequence[Plan], names: Sequence[str]
) -> list[RoundRequest]:
    """The rounds in their order; each says how to repeat that round."""

    def command_of(plan: Plan) -> str:
        repeats = sum(each.variant == plan.variant for each in plans) > 1
        rounds, variant = 1 if repeats else request.rounds, plan.variant or request.variant
        return _repeated(context, replace(request, rounds=rounds, variant=variant), plan.seed)

    together = _is_campaign(request, plans)
    return [
        RoundRequest(
            name=folder if together else "",
            key=key_of(plan),
            plan=plan,
            number=number_of(plan, plans),
            command=command_of(plan),
            is_last=plan is plans[-1],
            told=_one_line if together else lambda outcome: "",
        )
        for plan, folder in zip(plans, names, strict=True)
    ]


def one_after_the_other(requests: Sequence[RoundRequest]) -> Strategy[None]:
    """All variants in turn, round by round."""
    with suppress(OutOfBudget):
        for request in requests:  # noqa: UP028 - a list takes no outcomes
            yield request


def until_hit(
    root: RunDir,
    plans: list[Plan],
    names: list[str],
    further: Callable[[int], Sequence[Plan]],
    command: str,
    repeated: Callable[[Plan], str],
) -> Strategy[None]:
    """All variants in turn, each round with a fresh seed, until one of them fails.

    Args:
        plans, names: of the first round; get the ones of the rounds that are played after it.
        further: the plans of round n, from 1.
        command, repeated: what repeats all of it, and one round.
    """
    first, per_round, played = plans[0].seed, len(plans), 0

    def say() -> None:
        begin_campaign(root, BegunCampaign(runs=names, command=command))

    with suppress(OutOfBudget):
        for number in count(1):
            if number > 1:
                plans += further(number)
                names[:] = round_names(plans)
            say()  # before it starts: what is cut short still says what it was to be
            for plan, name in zip(plans[-per_round:], names[-per_round:], strict=True):
                outcome = yield RoundRequest(
                    name=name,
                    key=key_of(plan),
                    plan=plan,
                    number=plan.seed - first + 1,
                    command=repeated(plan),
                    told=_one_line,
                )
                played += 1
                if outcome.run and outcome.run.verdict == "fail":
                    raise OutOfBudget
    # The rest of a round that is not wanted any more is not missing.
    del plans[max(played, 1) :], names[max(played, 1) :]
    say()


def round_names(plans: Sequence[Plan]) -> list[str]:
    """A folder name for each round: ``unsafe-1``, ``safe-1``, ``unsafe-2`` ..."""
    seen: dict[str, int] = {}
    names = []
    for plan in plans:
        label = plan.variant or "round"
        seen[label] = seen.get(label, 0) + 1
        names.append(f"{label}-{seen[label]}")
    return names


def _repeated(context: CommandContext, request: RunRequest, seed: int) -> str:
    """The command that does the same again; a replay has the seed of its run."""
    replay = request.replay.root if request.replay else None
    pinned = seed if request.scenario else None
    return context.repeat_command("run", request, seed=pinned, replay=replay)


def _one_line(each: RoundOutcome) -> str:
    assert each.run is not None
    found = ", ".join(f"{cls} {count:,}" for cls, count in each.run.violations.items())
    return f"{each.variant or 'round'}: {each.run.verdict}" + (f" ({found})" if found else "")
