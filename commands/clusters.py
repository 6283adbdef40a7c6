"""Clusters that are left running: up, down, inject."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion
from commands.console import Settings, command, write
from commands.options import (
    RenamedOption,
    cluster_option,
    needs_option,
    offline_option,
    runtime_option,
    secure_option,
)
from experiments.leftovers import end_leftovers
from experiments.plans import ScenarioRequest, resolve
from experiments.resolved import RoundOptions
from harness.errors import EnvironmentNotReady, Exit, HealError, UsageError
from harness.rundir import Document, RunDir, new_run
from harness.systems import DEFAULT, SYSTEMS

if TYPE_CHECKING:
    from harness.clusters import BrokerCluster
    from harness.clusters.layout.addresses import Claim
    from harness.faultlog import FaultRecord

UP_TIMEOUT_S = 120.0  # brokers on a busy machine; a run has its scenario's limits.ready


@command(
    "up",
    example="brokerstorm up --version 3.9.1\nbrokerstorm inject kill --undo-after 5s\nbrokerstorm down",
)
@click.argument("scenario", required=False, shell_complete=completion.scenarios)
@click.option(
    "--system",
    type=click.Choice(list(SYSTEMS)),
    help=f"Message broker to start; default: the system of the scenario, otherwise {DEFAULT.name}.",
)
@click.option("--version", default="", help="Version of the brokers.")
@needs_option
@runtime_option
@offline_option
@secure_option
def up(
    settings: Settings,
    scenario: str | None,
    system: str | None,
    version: str,
    needs: tuple[str, ...],
    runtime: str,
    offline: bool,
    secure: bool,
) -> int:
    """Start a cluster and leave it running.

    SCENARIO sets the version, the broker settings and what its faults need; without it, the
    defaults are used. `down` stops the cluster. With --secure, the command writes a connection file
    for `--cluster` and prints its path.
    """
    from experiments.opening import choose_runtime, process_if
    from harness.clusters import open_cluster
    from harness.scenario.model import native

    if scenario in SYSTEMS:
        raise UsageError(
            f"{scenario} is a system, not a scenario",
            hint=f"`brokerstorm up --system {scenario}` starts one",
        )
    asked = ScenarioRequest(scenario=scenario, seed=0, rounds=1) if scenario else None
    resolved = resolve(asked, RoundOptions(runtime=runtime, secure=secure)) if asked else None
    loaded = resolved.scenario if resolved else None
    if loaded and system not in (None, loaded.system):
        raise UsageError(f"--system {system}: {scenario} is a scenario of {loaded.system}")
    system = system or (loaded.system if loaded else DEFAULT.name)
    wanted = version or (loaded.cluster.version if loaded else "")
    topology = loaded.cluster.topology if loaded else ""
    needed = _known_needs(needs) | (resolved.needs if resolved else frozenset())
    with closing(settings.progress()) as progress:
        runtime, what = process_if(secure, runtime), (system, wanted, topology)
        runtime = choose_runtime(runtime, what, needed, offline=offline, tell=progress.note).runtime
        root = new_run(settings.run_dir, "cluster")
        try:
            cluster = open_cluster(
                system,
                run_id=root.run_id,
                folder=root.cluster,
                version=wanted,
                topology=topology,
                runtime=runtime,
                broker_config=native(loaded.cluster.config) if loaded else {},
                needs=needed,
                offline=offline,
                secure=secure,
                on_progress=progress.download,
            )
        except BaseException:
            shutil.rmtree(root.root)  # a version that is not there leaves nothing to look at
            raise
        progress.phase("up", f"{system} {cluster.version}")
        _start_and_keep(settings, cluster)
    settings.show(_description(root.run_id, cluster), lambda: _show_cluster(root.run_id, cluster))
    return Exit.PASS


def _start_and_keep(settings: Settings, cluster: BrokerCluster[Any]) -> None:
    try:
        cluster.up(timeout_s=UP_TIMEOUT_S)
    except BaseException:
        with settings.interrupts.deferred():
            cluster.down()
        raise
    cluster.keep()


def _known_needs(needs: Sequence[str]) -> frozenset[str]:
    from harness.clusters.process_runtime import GIVES
    from harness.protocols.versions import need_of, versions_of

    if unknown := sorted(set(needs) - GIVES - versions_of(needs).keys()):
        allowed = ", ".join((*sorted(GIVES), need_of("VERSION")))
        raise UsageError(f"--needs {unknown[0]}: unknown", hint=f"allowed: {allowed}")
    return frozenset(needs)


def _description(run_id: str, cluster: BrokerCluster[Any]) -> Document:
    return {
        "run_id": run_id,
        "system": cluster.system,
        "version": cluster.version,
        "runtime": cluster.runtime.name,
        "bootstrap": cluster.bootstrap,
        **({"connection": str(found)} if (found := cluster.connection_file) else {}),
        "nodes": [
            {
                "name": node.name,
                "client": str(node.client),
                "peer": str(node.peer),
                "admin": str(node.admin),
                "pid": cluster.runtime.pid(node.name),
                "folder": str(node.folder),
            }
            for node in cluster.runtime.nodes
        ],
    }


def _show_cluster(run_id: str, cluster: BrokerCluster[Any]) -> None:
    write(f"{cluster.system} {cluster.version} is up: {run_id}")
    write(f"bootstrap  {cluster.bootstrap}")
    if cluster.connection_file:
        write(f"connect    {cluster.connection_file}")
    for node in cluster.runtime.nodes:
        write(f"  {node.name}  pid {cluster.runtime.pid(node.name)}  {node.folder}")
    write("`brokerstorm inject FAULT` hits it, `brokerstorm down` stops it")


def kept_clusters() -> list[Claim]:
    """Clusters that were left running on purpose, oldest first."""
    from harness.clusters.layout import addresses

    return sorted(
        (claim for claim in addresses.claims() if claim.kept), key=lambda claim: claim.run_id
    )


def heal_kept(claim: Claim) -> bool:
    """Heal the faults still applied to a cluster that keeps running; False if there was none.

    Raises:
        HealError: one could not be healed.
    """
    import faults
    from harness.clusters import attach_cluster

    run = RunDir(Path(claim.folder).parent)
    if not any(run.ledger.glob("*.json")):
        return False
    failures = faults.heal_from_ledger(attach_cluster(Path(claim.folder)), run, claim.run_id)
    if failures:
        raise HealError(
            "; ".join(failures), hint=f"`brokerstorm clean {claim.run_id}` removes the cluster"
        )
    return True


def stop_kept(claim: Claim) -> None:
    """Stop a kept cluster; what is paused is continued first, a stopped process cannot end."""
    import faults
    from harness.clusters import attach_cluster

    folder = Path(claim.folder)
    faults.heal_from_ledger(None, RunDir(folder.parent), claim.run_id)
    try:
        attach_cluster(folder).down()
    except (UsageError, EnvironmentNotReady):
        # Its folder or its Java is gone: processes and claim still know.
        end_leftovers(claim.run_id)


def _choose(name: str | None, how: str) -> Claim:
    """The kept cluster that the user means. ``how``: to say which.

    Raises:
        UsageError: none, or several and no name.
    """
    kept = kept_clusters()
    names = ", ".join(claim.run_id for claim in kept)
    if not kept:
        raise UsageError(
            "no cluster is up", hint="`brokerstorm up` or `run --keep-up` leaves one running"
        )
    if name is None and len(kept) > 1:
        raise UsageError(f"several clusters are up: which one? {names}", hint=how)
    found = next((claim for claim in kept if name in (None, claim.run_id)), None)
    if found is None:
        raise UsageError(f"no cluster {name!r} is up", hint=f"clusters that are up: {names}")
    return found


@command("down", example="brokerstorm down")
@click.argument("name", metavar="[RUN]", required=False, shell_complete=completion.clusters)
@click.option("--all", "everything", is_flag=True, help="Stop every cluster that was left running.")
def down(settings: Settings, name: str | None, everything: bool) -> int:
    """Stop a cluster that was left running, and delete its data."""
    chosen = (
        kept_clusters()
        if everything
        else [_choose(name, "name it: `brokerstorm down RUN`; --all stops every one")]
    )
    with settings.interrupts.deferred():
        for claim in chosen:
            stop_kept(claim)
    stopped = [claim.run_id for claim in chosen]
    document = {"stopped": stopped}
    settings.show(document, lambda: write("stopped: " + (", ".join(stopped) or "nothing was up")))
    return Exit.PASS


@command("inject", example="brokerstorm inject kill target=leader-of:orders --undo-after 5s")
@click.argument("fault", shell_complete=completion.faults)
@click.argument("keys", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--undo-after",
    "--for",
    "duration",
    cls=RenamedOption,
    metavar="TIME",
    help="Undo the fault after this time; default: it stays active.",
)
@click.option("--seed", type=click.IntRange(0), help="Seed of random targets.")
@cluster_option
def inject(
    settings: Settings,
    fault: str,
    keys: tuple[str, ...],
    duration: str | None,
    seed: int | None,
    name: str | None,
) -> int:
    """Inject one fault into a running cluster.

    `list faults` shows each FAULT and its keys. Without --undo-after, a fault that does not end by
    itself stays active until `clean`. The exit code is 3 if the fault had no effect.
    """
    from faults import inject_once
    from harness.clusters import attach_cluster

    parameters = dict(_key_value(text) for text in keys)
    for_s = _seconds(duration) if duration is not None else None
    claim = _choose(name, "name it with --cluster")
    cluster = attach_cluster(Path(claim.folder))
    run = RunDir(Path(claim.folder).parent).create()
    with closing(settings.progress()) as progress:
        injected = inject_once(
            fault, parameters, cluster, run, for_s, on_event=progress.fault, seed=seed
        )
    document = {"run_id": claim.run_id, **_injection(injected)}
    settings.show(document, lambda: _show_injection(injected))
    return Exit.PASS if injected.effective else Exit.UNKNOWN


def _injection(fault: FaultRecord) -> Document:
    return {
        "id": fault.id,
        "kind": fault.kind,
        "target": fault.selector,
        "targets": fault.targets,
        "effective": fault.effective,
        "evidence": fault.evidence,
        "healed": fault.recovered,
        "skipped": fault.skipped,
        "applied": fault.is_applied,
    }


def _show_injection(row: FaultRecord) -> None:
    if row.skipped:
        write(f"{row.kind} {row.selector}: skipped, {row.skipped}")
        return
    doubt = "" if row.effective else " (it had no effect)"
    write(f"{row.kind} {', '.join(row.targets)}{doubt}: {row.evidence}")
    if row.is_applied:
        write("still active; `brokerstorm clean` undoes it")


def _key_value(text: str) -> tuple[str, Any]:
    from harness.yaml_lines import value_of

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{text!r} is not KEY=VALUE", hint="for example target=leader-of:orders")
    try:
        return key, value_of(value)
    except ValueError as error:
        raise UsageError(f"{text!r}: the value is not valid YAML") from error


def _seconds(text: str) -> float:
    from harness.durations import parse_seconds

    try:
        value = parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"--undo-after {text}: {error}") from error
    if not isinstance(value, float) or value <= 0:
        raise UsageError(f"--undo-after {text}: must be a duration such as 10s, 250ms or 2m")
    return value
