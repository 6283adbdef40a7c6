"""Control groups of one node: a CPU quota, a memory limit and a slow disk by the kernel's means,
cgroups v1 or v2.

A group's name carries the run id and whose run it is, so that `clean` finds its own:
``brokerstorm.<run id>.<owner>.<node>``, one below each v1 controller, or one of v2 below its root,
or below what was delegated to an ordinary user. Groups are made when the cluster is made and
removed with it; a process that is restarted enters its node's group again.

https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import EnvironmentNotReady
from harness.owners import short_owner_mark
from harness.protocols.limits import CpuQuota, MemoryUse
from harness.waiting import wait_while

PREFIX: Final = "brokerstorm."
CONTROLLERS: Final = ("cpu", "memory", "io")  # the last is v2's alone: v1's is blkio
#: A quota is per this much time: the kernel's default, and short enough that a node is not frozen
#: for long.
_PERIOD_US: Final = 100_000
#: A group is busy for a moment after its last process ended.
_REMOVE_S: Final = 2.0
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OWN: Final = Path("/proc/self/cgroup")
_SUBTREE: Final = "cgroup.subtree_control"
_PROCESSES: Final = "cgroup.procs"
_UNLIMITED: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where the groups of one controller are made."""

    controller: str
    root: Path
    version: int

    def group(self, run_id: str, node: str) -> Path:
        """Return the folder of a node's control group; whether it exists is not checked."""
        return self.root / f"{PREFIX}{run_id}.{short_owner_mark()}.{node}"


def hierarchies(mounts: str | None = None) -> dict[str, Hierarchy]:
    """Controller -> where its groups are made; a controller that this system does not offer is left
    out.

    Args:
        mounts: text of /proc/self/mountinfo, for tests.
    """
    found: dict[str, Hierarchy] = {}
    for line in (_MOUNTS.read_text() if mounts is None else mounts).splitlines():
        before, _, after = line.partition(" - ")
        root, (kind, _, options) = Path(before.split()[4]), after.split(" ", 2)
        if kind == "cgroup":
            offered, version = set(options.split(",")), 1
        elif kind == "cgroup2":
            try:
                root = _delegated(root, before.split()[3])
                offered, version = set((root / "cgroup.controllers").read_text().split()), 2
            except OSError:  # hidden from this user or container: nothing is offered here
                continue
        else:
            continue
        found |= {name: Hierarchy(name, root, version) for name in CONTROLLERS if name in offered}
    return found


def _delegated(root: Path, inside: str) -> Path:
    """Where this user may make groups of v2: the nearest group above its own processes that it may
    change and that holds none; the root when there is none, which says why it refuses.

    A process may be moved by who can write both groups and the one above them, and controllers are
    given on only by a group without processes of its own.

    Args:
        inside: which of the groups is mounted at ``root``.
    """
    if os.access(root / _SUBTREE, os.W_OK):
        return root
    for line in _OWN.read_text().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0" and Path(path).is_relative_to(inside):
            own = root / Path(path).relative_to(inside)
            for group in own.parents:
                if not group.is_relative_to(root):
                    break
                if all(os.access(group / name, os.W_OK) for name in (".", _SUBTREE, _PROCESSES)):
                    return group
    return root


def _roots() -> Iterator[tuple[Path, str]]:
    """Where groups can be, of any controller, and how they are found there: a user's groups lie
    deeper."""
    for line in _MOUNTS.read_text().splitlines():
        before, _, after = line.partition(" - ")
        if (kind := after.split()[0]) in ("cgroup", "cgroup2"):
            yield Path(before.split()[4]), f"{PREFIX}*" if kind == "cgroup" else f"**/{PREFIX}*"


