"""Makes a timeline of the faults of an earlier run: the targets that were hit, at the times they
were hit."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from faults.kinds import KINDS
from faults.kit.params import Inventory
from faults.schedule.timeline import Firing, Timeline
from harness.contracts import read_document
from harness.contracts.plan import Plan
from harness.contracts.rows import Manifest
from harness.errors import UsageError
from harness.faultlog import FaultRecord, read_faults
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir

#: A node that recovers more slowly than the first time makes the next fault late, not absent.
REPLAY_WAIT_S: Final = 30.0


def load_replay(run: RunDir) -> Timeline:
    """Every fault that ``run`` injected, with resolved targets and real times; skipped ones stay
    out.

    Raises:
        UsageError: the run injected none, or its files do not say when and whom.
    """
    injected = [fault for fault in read_faults(run.faults) if fault.inject_ns is not None]
    if not injected:
        raise UsageError(
            f"run {run.run_id} injected no fault: there is nothing to replay",
            hint="`brokerstorm list runs` shows the runs",
        )
    epoch_ns = read_document(run.manifest, Manifest).epoch_ns
    if not epoch_ns:
        raise UsageError(f"run {run.run_id} never reached its load: its manifest has no epoch_ns")
    plan = read_document(run.plan, Plan)
    try:
        firings = [_firing(fault, epoch_ns) for fault in injected]
    except (KeyError, ValidationError) as error:
        raise UsageError(f"{run.faults} cannot be read by this version: {error!r}") from error
    firings.sort(key=lambda firing: firing.t_s)
    topics = tuple(
        TopicSettings(t.name, t.partitions, t.replication, grows_to=t.grows_to) for t in plan.topics
    )
    instances = {each.name: each.instance_names for each in plan.applications}
    inventory = Inventory(topics, (), applications=instances, system=plan.system)
    return Timeline(tuple(firings), plan.seed, plan.load_s, inventory)


def _firing(fault: FaultRecord, epoch_ns: int) -> Firing:
    """A firing on the targets that were chosen then. One that was cut short is cut short again."""
    kind = KINDS[fault.kind]
    params = kind.params.model_validate(fault.params)
    inject_ns, for_s = fault.inject_ns or 0, kind.lasts_s(params)
    if for_s is not None and fault.heal_ns is not None:
        for_s = min(for_s, (fault.heal_ns - inject_ns) / 1e9)
    return Firing(
        fault.id,
        fault.kind,
        kind.target(params),
        (inject_ns - epoch_ns) / 1e9,
        for_s,
        params,
        fault.id - 1,
        fault.id,
        REPLAY_WAIT_S,
    )
