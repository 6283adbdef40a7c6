"""The commands run and repro: play what they ask for, and show the result."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from commands import completion
from commands.console import Settings, command, write
from commands.options import (
    connection_option,
    fail_fast_option,
    for_option,
    keep_up_option,
    load_address_option,
    load_master_option,
    load_port_option,
    load_store_option,
    load_tasks_option,
    master_option,
    max_time_option,
    offline_option,
    otlp_option,
    prometheus_option,
    runtime_option,
    seconds,
    secure_option,
    seed_option,
    set_option,
    variant_option,
    window_option,
)
from commands.tables import paragraph, table
from harness.errors import Interrupted, UsageError
from harness.rundir import find_run
from harness.telemetry.request import metrics_request

if TYPE_CHECKING:
    from analysis.findings import Result
    from analysis.verdict.campaign import Campaign
    from experiments.judging import TellStopped
    from experiments.repro.request import ReproRequest
    from experiments.repro.zoo import QuickLook
    from experiments.variants import RunRequest
    from harness.rundir import RunDir

_LOG = logging.getLogger(__name__)

#: Options that may change for a run that is resumed; the others keep their defaults.
_OF_A_RESUMED_RUN: Final = frozenset({"offline", "master", "window_s", "fail_fast", "runtime"})


@command(
    "run",
    example="brokerstorm run kafka-quick\nbrokerstorm run kafka-storm --seed 7 --set load.rate=20000",
)
@click.argument("scenario", required=False, default="", shell_complete=completion.scenarios)
@seed_option
@set_option
@for_option
@click.option("--rounds", type=click.IntRange(1, 1000), help="Number of rounds of each variant.")
@click.option(
    "--until-hit", is_flag=True, help="Run rounds with new seeds until one shows a violation."
)
@max_time_option
@window_option
@fail_fast_option
@variant_option
@click.option(
    "--replay",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Use the fault times and targets of RUN.",
)
@click.option(
    "--resume",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Continue RUN, which was killed, with its original options.",
)
@keep_up_option
@offline_option
@runtime_option
@connection_option
@secure_option
@master_option
@load_master_option
@load_tasks_option
@load_store_option
@load_port_option
@load_address_option
@otlp_option
@prometheus_option
def run(
    settings: Settings,
    replay: str | None,
    resume: str | None,
    otlp: str | None,
    prometheus: str | None,
    **given: Any,
) -> int:
    """Run a scenario on a live cluster and judge it.

    Starts a cluster, sends load while faults are injected, and reports what happened to every
    message. SCENARIO is a name from `list scenarios` or a file. The exit code is the verdict: 0
    pass (or every variant as expected), 1 fail, 3 unknown.

    With --resume, RUN is a run whose command was killed. If its brokers still run, its clients
    restart and send the rest of the load. Otherwise the data that was captured is judged.
    """
    from experiments.bundle.opening import run_of
    from experiments.variants import RunRequest

    if resume is not None:
        others = [
            replay,
            *(value for name, value in given.items() if name not in _OF_A_RESUMED_RUN),
        ]
        if any(others):
            raise UsageError(
                f"--resume {resume} reuses the original options; remove SCENARIO and the others",
                hint=f"brokerstorm run --resume {resume}",
            )
        return resume_request(
            settings, find_run(settings.run_dir, resume), RunRequest(replay=None, **given)
        )
    replayed = run_of(settings.run_dir, replay) if replay else None
    if replayed is not None and replayed.campaign.exists():
        rounds = [f"{replayed.run_id}/{each.run_id}" for each in replayed.rounds()]
        raise UsageError(
            f"--replay {replay} holds several runs: name one of its rounds",
            hint=f"there are {', '.join(rounds[:10])}"
            if rounds
            else "none of its rounds was started",
        )
    if not given["scenario"] and replayed is None:
        raise UsageError("which scenario?", hint="`brokerstorm list scenarios` shows them")
    metrics = metrics_request(otlp, prometheus)
    return run_request(settings, RunRequest(replay=replayed, metrics=metrics, **given))


@command(
    "repro",
    example="brokerstorm repro pulsar-18911 --quick\nbrokerstorm repro pulsar-12779 --rounds 10\n"
    "brokerstorm repro --all --budget 2h",
)
@click.argument("bug", required=False, default="", shell_complete=completion.bugs)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Check every known bug once, as with --quick; bugs not shown for longest come first.",
)
@click.option(
    "--budget",
    "budget_s",
    callback=seconds,
    metavar="TIME",
    help="Start no new bug after this time (e.g. 2h); requires --all.",
)
@click.option(
    "--pair",
    default="",
    shell_complete=completion.pairs,
    help="Version pair to compare; default: the first pair of the bug file.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    help="Number of counted rounds of each version; default: 10.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Stop after the first round that shows the bug and one clean round; gives no rate and no p.",
)
@click.option(
    "--until-hit",
    is_flag=True,
    help="Run only the affected version, with new seeds, until it shows the bug.",
)
@max_time_option
@seed_option
@set_option
@click.option(
    "--client-jars",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with one subfolder of jars for each version that is in no repository.",
)
@click.option(
    "--affected",
    default="",
    metavar="VERSION",
    help="Version to use instead of the affected one; dir:PATH uses your own build.",
)
@click.option(
    "--fixed",
    default="",
    metavar="VERSION",
    help="Version to use instead of the fixed one; dir:PATH uses your own build, e.g. a candidate fix.",
)
@keep_up_option
@offline_option
@runtime_option
@master_option
@otlp_option
@prometheus_option
def repro(
    settings: Settings,
    every: bool,
    budget_s: float | None,
    otlp: str | None,
    prometheus: str | None,
    **given: Any,
) -> int:
    """Reproduce a known bug, and check its fix.

    Rounds of both versions alternate on one cluster; each pair of rounds has the same seed and the
    same faults. BUG is a name from `list bugs`, a file, or the folder or bundle of an earlier
    `repro`, which is repeated with the same version pair, rounds and seed.

    The exit code is 0 if the bug is reproduced, 1 if it is not, and 3 if that could not be decided.
    With --quick, reproduced means: seen in the affected version and not in the fixed one. With
    --until-hit the exit code is 0 if the bug was seen and 1 if it was not; the summary then gives
    an upper bound of its rate. With --all it is the most urgent exit code of all bugs.
    """
    from experiments.repro.request import ReproRequest, as_in_run

    request = ReproRequest(metrics=metrics_request(otlp, prometheus), **given)
    if every:
        return repro_all(settings, request, budget_s)
    if budget_s is not None:
        raise UsageError(
            "--budget requires --all", hint="add --all; for one bug, use --until-hit --max-time"
        )
    if not request.bug:
        raise UsageError(
            "which bug?", hint="`brokerstorm list bugs` lists them; --all checks every one"
        )
    return repro_request(settings, as_in_run(settings, request))


def run_request(settings: Settings, request: RunRequest) -> int:
    """Run all rounds, print the summary, return the exit code.

    Raises:
        BrokerstormError: it could not be started or was interrupted.
    """
    from experiments.experiment import play
    from experiments.variants import prepare_run

    asked = prepare_run(settings, request)
    found = play(settings, asked, _tell_stopped(settings))
    load = asked.resolved.options.load
    place = load.place_of(asked.root.run_id) if load else ""
    if place and len(asked.plans) > 1:  # its rounds are there already
        from experiments.spark_load import stays_here
        from harness.stored import keep_at

        with stays_here(asked.root, _LOG.warning):
            keep_at(asked.root, place)
    return _show(settings, asked.root, found)


def resume_request(settings: Settings, root: RunDir, request: RunRequest) -> int:
    """Continue a run that was killed, print the result, return the exit code.

    Raises:
        BrokerstormError: it cannot be resumed, or was interrupted.
    """
    from commands.summaries import show_result
    from experiments.resolved import RoundOptions
    from experiments.resume import resume

    options = RoundOptions(
        runtime="process",
        offline=request.offline,
        master=request.master,
        judges_cut=True,
        windows=request.windows,
    )
    return show_result(settings, root, resume(settings, root, options))


def repro_request(settings: Settings, request: ReproRequest) -> int:
    """Compare, print the summary, return the exit code.

    Raises:
        BrokerstormError: it could not be started or was interrupted.
    """
    from experiments.experiment import play
    from experiments.repro.rounds import prepare_repro

    asked = prepare_repro(settings, request)
    found = play(settings, asked, _tell_stopped(settings))
    return _show(settings, asked.root, found)


def repro_all(settings: Settings, request: ReproRequest, budget_s: float | None) -> int:
    """Look at every known bug, print a table, return the exit code.

    Raises:
        BrokerstormError: an option of a single bug, or it was interrupted.
    """
    from experiments.repro import zoo

    zoo.refuse_single(request)

    def tell(look: QuickLook) -> None:
        if not settings.json:
            paragraph(" · ".join(_row(look)), hanging="  ")

    looks: list[QuickLook] = []
    try:
        left_out = zoo.look_at_all(
            settings, request, budget_s, _tell_stopped(settings), looks, tell
        )
    except Interrupted:
        if not settings.json:  # its one document is the error
            _show_looks(looks, [])
        raise
    code = zoo.exit_code_of(looks)
    document = {
        "bugs": [asdict(look) for look in looks],
        "left_out": left_out,
        "exit_code": code,
    }

    settings.show(document, lambda: _show_looks(looks, left_out))
    return code


def _show_looks(looks: list[QuickLook], left_out: list[str]) -> None:
    write("")
    table([("bug", "affected", "fixed", "seconds", "exit"), *(_row(look) for look in looks)])
    if left_out:
        paragraph(f"no time was left for {', '.join(left_out)}", hanging="  ")


def _row(look: QuickLook) -> tuple[str, str, str, str, str]:
    exit_code = f"{look.exit_code}: {look.why}" if look.why else str(look.exit_code)
    return look.bug, look.affected or "-", look.fixed or "-", f"{look.seconds:.0f}", exit_code


def _show(settings: Settings, root: RunDir, found: Result | Campaign) -> int:
    from analysis.findings import Result
    from commands.summaries import show_campaign, show_result

    if isinstance(found, Result):
        return show_result(settings, root, found)
    return show_campaign(settings, root, found)


def _tell_stopped(settings: Settings) -> TellStopped:
    def tell(root: RunDir, so_far: Campaign) -> None:
        from commands.summaries import show_stopped

        if not settings.json:  # its one document is the error
            show_stopped(settings, root, so_far)

    return tell
