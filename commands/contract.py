"""`brokerstorm check-worker`: the contract of workers, asked of one."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion
from commands.console import Settings, command, write
from commands.options import offline_option
from harness.errors import EnvironmentNotReady, Exit, UsageError, did_you_mean
from harness.rundir import new_run, resolved
from harness.systems import SYSTEMS

if TYPE_CHECKING:
    from harness.contract.checks import WorkerCheck
    from harness.contract.running import CheckResult
    from harness.workers.spec import WorkerSpec

_WORDS = {"ok": "ok     ", "broken": "BROKEN ", "skipped": "skipped"}


@command(
    "check-worker",
    example="brokerstorm check-worker ./my-client\nbrokerstorm check-worker aiokafka --only 'kill 9'",
)
@click.argument("worker", metavar="WORKER", shell_complete=completion.workers)
@click.option("--version", default="", help="Version of the client; default: that in worker.toml.")
@click.option(
    "--system",
    type=click.Choice(list(SYSTEMS)),
    help="Message system to run the checks on; default: the first system in worker.toml.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="TEXT",
    help="Run only checks whose name contains TEXT; may be repeated.",
)
@click.option(
    "--list", "only_list", is_flag=True, help="List the checks, without starting anything."
)
@offline_option
def check_worker(
    settings: Settings,
    worker: str,
    version: str,
    system: str | None,
    only: tuple[str, ...],
    only_list: bool,
    offline: bool,
) -> int:
    """Check that a worker follows the worker protocol.

    WORKER is its folder, or its name in `list workers`. Runs the self-test of the worker, then its
    producers, consumers and readers on live brokers that are started for it. Prints one line for
    each check, and takes two to three minutes. The exit code is 0 if every check passes, 1 if one
    does not, 2 if worker.toml cannot be used, and 4 if the worker cannot be built or the brokers do
    not start.
    """
    from harness.contract.running import SELF_TEST, run_self_test

    spec = _on_system(_worker(worker), system)
    checks = _chosen(spec, only)
    asks_self = _is_named(SELF_TEST, only)
    if only_list:
        return _list(settings, spec, [SELF_TEST] * asks_self + [check.name for check in checks])
    _require(spec, version, checks, settings.run_dir)
    results: list[CheckResult] = []
    with closing(settings.progress()) as progress:
        _build(spec, version, offline, progress.download)
    if asks_self:
        results.append(_told(settings, run_self_test(spec, version)))
    if checks:
        results += _on_brokers(settings, spec, version, checks, offline)
    return _summary(settings, spec, version, results)


def _worker(named: str) -> WorkerSpec:
    """By its folder or, where there is none of this name, by its client library."""
    from harness.workers import known_workers

    path = resolved(Path(named))
    if not path.is_dir():
        known = known_workers()
        if named in known:
            return known[named]
        raise UsageError(f"no folder and no worker {named!r}", hint=did_you_mean(named, known))
    found = [worker for worker in known_workers([path]).values() if worker.folder == path]
    if not found:
        raise UsageError(f"no worker.toml in {named}", hint="name the folder of one worker")
    return found[0]


def _on_system(worker: WorkerSpec, system: str | None) -> WorkerSpec:
    if system is None:
        return worker
    if system not in worker.systems:
        raise UsageError(
            f"--system {system}: {worker.library} is for {', '.join(worker.systems)}",
            hint=f"add [on.{system}] to its worker.toml; see docs/howto/add-a-worker.md",
        )
    return worker.on_system(system)


def _is_named(name: str, only: tuple[str, ...]) -> bool:
    return not only or any(text.lower() in name for text in only)


def _chosen(worker: WorkerSpec, only: tuple[str, ...]) -> list[WorkerCheck]:
    from harness.contract import checks_of
    from harness.contract.running import SELF_TEST

    checks = list(checks_of(worker))
    names = [SELF_TEST, *(check.name for check in checks)]
    for text in only:
        if not any(text.lower() in name for name in names):
            raise UsageError(
                f"--only {text}: no such check",
                hint=f"`brokerstorm check-worker {worker.library} --list` shows them",
            )
    return [check for check in checks if _is_named(check.name, only)]


def _list(settings: Settings, worker: WorkerSpec, names: list[str]) -> int:
    document = {"worker": worker.library, "checks": names}
    settings.show(document, lambda: write("\n".join(names)))
    return Exit.PASS


def _require(worker: WorkerSpec, version: str, checks: list[WorkerCheck], run_dir: Path) -> None:
    """Refuse what is missing before anything is built or started."""
    from harness.doctor import machine
    from harness.workers import readiness

    found = readiness(worker, version)
    if not found.ok:
        raise EnvironmentNotReady(f"client {worker.library}: {found.detail}", hint=found.remedy)
    if checks:
        machine.require(machine.checks((worker.system, "", ""), folder=run_dir, spark=False))


def _build(worker: WorkerSpec, version: str, offline: bool, report: Any) -> None:
    """The worker, and the one that reads what it sent."""
    from harness.workers import launch, load_worker

    library, of_reader = SYSTEMS[worker.system].audit
    for each, its_version in (
        (worker, version),
        (load_worker(library, system=worker.system), of_reader),
    ):
        launch(each, its_version, offline=offline, on_progress=report)


def _on_brokers(
    settings: Settings, worker: WorkerSpec, version: str, checks: list[WorkerCheck], offline: bool
) -> list[CheckResult]:
    from harness.contract.rig import CheckPlace
    from harness.contract.running import cluster_of, run_checks

    root = new_run(settings.run_dir, f"check-{worker.library}")
    with ExitStack() as stack:
        with closing(settings.progress()) as progress:
            progress.phase("up", worker.system)
            opened = cluster_of(
                worker.system,
                root.run_id,
                root.cluster,
                guard=settings.interrupts.deferred,
                offline=offline,
                on_progress=progress.download,
            )
            cluster = stack.enter_context(opened)
        place = CheckPlace(cluster, root.root, version, offline)
        found = [_told(settings, each) for each in run_checks(checks, place, worker)]
    if all(result.outcome != "broken" for result in found):
        shutil.rmtree(root.root)  # what workers left is only of use where a check found something
    return found


def _told(settings: Settings, result: CheckResult) -> CheckResult:
    """Show a result, as soon as it is there."""
    if not settings.json:
        line = f"{_WORDS[result.outcome]} {result.seconds:5.1f} s  {result.name}"
        write(f"{line}: {result.text}" if result.text else line)
    return result


def _summary(
    settings: Settings, worker: WorkerSpec, version: str, results: list[CheckResult]
) -> int:
    counts = {word: sum(result.outcome == word for result in results) for word in _WORDS}
    code = Exit.FAIL if counts["broken"] else Exit.PASS
    document = {
        "exit_code": int(code),
        "worker": worker.library,
        "system": worker.system,
        "client_version": version or worker.default_version,
        "checks": [
            {"name": r.name, "outcome": r.outcome, "text": r.text, "seconds": round(r.seconds, 1)}
            for r in results
        ],
    }
    words = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    settings.show(document, lambda: write(f"{worker.library}: {words}"))
    return code