def why_not(controller: str) -> str:
    """Why no group of a controller can be made here; empty when one can. Makes one and removes it.

    The attempt is the only answer that is right in a container, as a user with delegation, and as
    root.
    """
    hierarchy = hierarchies().get(controller)
    if hierarchy is None:
        return f"this system has no cgroup controller {controller!r}"
    group = group_of(hierarchy, f"try-{os.getpid()}", controller)
    try:
        group.make()
        return "" if group.works() else f"{group.path} has no {controller} controls"
    except OSError as error:
        return (
            f"no control group can be made in {hierarchy.root}: {error.strerror} (root can, and a user in a"
            f" group that was delegated: systemd-run --user --scope ...)"
        )
    finally:
        with contextlib.suppress(OSError):
            group.path.rmdir()


class ControlGroup(ABC):
    """One node's group below one controller.

    Attributes:
        together: the controllers that the group needs (v2).
    """

    def __init__(self, hierarchy: Hierarchy, run_id: str, node: str) -> None:
        self.hierarchy = hierarchy
        self.together: tuple[str, ...] = (hierarchy.controller,)
        self.path = hierarchy.group(run_id, node)

    def make(self) -> None:
        """Make it. Idempotent.

        Raises:
            OSError: not allowed.
        """
        if self.hierarchy.version == 2:
            enabled = self.hierarchy.root / _SUBTREE
            for controller in self.together:
                if controller not in enabled.read_text().split():
                    enabled.write_text(f"+{controller}")
        self.path.mkdir(exist_ok=True)

    def enter(self, pid: int) -> None:
        """Put a process in, with all its threads; it is not an error if one is gone.

        Raises:
            EnvironmentNotReady: the kernel refuses.
        """
        try:
            (self.path / _PROCESSES).write_text(str(pid))
        except ProcessLookupError:
            return
        except OSError as error:
            raise EnvironmentNotReady(
                f"process {pid} cannot enter {self.path}: {error.strerror}",
                hint="limits need root, or a control group that was delegated to you",
            ) from error

    def holds(self, pid: int) -> bool:
        """Return whether the group has a process."""
        return str(pid) in self._read(_PROCESSES).split()

    @abstractmethod
    def works(self) -> bool:
        """Whether the controls are there."""

    def _read(self, name: str) -> str:
        try:
            return (self.path / name).read_text()
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot read {self.path / name}: {error.strerror}"
            ) from error

    def _write(self, name: str, value: object) -> None:
        try:
            (self.path / name).write_text(str(value))
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot write {value} to {self.path / name}: {error.strerror}",
                hint="limits need root, or a control group that was delegated to you",
            ) from error

    def _table(self, name: str) -> dict[str, int]:
        """A file of ``key value`` lines."""
        rows = (line.split() for line in self._read(name).splitlines())
        return {row[0]: int(row[1]) for row in rows if len(row) == 2}


class CpuGroup(ControlGroup):
    """A quota of CPU time."""

    def works(self) -> bool:
        return (
            self.path / ("cpu.cfs_quota_us" if self.hierarchy.version == 1 else "cpu.max")
        ).exists()

    def limit(self, cores: float | None) -> None:
        """At most ``cores`` of CPU time; None = no quota."""
        quota_us = None if cores is None else max(1000, round(cores * _PERIOD_US))
        if self.hierarchy.version == 2:
            self._write("cpu.max", f"{quota_us or 'max'} {_PERIOD_US}")
            return
        self._write("cpu.cfs_period_us", _PERIOD_US)
        self._write("cpu.cfs_quota_us", -1 if quota_us is None else quota_us)

    def use(self) -> CpuQuota:
        """Return the limit in force and the time for which the group was throttled."""
        stat = self._table("cpu.stat")
        throttled_s = stat.get("throttled_usec", 0) / 1e6 or stat.get("throttled_time", 0) / 1e9
        return CpuQuota(
            stat.get("nr_periods", 0), stat.get("nr_throttled", 0), throttled_s, self._cores()
        )

    def _cores(self) -> float | None:
        if self.hierarchy.version == 2:
            quota, period_us = self._read("cpu.max").split()
            return None if quota == "max" else int(quota) / int(period_us)
        quota_us = int(self._read("cpu.cfs_quota_us"))
        return None if quota_us < 0 else quota_us / int(self._read("cpu.cfs_period_us"))


