"""A volume of its own for a node's data: a sparse image on a loop device, that can be full or slow
alone.

The image lies next to the data folder on which it is mounted. Only what is really written takes
room on the disk below: a ballast file reserves blocks without writing them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.clusters.limits import probe
from harness.clusters.limits.probe import synced_write
from harness.clusters.limits.throttles import throttle
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


def why_not_slow() -> str:
    """Why a volume cannot be slowed down here; empty when it can."""
    if problem := why_no_volume():
        return problem
    found = throttle()
    return found.why_not() if found else "this system has no control groups that can slow a device"


class Volume:
    """The volume that is mounted on ``data``, a folder that exists already and may hold something.

    Attributes:
        asked_bytes_per_s: what `slow` was last asked for; a container's groups lose their rules
            with it.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        self.asked_bytes_per_s: int | None = None
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
            # No journal: a killed broker is not a crashed machine. No reserve: full is full for
            # root as well. Few inodes: no table of them is left for the kernel to write in the
            # background.
            made = [
                "-q",
                "-F",
                "-m",
                "0",
                "-T",
                "largefile",
                "-O",
                "^has_journal",
                "-E",
                "nodiscard",
            ]
            _run("mkfs.ext4", *made, str(self.image))
            self.data.rename(before)
            self.data.mkdir()
            _run("mount", "-o", "loop,noatime", str(self.image), str(self.data))
            (self.data / "lost+found").rmdir()  # a broker takes it for a topic
            shutil.copytree(before, self.data, dirs_exist_ok=True)
            shutil.rmtree(before)
        except OSError as error:
            raise EnvironmentNotReady(
                f"no volume for {self.data}: {error.strerror or error}",
                hint="free some disk space, or choose another --run-dir",
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
        """Return whether the volume is mounted at the node's data folder now."""
        return is_mounted(self.data)

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

    def try_write(self, size: int, pid: int | None = None) -> tuple[str, float]:
        """Write and sync; the system's complaint ("" = none) and how long it took, seconds.

        Args:
            pid: the process that keeps its data there, whose disk it is that may be slow.
        """
        path, found = self.data / _PROBE, throttle()
        group = found.felt_in(pid) if found and pid else None
        if group is None:
            return synced_write(path, size)
        done = _run(sys.executable, "-S", probe.__file__, str(group), str(path), str(size))
        said, took_s = json.loads(done)
        return said, took_s

    def slow(self, bytes_per_s: int | None, pid: int | None = None) -> None:
        """Throttle the volume's device; None = full speed, for everybody.

        Args:
            pid: the process that keeps its data there; a container has groups of its own.

        Raises:
            EnvironmentNotReady: the kernel cannot.
        """
        found, device = throttle(), self._device()
        if found is None or device is None:
            raise EnvironmentNotReady(
                f"the device of {self.data} cannot be slowed", hint=why_not_slow()
            )
        found.limit(device, bytes_per_s, pid)
        self.asked_bytes_per_s = bytes_per_s

    def rate(self) -> int | None:
        """Bytes per second that the device is throttled to; None = it is not."""
        found, device = throttle(), self._device()
        return found.rate(device) if found and device else None

    def is_slowed(self) -> bool:
        return self.rate() is not None

    def _device(self) -> str | None:
        """``major:minor`` of what is mounted on the folder."""
        return next((device for path, device in _mounted() if path == self.data), None)


def images(folder: Path) -> list[Path]:
    """The images in a cluster's folder, mounted or not."""
    return sorted(folder.glob(f"*/{_IMAGE}"))


def is_mounted(path: Path) -> bool:
    """Also where what served it is dead, so that it cannot be looked at."""
    return any(path == found for found, _ in _mounted())


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
        return "" if not is_mounted(path) else done.stderr.strip() or "busy"

    if said := wait_while(trouble, _UNMOUNT_S):
        raise HealError(f"{path} is still mounted: {said}", hint=f"fuser -vm {path}")


def _mounted() -> Iterator[tuple[Path, str]]:
    for line in _MOUNTS.read_text().splitlines():
        fields = line.split()
        yield Path(fields[4].encode().decode("unicode_escape")), fields[2]


def _run(*command: str) -> str:
    """Run a command and return what it printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentNotReady(
            f"`{' '.join(command)}` did not end within {_TOOL_S:.0f} s"
        ) from error
    if done.returncode != 0:
        raise EnvironmentNotReady(
            f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}",
            hint="a volume of its own needs root and a free loop device; `losetup -a` shows those in use",
        )
    return done.stdout
