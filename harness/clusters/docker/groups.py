"""The control group of a run's containers, with the weight that its brokers have as processes.

Where control groups are of version 1, a group competes with each single process outside of it, and
an engine puts all containers into one group: together they weigh as much as one thread. Beside busy
clients brokers then starve that would not as processes, and take a minute to start. So the
containers of a run get a group of their own, heavy enough. Version 2 shares among groups alike;
there the engine's default is kept.

https://docs.kernel.org/scheduler/sched-design-CFS.html#group-scheduler-extensions-to-cfs
"""

from __future__ import annotations

import os
from typing import Any, Final

from harness.clusters.docker import engine
from harness.clusters.docker.engine import asking
from harness.clusters.layout.compose import ClusterLayout
from harness.clusters.limits.groups import Hierarchy, hierarchies, remove_groups
from harness.errors import EnvironmentNotReady, HealError

#: In place of a node's name: `harness.clusters.limits.groups` finds the group by the run id before
#: it.
_NAME: Final = "containers"
#: A thread weighs 1024; a broker under load has about four that want to run.
_SHARES: Final = 4 * 1024


def make(client: Any, run_id: str, spec: ClusterLayout) -> str:
    """Make the group of a run; its path as the engine takes it, empty where the engine's default is
    kept.

    Raises:
        EnvironmentNotReady: the engine does not answer, or the kernel refuses.
    """
    hierarchy = _hierarchy()
    if hierarchy is None:
        return ""
    with asking("cannot ask the Docker engine for its control groups"):
        info = client.info()
    if info.get("CgroupDriver") != "cgroupfs":
        return ""  # systemd names groups its own way, and shares among them
    group = hierarchy.group(run_id, _NAME)
    try:
        group.mkdir(exist_ok=True)
        (group / "cpu.shares").write_text(str(_SHARES * len(spec.nodes)))
    except OSError as error:
        raise EnvironmentNotReady(
            f"cannot make the control group {group}: {error.strerror}"
        ) from error
    return f"/{group.name}"


def drop(run_id: str) -> None:
    """Remove it, once the containers are gone. Idempotent.

    Raises:
        HealError: something is still in it.
    """
    if _hierarchy() is not None and (left := remove_groups(run_id)):
        raise HealError(
            f"{left[0]} could not be removed", hint="a container of the run is still in it"
        )


def _hierarchy() -> Hierarchy | None:
    """Where the group is made; None where none is needed, or none can be made."""
    found = hierarchies().get("cpu")
    here = engine.socket_path() is not None and os.geteuid() == 0
    return found if found is not None and found.version == 1 and here else None
