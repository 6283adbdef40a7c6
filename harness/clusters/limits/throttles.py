"""Slows one device down, reads and writes, by the kernel's means.

Brokers leave their writes to the kernel, which writes back later: a rule must hold for that, too.
Cgroups v1 write back as the root group, so the root's rule does it; throttles are not inherited, so
each process's own group gets the rule as well. Cgroups v2 have no rule for all; there write-back is
charged to the group whose process wrote, if that group has the memory and io controllers and the
file system knows of it (ext4, btrfs, xfs): a rule of the node's own group holds for all that the
node does.

https://docs.kernel.org/admin-guide/cgroup-v1/blkio-controller.html
https://docs.kernel.org/admin-guide/cgroup-v2.html#writeback
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

from harness.clusters.limits.groups import why_not as why_no_group
from harness.errors import EnvironmentNotReady

_MOUNTS: Final = Path("/proc/self/mountinfo")


class Throttle(ABC):
    """Rules of groups on devices, ``major:minor``.

    Attributes:
        root: where the groups are mounted.
        inside: which of the groups that is: "/" but for a container's.
    """

    #: As /proc/<pid>/cgroup names the hierarchy.
    controller: ClassVar[str]
    #: The file that has a group's rules.
    rules: ClassVar[str]

    def __init__(self, root: Path, inside: str) -> None:
        self.root, self.inside = root, inside

    @abstractmethod
    def why_not(self) -> str:
        """Why it cannot slow anything here; empty when it can."""

    @abstractmethod
    def limit(self, device: str, bytes_per_s: int | None, pid: int | None) -> None:
        """Hold a device to a rate; None = full speed, for everybody.

        Args:
            pid: the process that is to feel it.

        Raises:
            EnvironmentNotReady: the kernel refuses.
        """

    @abstractmethod
    def rate(self, device: str) -> int | None:
        """Bytes per second that a device is held to; None = it is not."""

    @abstractmethod
    def felt_in(self, pid: int) -> Path | None:
        """The group from which one sees what a process feels; None when that is any."""

    def group(self, groups: str) -> Path | None:
        """The group of a process as a folder; None when it is not below what is mounted here.

        Args:
            groups: text of /proc/<pid>/cgroup.
        """
        for line in groups.splitlines():
            _, controllers, path = line.split(":", 2)
            if self.controller in controllers.split(",") and Path(path).is_relative_to(self.inside):
                return self.root / Path(path).relative_to(self.inside)
        return None

    def group_of(self, pid: int | None) -> Path | None:
        """The same of a process that may have ended."""
        with contextlib.suppress(OSError):
            return self.group(Path(f"/proc/{pid}/cgroup").read_text())
        return None

    @abstractmethod
    def rule(self, group: Path, device: str) -> int | None:
        """Return how fast a group's processes may write to a device, in bytes per second; None
        without a limit.
        """

    def with_rules(self, device: str) -> set[Path]:
        """Every group that has a rule on a device."""
        groups = (file.parent for file in self.root.rglob(self.rules))
        return {group for group in groups if self.rule(group, device) is not None}

    def _lines(self, group: Path, device: str) -> Iterator[str]:
        with contextlib.suppress(OSError):
            for line in (group / self.rules).read_text().splitlines():
                name, _, rule = line.partition(" ")
                if name == device:
                    yield rule


class RootThrottle(Throttle):
    """Cgroups v1: the rule of the root group, and of the groups of the processes that are meant."""

    controller = "blkio"
    rules = "blkio.throttle.write_bps_device"
    _files: ClassVar = (rules, "blkio.throttle.read_bps_device")

    def why_not(self) -> str:
        path = self.root / self.rules
        return "" if os.access(path, os.W_OK) else f"{path} cannot be written"

    def limit(self, device: str, bytes_per_s: int | None, pid: int | None) -> None:
        meant = (self.group_of(os.getpid()), self.group_of(pid))
        groups = {one for one in meant if one} if bytes_per_s else self.with_rules(device)
        for group in (self.root, *sorted(groups - {self.root})):
            for name in self._files:
                # Another than the root's may go with its last process.
                _write(group / name, f"{device} {bytes_per_s or 0}", may_be_gone=group != self.root)

    def rate(self, device: str) -> int | None:
        return self.rule(self.root, device)

    def felt_in(self, pid: int) -> Path | None:
        return None

    def rule(self, group: Path, device: str) -> int | None:
        return next((int(rule) for rule in self._lines(group, device)), None)


class GroupThrottle(Throttle):
    """Cgroups v2: the rule of the group that a node is in."""

    controller = ""
    rules = "io.max"

    def why_not(self) -> str:
        return why_no_group("io")

    def limit(self, device: str, bytes_per_s: int | None, pid: int | None) -> None:
        if bytes_per_s is None:
            for group in self.with_rules(device):
                _write(group / self.rules, f"{device} rbps=max wbps=max", may_be_gone=True)
            return
        own = self.group_of(pid)
        if own is None or not (own / self.rules).exists():
            raise EnvironmentNotReady(
                f"process {pid} has no control group of its own with {self.rules}"
            )
        _write(
            own / self.rules, f"{device} rbps={bytes_per_s} wbps={bytes_per_s}", may_be_gone=False
        )

    def rate(self, device: str) -> int | None:
        return min(
            (self.rule(group, device) or 0 for group in self.with_rules(device)), default=None
        )

    def felt_in(self, pid: int) -> Path | None:
        return self.group_of(pid)

    def rule(self, group: Path, device: str) -> int | None:
        for rule in self._lines(group, device):
            rates = dict(pair.split("=", 1) for pair in rule.split())
            return None if rates["wbps"] == "max" else int(rates["wbps"])
        return None


def throttle(mounts: str | None = None) -> Throttle | None:
    """Return the mechanism that can slow a device on this machine: v1's where its controller is
    mounted, otherwise v2's.

    Args:
        mounts: text of /proc/self/mountinfo, for tests.
    """
    found: Throttle | None = None
    for line in (_MOUNTS.read_text() if mounts is None else mounts).splitlines():
        before, _, after = line.partition(" - ")
        root, inside = Path(before.split()[4]), before.split()[3]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup" and RootThrottle.controller in options.split(","):
            return RootThrottle(root, inside)
        if kind == "cgroup2":
            found = GroupThrottle(root, inside)
    return found


def _write(path: Path, rule: str, *, may_be_gone: bool) -> None:
    try:
        path.write_text(rule)
    except OSError as error:
        if not may_be_gone or path.parent.exists():
            raise EnvironmentNotReady(f"cannot write {path}: {error.strerror}") from error
