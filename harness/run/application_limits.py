"""Limits of CPU and memory of the instances of applications, by control groups of their own."""

from __future__ import annotations

import contextlib
from typing import Final

import psutil

from harness.clusters.limits.groups import ControlGroup, CpuGroup, MemoryGroup, hierarchies
from harness.contracts.plan import ApplicationPlan
from harness.errors import EnvironmentNotReady
from harness.sizes import in_units
from harness.waiting import wait_until

#: A group is busy for a moment after its last process ended.
_REMOVE_S: Final = 2.0


class InstanceLimits:
    """The control groups of one instance; a later life enters them again.

    Args:
        run_id: the run id of the cluster; `clean` finds the groups by it.
        name: the name of the instance.
    """

    def __init__(self, plan: ApplicationPlan, run_id: str, name: str) -> None:
        """Make the groups that the plan asks for.

        Raises:
            EnvironmentNotReady: this machine cannot limit it.
        """
        self._memory_bytes = plan.memory_bytes
        self._cpu: CpuGroup | None = None
        self._memory: MemoryGroup | None = None
        known = hierarchies()
        if plan.cpu_cores is not None and "cpu" in known:
            self._cpu = CpuGroup(known["cpu"], run_id, name)
            _make(self._cpu)
            self._cpu.limit(plan.cpu_cores)
        if plan.memory_bytes is not None and "memory" in known:
            self._memory = MemoryGroup(known["memory"], run_id, name)
            _make(self._memory)
            self._memory.limit(plan.memory_bytes)
        for controller, asked, group in (
            ("cpu", plan.cpu_cores, self._cpu),
            ("memory", plan.memory_bytes, self._memory),
        ):
            if asked is not None and group is None:
                raise EnvironmentNotReady(
                    f"{name} cannot be limited: this system has no cgroup controller {controller!r}",
                    hint=f"remove applications.{plan.name}.limits.{controller}",
                )

    @property
    def _groups(self) -> list[ControlGroup]:
        return [group for group in (self._cpu, self._memory) if group is not None]

    def enter(self, pid: int) -> None:
        """Limit a process that was just started, and the children that it has already.

        Raises:
            EnvironmentNotReady: the kernel refuses.
        """
        pids = [pid]
        with contextlib.suppress(psutil.NoSuchProcess):
            pids += [child.pid for child in psutil.Process(pid).children(recursive=True)]
        for group in self._groups:
            for each in pids:
                group.enter(each)

    def killed(self) -> int:
        """How often the kernel has killed a process of the instance for want of memory."""
        return self._memory.use().killed if self._memory else 0

    def memory_text(self) -> str:
        """The limit of memory, for people."""
        return in_units(self._memory_bytes or 0)

    def throttled_s(self) -> float:
        """Seconds for which the instance was denied the CPU so far."""
        return self._cpu.use().throttled_s if self._cpu else 0.0

    def drop(self) -> None:
        """Remove the groups; the processes are gone. What cannot be removed is left to `clean`."""
        for group in self._groups:

            def is_removed(group: ControlGroup = group) -> bool:
                with contextlib.suppress(OSError):
                    group.path.rmdir()
                return not group.path.exists()

            wait_until(is_removed, _REMOVE_S, every_s=0.05)


def _make(group: ControlGroup) -> None:
    try:
        group.make()
    except OSError as error:
        raise EnvironmentNotReady(
            f"cannot make the control group {group.path}: {error.strerror}",
            hint="limits need root, or a control group that was delegated to you",
        ) from error
