"""A volume of its own for a node's data: a sparse image on a loop device, that can be full or slow alone.

The image lies beside the data folder on which it is mounted. Only what is really written takes room on the
disk below: a ballast file reserves blocks without writing them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import EnvironmentNotReady, HealError
from harness.waiting import wait_while

#: Room for an hour of a scenario at 15 MB/s a node; sparse, so a short run takes what it writes.
VOLUME_BYTES: Final = 64 * 1024**3
_IMAGE: Final = "data.img"
_BALLAST: Final = ".brokerstorm-ballast"
_PROBE: Final = ".brokerstorm-probe"
_TOOLS: Final = ("mkfs.ext4", "mount", "umount")
_TOOL_S: Final = 30.0
_UNMOUNT_S: Final = 5.0
_CHUNK: Final = 1 << 40
_MOUNTS: Final = Path("/proc/self/mountinfo")
_THROTTLES: Final = ("blkio.throttle.write_bps_device", "blkio.throttle.read_bps_device")


def why_no_volume() -> str:
    """Why a node's data cannot get a volume of its own here; empty when it can."""
    if os.geteuid() != 0:
        return "mounting a volume needs root"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} not found (packages e2fsprogs, mount)"
    if not Path("/dev/loop-control").exists():
        return "this system has no loop devices"
    if "\text4" not in Path("/proc/filesystems").read_text():
        return "this kernel has no ext4"
    return ""


def why_not_slow(mounts: str | None = None) -> str:
    """Why a volume cannot be slowed down here; empty when it can.

    Throttling of the *root* group slows a device for everybody, the kernel's write-back included: brokers
    leave their writes to that. cgroup v2 has no such knob, and its own groups throttle write-back only for
    what they charge.
    """
    if problem := why_no_volume():
        return problem
    root = _throttle_root(mounts)
    if root is None:
        return "only cgroup v1's blkio controller can slow a device for the kernel's write-back too"
    if not os.access(root / _THROTTLES[0], os.W_OK):
        return f"{root / _THROTTLES[0]} cannot be written"
    return ""


def _throttle_root(mounts: str | None = None) -> Path | None:
    found = _throttle_mount(mounts)
    return found[0] if found else None


def _throttle_mount(mounts: str | None = None) -> tuple[Path, str] | None:
    """Where the blkio controller is mounted, and which of its groups that is: "/" but for a container's."""
    for line in (_MOUNTS.read_text() if mounts is None else mounts).splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup" and "blkio" in options.split(","):
            return Path(before.split()[4]), before.split()[3]
    return None


def throttle_group(groups: str, mounts: str | None = None) -> Path | None:
    """The blkio group of a process as a folder; None when it is not below what is mounted here.

    Args:
        groups: text of /proc/<pid>/cgroup.
        mounts: text of /proc/self/mountinfo, for tests.
    """
    mount = _throttle_mount(mounts)
    for line in groups.splitlines() if mount else ():
        _, controllers, path = line.split(":", 2)
        if mount and "blkio" in controllers.split(",") and Path(path).is_relative_to(mount[1]):
            return mount[0] / Path(path).relative_to(mount[1])
    return None


