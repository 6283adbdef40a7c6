"""Clusters that others started, before and after a run: `doctor --cluster` and `clean
--cluster`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from commands.console import Settings, write
from commands.tables import show_checks
from experiments.plans import ScenarioRequest, external_of, resolve
from experiments.preflight import preflight
from experiments.resolved import Resolved, RoundOptions, refuse_on_external
from harness.errors import BrokerstormError, Exit, HealError, ScenarioError
from harness.rundir import RunDir

if TYPE_CHECKING:
    from harness.clusters.external import External, MadeBy
    from harness.need import Need


def clean_external(
    settings: Settings, file: Path, name: str | None, *, end: Callable[[str], None], dry_run: bool
) -> int:
    """Heal and remove what runs left on the cluster of a connection file whose harness is gone.

    Args:
        end: ends what runs on this machine of a run.

    Raises:
        BrokerstormError: as `external_of`, or `HealError` when something is still there.
    """
    from harness.clusters.external import made_on

    external = external_of(file, all_there=False)
    assert external is not None
    wanted = Path(name).name if name else None
    found = [made for made in made_on(external.found.cluster_id) if wanted in (None, made.run_id)]
    failures: list[str] = []
    if not dry_run:
        with settings.interrupts.deferred():
            for made in found:
                failures += _removed(external, made, end)
    lines = [made.describe() for made in found]
    document = {
        "dry_run": dry_run,
        "cluster_id": external.found.cluster_id,
        "found": lines,
        "removed": [] if dry_run or failures else lines,
    }
    if failures:
        raise HealError(
            "; ".join(failures), hint=f"`brokerstorm clean --cluster {file}` tries again"
        )

    def text() -> None:
        for line in lines:
            write(f"{'found' if dry_run else 'removed'}  {line}")
        if not lines:
            write(f"nothing was left to clean on {external.found.cluster_id}")

    settings.show(document, text)
    return Exit.PASS


def _removed(external: External, made: MadeBy, end: Callable[[str], None]) -> list[str]:
    """Workers first: a producer that lives makes its topic anew where brokers create what is asked
    for; then faults, then topics. What could not be done, as text."""
    import faults

    cluster = external.left_by(made)
    try:
        end(made.run_id)
        failures = faults.heal_from_ledger(cluster, RunDir(Path(made.folder)), made.run_id)
    except BrokerstormError as error:
        failures = [str(error)]
    if failures:  # what was made stays, too: by it the next `clean` finds the run
        cluster.admin.close()
        return failures
    try:
        cluster.down()
    except BrokerstormError as error:
        failures.append(f"{made.run_id}: {error}")
    return failures


def doctor_external(settings: Settings, file: Path, scenario: str | None, runtime: str) -> int:
    """Ask a cluster all that a run needs of it; with a scenario what that needs of this machine,
    too.

    Raises:
        BrokerstormError: as `external_of`: no node answers, or it is another cluster.
    """
    external = external_of(file)
    assert external is not None
    examined = list(external.examine())
    found = None
    if scenario:
        options = RoundOptions(runtime=runtime, external=external)
        resolved = resolve(ScenarioRequest(scenario=scenario, seed=0), options)
        examined.append(_faults_check(resolved, external))
        if not examined[-1].ok:  # the rest of what it needs is reported all the same
            without = [plan.model_copy(update={"faults": []}) for plan in resolved.plans]
            resolved = replace(resolved, plans=without)
        found = preflight(resolved, settings.run_dir)
    checks: list[Need] = [*examined, *(found.checks if found else ())]
    missing = [check for check in checks if check.needed and not check.ok]
    code = Exit.ENVIRONMENT if missing else Exit.PASS
    document = {
        "exit_code": int(code),
        "cluster_id": external.found.cluster_id,
        "checks": [asdict(check) for check in checks],
        "warnings": list(found.warnings) if found else [],
    }
    settings.show(document, lambda: show_checks(str(file), checks, found.warnings if found else ()))
    return code


def _faults_check(resolved: Resolved, external: External) -> Need:
    """Whether the cluster and the drivers of its connection file can do what the faults of a
    scenario ask."""
    from harness.need import Need

    try:
        for timeline in resolved.timelines:
            refuse_on_external(timeline, external)
    except ScenarioError as error:
        return Need("faults", False, str(error), error.hint)
    return Need("faults", True, "all can be done here", "")
