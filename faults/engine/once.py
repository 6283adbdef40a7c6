"""Injects one fault on a cluster that is kept up: `brokerstorm inject`."""

from __future__ import annotations

import time

from faults.engine.injector import Injector, ignore
from faults.engine.journal import OnEvent
from faults.kit.cluster_view import find_ability
from faults.kit.errors import StepProblem
from faults.kit.params import Inventory, keys_of
from faults.schedule.steps import find_kind, read_step
from faults.schedule.timeline import Firing, Timeline, refuse_unsupported
from harness.contracts.plan import FaultStep
from harness.errors import HealError, ScenarioError
from harness.faultlog import FaultRecord, read_faults
from harness.protocols.cluster import Cluster, HasPlacement, HasTopics, TopicSettings
from harness.rundir import RunDir


def inject_once(
    kind: str,
    params: FaultStep,
    cluster: Cluster,
    run: RunDir,
    for_s: float | None,
    *,
    on_event: OnEvent = ignore,
    seed: int | None = None,
) -> FaultRecord:
    """Inject one fault now; return its record when it is healed, or, with ``for_s`` None, when it
    is proved.

    A fault that lasts and has no ``for_s`` stays applied: it is in the run's ledger, and
    `heal_from_ledger` (or ``brokerstorm clean``) heals it.

    Args:
        params: keys of the kind as in a scenario step, without the times.
        seed: of random targets; None = another one each time.

    Raises:
        ScenarioError: unknown kind, key or target, or the cluster lacks an ability.
        HealError: it could not be healed.
    """
    seed = time.time_ns() if seed is None else seed
    fault_id = 1 + max((fault.id for fault in read_faults(run.faults)), default=0)
    firing, inventory, leave = _firing(kind, params, cluster, for_s, fault_id, seed)
    timeline = Timeline((firing,), seed, 0.0, inventory)
    refuse_unsupported(timeline, cluster)
    injector = Injector(timeline, cluster, run, on_event=on_event)
    failures: list[str] = []
    arrived = False
    try:
        injector.fire(firing, leave=leave)
        injector.join()
        arrived = True
    finally:
        if not (leave and arrived):  # an interrupted one must not stay
            failures = injector.heal_all(30.0)
    if failures:
        raise HealError(
            "; ".join(failures), hint="`brokerstorm clean` tries again and removes the cluster"
        )
    recorded = {fault.id: fault for fault in read_faults(run.faults)}
    return recorded.get(fault_id, FaultRecord(fault_id, firing.kind, firing.target))


def _firing(
    name: str, params: FaultStep, cluster: Cluster, for_s: float | None, fault_id: int, seed: int
) -> tuple[Firing, Inventory, bool]:
    try:
        keys = keys_of(find_kind(name).params)
        timed = dict(params)
        if for_s is not None:
            key = next((key for key in ("for", "down") if key in keys), "")
            if not key:
                raise StepProblem("for", f"{name} ends by itself")
            timed[key] = for_s
        inventory = _inventory(cluster)
        kind, _, complete = read_step({"fault": name, "at": 0, **timed}, inventory)
    except StepProblem as problem:
        raise ScenarioError(
            f"{problem.key}: {problem}", hint="see `brokerstorm list faults`"
        ) from None
    firing = Firing(
        fault_id, name, kind.target(complete), 0.0, kind.lasts_s(complete), complete, 0, seed
    )
    return firing, inventory, "for" in keys and "for" not in timed


def _inventory(cluster: Cluster) -> Inventory:
    """The topics that the cluster has, internal ones left out."""
    lists, placement = find_ability(cluster, HasTopics), find_ability(cluster, HasPlacement)
    held: dict[str, list[int]] = {}
    if lists is not None and placement is not None:
        found = sorted(name for name in lists.topics() if not name.startswith("__"))
        for stream, state in placement.partition_states(found).items():
            held.setdefault(stream.rpartition("-")[0], []).append(len(state.replicas))
    topics = tuple(
        TopicSettings(name, len(copies), max(1, *copies)) for name, copies in sorted(held.items())
    )
    roles = {node.name: node.roles for node in cluster.runtime.nodes}
    return Inventory(topics, tuple(sorted(roles)), roles, system=cluster.system)