class Volume:
    """The volume that is mounted on ``data``, a folder that exists already and may hold something."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.image = data.with_name(_IMAGE)

    def mount(self) -> None:
        """Make the image and mount it; what lay in the folder is in the volume then.

        Raises:
            EnvironmentNotReady: the machine refuses it.
        """
        before = self.data.with_name("data.before")
        try:
            with self.image.open("wb") as file:
                file.truncate(VOLUME_BYTES)
            # No journal: a killed broker is no crashed machine. No reserve: full is full for root as well.
            # Few inodes: no table of them is left for the kernel to write in the background.
            made = ["-q", "-F", "-m", "0", "-T", "largefile", "-O", "^has_journal", "-E", "nodiscard"]
            _run("mkfs.ext4", *made, str(self.image))
            self.data.rename(before)
            self.data.mkdir()
            _run("mount", "-o", "loop,noatime", str(self.image), str(self.data))
            (self.data / "lost+found").rmdir()  # a broker takes it for a topic
            shutil.copytree(before, self.data, dirs_exist_ok=True)
            shutil.rmtree(before)
        except OSError as error:
            raise EnvironmentNotReady(
                f"no volume for {self.data}: {error.strerror or error}", hint="is the disk full?"
            ) from error

    def unmount(self) -> None:
        """Lift what slows it, unmount it and drop the image. Idempotent.

        Raises:
            HealError: somebody still uses it.
        """
        if self.is_mounted():
            with contextlib.suppress(EnvironmentNotReady):
                self.slow(None)  # the rule would outlive the mount and hit the device's next user
            unmount(self.data)
        self.image.unlink(missing_ok=True)

    def is_mounted(self) -> bool:
        return os.path.ismount(self.data)

    def fill(self) -> None:
        """Reserve every free block for a ballast file; returns when not one is left.

        Raises:
            EnvironmentNotReady: the file system refuses for another reason.
        """
        size, chunk = 0, _CHUNK
        try:
            with (self.data / _BALLAST).open("ab") as file:
                size = file.tell()
                while chunk >= 4096:
                    try:
                        os.posix_fallocate(file.fileno(), size, chunk)
                        size += chunk
                    except OSError as error:
                        if error.errno not in (errno.ENOSPC, errno.EFBIG):
                            raise
                        size, chunk = os.fstat(file.fileno()).st_size, chunk // 2
        except OSError as error:
            raise EnvironmentNotReady(f"{self.data} cannot be filled: {error.strerror}") from error

    def free(self) -> None:
        """Drop the ballast. Idempotent."""
        (self.data / _BALLAST).unlink(missing_ok=True)

    def is_filled(self) -> bool:
        return (self.data / _BALLAST).exists()

    def try_write(self, size: int) -> tuple[str, float]:
        """Write and sync; the system's complaint ("" = none) and how long it took, seconds."""
        path, start, said = self.data / _PROBE, time.monotonic(), ""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                os.write(handle, bytes(size))
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            said = errno.errorcode.get(error.errno or 0, str(error))
        took_s = time.monotonic() - start
        path.unlink(missing_ok=True)
        return said, took_s

    def slow(self, bytes_per_s: int | None, pid: int | None = None) -> None:
        """Throttle the volume's device; None = full speed, for everybody.

        A group's rule holds for what its own processes read and sync, and the root's for the kernel's
        write-back: cgroups v1 do not inherit throttles.

        Args:
            pid: the process that keeps its data there; a container has groups of its own.

        Raises:
            EnvironmentNotReady: the kernel cannot.
        """
        root, device = _throttle_root(), self._device()
        if root is None or device is None:
            raise EnvironmentNotReady(f"the device of {self.data} cannot be slowed", hint=why_not_slow())
        others = _groups_of(os.getpid(), pid) if bytes_per_s else _groups_with_rules(root, device)
        for group in (root, *sorted(others - {root})):
            for name in _THROTTLES:
                try:
                    (group / name).write_text(f"{device} {bytes_per_s or 0}")
                except OSError as error:
                    if group == root or group.exists():  # else it went with its last process
                        raise EnvironmentNotReady(f"cannot write {group / name}: {error.strerror}") from error

    def rate(self) -> int | None:
        """Bytes per second that the device is throttled to; None = it is not."""
        root, device = _throttle_root(), self._device()
        return _rule(root, device) if root and device else None

    def is_slowed(self) -> bool:
        return self.rate() is not None

    def _device(self) -> str | None:
        """``major:minor`` of what is mounted on the folder."""
        return next((device for path, device in _mounted() if path == self.data), None)


def _rule(group: Path, device: str) -> int | None:
    """What a group's processes may write to a device, bytes per second."""
    with contextlib.suppress(OSError):
        for line in (group / _THROTTLES[0]).read_text().splitlines():
            name, _, rate = line.partition(" ")
            if name == device:
                return int(rate)
    return None


def _groups_with_rules(root: Path, device: str) -> set[Path]:
    found = (file.parent for file in root.rglob(_THROTTLES[0]))
    return {group for group in found if _rule(group, device) is not None}


def _groups_of(*pids: int | None) -> set[Path]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it ended
            found.add(throttle_group(Path(f"/proc/{pid}/cgroup").read_text()))
    return {group for group in found if group is not None}


def images(folder: Path) -> list[Path]:
    """The images in a cluster's folder, mounted or not."""
    return sorted(folder.glob(f"*/{_IMAGE}"))


def volumes_below(folder: Path) -> list[Path]:
    """Every folder below this one that something is mounted on: a cluster's volumes."""
    return [path for path, _ in _mounted() if path.is_relative_to(folder)]


def unmount(path: Path) -> None:
    """Unmount a volume; a process that was just killed may hold it for a moment.

    Raises:
        HealError: it stays in use.
    """

    def trouble() -> str:
        done = subprocess.run(["umount", str(path)], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 or not os.path.ismount(path) else done.stderr.strip() or "busy"

    if said := wait_while(trouble, _UNMOUNT_S):
        raise HealError(f"{path} is still mounted: {said}", hint=f"fuser -vm {path}")


def _mounted() -> Iterator[tuple[Path, str]]:
    for line in _MOUNTS.read_text().splitlines():
        fields = line.split()
        yield Path(fields[4].encode().decode("unicode_escape")), fields[2]


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentNotReady(f"`{' '.join(command)}` did not end within {_TOOL_S:.0f} s") from error
    if done.returncode != 0:
        raise EnvironmentNotReady(
            f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}",
            hint="a volume of its own needs root and a free loop device; `losetup -a` shows those in use",
        )
