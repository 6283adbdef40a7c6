"""`run --resume`: continues a run whose command was killed, or ends it as well as can be."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

import faults
from experiments.campaign import CampaignRunner
from experiments.context import CommandContext
from experiments.judging import judge_run
from experiments.plans import read_plan
from experiments.resolved import Resolved, RoundOptions
from harness.clusters import attach_cluster
from harness.clusters.layout import addresses
from harness.clusters.leftovers import has_parent
from harness.clusters.nodes.processes import ProcessId, end, run_processes
from harness.contracts import read_document
from harness.contracts.rows import Manifest
from harness.errors import EnvironmentNotReady, HealError, UsageError
from harness.run.worker_process import STOP_GRACE_S
from harness.seal.seal import seal
from harness.waiting import wait_while

if TYPE_CHECKING:
    from analysis.findings import Result
    from harness.contracts.plan import Plan
    from harness.protocols.cluster import Cluster
    from harness.rundir import RunDir

#: Part of the load in which clients begin again.
LEAST_LEFT_S: Final = 10.0
#: Wall clock and the other one are that far apart at most, unless the machine was restarted
#: between.
_SAME_BOOT_S: Final = 60.0


def resume(context: CommandContext, run: RunDir, options: RoundOptions) -> Result:
    """Resume a killed run and return its result. Its clients restart where load is left; else the
    log is audited as it is. Without its brokers the run is only sealed and judged.

    Raises:
        UsageError: it is still running, or was not killed.
        BrokerstormError: as `experiments.campaign.CampaignRunner.run_round`; it can be resumed once
            more.
    """
    manifest, plan = _killed(run), read_plan(run)
    cluster = None if _clock_is_another(manifest) else _taken_over(run, plan)
    _end_workers(run)
    if cluster is None:
        return _judged(context, run, plan, options)
    resolved = Resolved(plans=[plan], options=options, seed=plan.seed)
    with CampaignRunner(context, resolved, run, manifest.command, is_latest=True) as campaign:
        why = why_no_load(plan, manifest)
        campaign.progress.note(f"no more load: {why}" if why else "every client restarts")
        return campaign.resume_round(plan, run, cluster, goes_on=not why)


def why_no_load(plan: Plan, manifest: Manifest) -> str:
    """Return why the load cannot continue; empty = it can."""
    if manifest.phases and manifest.phases[-1].name not in ("warm-up", "load"):
        return "all of it was offered"
    left_s = plan.load_s - (time.monotonic_ns() - manifest.epoch_ns) / 1e9
    if left_s < LEAST_LEFT_S:
        return f"{max(0.0, left_s):.0f} s of {plan.load_s:.0f} s are left"
    if manifest.executors:
        return "it came from other machines"
    if any(producer.lives for producer in plan.producers):
        return "its producers come and go by a plan that cannot be entered in the middle"
    return ""


def _killed(run: RunDir) -> Manifest:
    """The manifest of a run to resume."""
    if run.campaign.exists():
        raise UsageError(
            f"{run.run_id} holds several runs: --resume is of one",
            hint=f"`brokerstorm analyze {run.run_id}` judges what they captured",
        )
    manifest = read_document(run.manifest, Manifest)
    if manifest.status != "running":
        raise UsageError(
            f"{run.run_id} was not killed while it captured: it is {manifest.status}",
            hint=f"`brokerstorm analyze {run.run_id}` judges it",
        )
    owners = [claim.owner for claim in addresses.claims() if claim.run_id == run.run_id]
    if any(owner.is_alive() for owner in owners) or any(map(has_parent, _workers(run))):
        raise UsageError(f"{run.run_id} is still running", hint="Ctrl-C there shortens its load")
    if not manifest.epoch_ns:
        raise UsageError(f"{run.run_id} was killed before its load began", hint=manifest.command)
    return manifest


def _clock_is_another(manifest: Manifest) -> bool:
    """The machine was restarted since, and its monotonic clock with it."""
    since_s = time.time() - datetime.fromisoformat(manifest.epoch_wall).timestamp()
    return abs(since_s - (time.monotonic_ns() - manifest.epoch_ns) / 1e9) > _SAME_BOOT_S


def _taken_over(run: RunDir, plan: Plan) -> Cluster | None:
    """The cluster that it left, with every fault healed; None = its brokers are gone.

    Raises:
        HealError: a fault is still applied.
        BrokerstormError: the cluster of somebody else does not answer.
    """
    cluster: Cluster
    if plan.external:
        from harness.clusters.external import identified
        from harness.connections.file import read_connection

        found = identified(read_connection(Path(plan.external.file)), all_there=False)
        cluster = found.cluster(run.run_id, run.root)
    else:
        try:
            cluster = attach_cluster(run.cluster)
        except (UsageError, EnvironmentNotReady):
            return None
        if not any(cluster.runtime.pid(node.name) for node in cluster.runtime.nodes):
            return None
    if failures := faults.heal_from_ledger(cluster, run):
        raise HealError(
            "; ".join(failures), hint=f"`brokerstorm clean {run.run_id}` ends its cluster"
        )
    return cluster


def _workers(run: RunDir) -> list[ProcessId]:
    """Processes that capture into its folder."""
    found = []
    for identity, _ in run_processes(run.run_id):
        try:
            words = psutil.Process(identity.pid).cmdline()
        except psutil.Error:
            continue
        if any(f"{run.run_id}/raw/" in word for word in words):
            found.append(identity)
    return found


def _end_workers(run: RunDir) -> None:
    """They end by themselves, and consumers leave their groups; who does not is ended."""
    wait_while(lambda: _workers(run), STOP_GRACE_S, every_s=0.2)
    if left := end([(identity, run.run_id) for identity in _workers(run)]):
        raise HealError(f"workers survived SIGKILL: {', '.join(str(each.pid) for each in left)}")


def _judged(context: CommandContext, run: RunDir, plan: Plan, options: RoundOptions) -> Result:
    """Judge the captured data, as `analyze` does."""
    from analysis.spark.session import WarmSession

    with closing(context.progress()) as progress, WarmSession(options.master) as session:
        session.start()
        progress.note(
            "its brokers are gone: the captured data is judged, and its log can no longer be read"
        )
        progress.phase("seal", run.run_id)
        seal(run, plan)
        progress.phase("judge", run.run_id)
        return judge_run(context, run, session)