class MemoryGroup(ControlGroup):
    """A limit of memory, page cache included; nothing of it may go to swap."""

    def make(self) -> None:
        super().make()
        # v1, v2; the second needs a kernel with swap
        for name in ("memory.swappiness", "memory.swap.max"):
            if (self.path / name).exists():
                (self.path / name).write_text("0")

    def works(self) -> bool:
        return (self.path / self._limit_file).exists()

    @property
    def _limit_file(self) -> str:
        return "memory.limit_in_bytes" if self.hierarchy.version == 1 else "memory.max"

    def limit(self, limit_bytes: int | None) -> int | None:
        """Set the limit; the one that holds.

        v2 takes any limit and kills what does not fit. v1 gives back what it can and refuses
        (EBUSY) a limit below the rest: then that rest is the limit, and the next allocation beyond
        it kills.
        """
        if limit_bytes is None:
            self._write(self._limit_file, -1 if self.hierarchy.version == 1 else "max")
            return None
        wanted = limit_bytes
        while True:
            try:
                (self.path / self._limit_file).write_text(str(wanted))
                return wanted
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise EnvironmentNotReady(
                        f"cannot limit {self.path} to {wanted} bytes: {error.strerror}"
                    ) from error
            # What is left after the kernel gave back what it could, and a page more than it needs
            # now.
            wanted = max(wanted + (1 << 20), int(self._read("memory.usage_in_bytes")) + (1 << 16))

    def use(self) -> MemoryUse:
        """Return the limit in force and the memory in use."""
        stat = self._table("memory.stat")
        limit = self._limit()
        if self.hierarchy.version == 2:
            events, used = self._table("memory.events"), int(self._read("memory.current"))
            met, killed = events.get("max", 0), events.get("oom_kill", 0)
            return MemoryUse(used, stat["anon"], limit, met, killed)
        used, met = int(self._read("memory.usage_in_bytes")), int(self._read("memory.failcnt"))
        return MemoryUse(
            used, stat["rss"], limit, met, self._table("memory.oom_control").get("oom_kill", 0)
        )

    def _limit(self) -> int | None:
        text = self._read(self._limit_file).strip()
        return None if text == "max" or int(text) >= _UNLIMITED else int(text)


class IoGroup(ControlGroup):
    """The control group to which a node's reads and writes are charged, with the kernel's
    write-back of them (v2). `harness.clusters.limits.throttles` has the rules.
    """

    def __init__(self, hierarchy: Hierarchy, run_id: str, node: str) -> None:
        super().__init__(hierarchy, run_id, node)
        self.together = ("memory", "io")

    def works(self) -> bool:
        return all((self.path / name).exists() for name in ("io.max", "memory.current"))


def group_of(hierarchy: Hierarchy, run_id: str, node: str) -> ControlGroup:
    """The group of a node below a controller; not made yet."""
    kinds: dict[str, type[CpuGroup | MemoryGroup | IoGroup]]
    kinds = {"cpu": CpuGroup, "memory": MemoryGroup, "io": IoGroup}
    return kinds[hierarchy.controller](hierarchy, run_id, node)


def groups_left(run_id: str | None = None) -> Iterator[tuple[str, Path]]:
    """(run id, path) of every group of a run of ours, or of all of them: below all controllers, as
    an engine makes its groups below each."""
    for root, pattern in _roots():
        for path in sorted(root.glob(pattern)):
            found, _, owner = path.name.removeprefix(PREFIX).rpartition(".")[0].rpartition(".")
            if owner == short_owner_mark() and run_id in (None, found):
                yield found, path


def remove_groups(run_id: str) -> list[Path]:
    """Remove the groups of a run whose processes are gone; what could not be removed."""
    groups = [path for _, path in groups_left(run_id)]

    def left() -> list[Path]:
        for path in groups:
            # an engine that was killed left its own
            for folder, _, _ in os.walk(path, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
        return [path for path in groups if path.exists()]

    return wait_while(left, _REMOVE_S, every_s=0.05)
