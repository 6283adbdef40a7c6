"""A program from packages of the operating system: fetched from its package index, unpacked into
the cache and never installed.

apt checks the signatures of the index and the hashes of the packages. So only versions that the
index of this machine has can be used.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from filelock import FileLock, Timeout

from harness.errors import EnvironmentNotReady, UsageError
from harness.toolchains.cache import cache_folder
from harness.toolchains.versions import others_hint

Progress = Callable[[str, float | None], None]
_LIST_S: Final = 60.0
_FETCH_S: Final = 600.0
_TOOLS: Final = ("apt-get", "apt-cache", "dpkg-deb")
_TREE: Final = "root"
#: ``epoch:upstream-revision``, the version of a package.
_VERSION: Final = re.compile(r"(?:\d+:)?(?P<upstream>.+?)(?:-[^-]*)?")


@dataclass(frozen=True, slots=True)
class PackagedProgram:
    """One version of a program that the packages of the operating system have.

    Attributes:
        packages: what it needs; its version is the version of the first one.
        version: as its authors number it, without the revision of the package.
        launcher: the script that starts it. It is put next to the folder ``root``, in which the
            packages are unpacked.
        own: always None: there are no builds of the user's.
    """

    packages: tuple[str, ...]
    version: str
    launcher: Path
    own: ClassVar[None] = None
    reads_hosts_file: ClassVar[bool] = True
    clock_refusal: ClassVar[str] = "programs of packages are started without a clock of their own"
    first_use: ClassVar[str] = "to be unpacked from packages of the operating system on first use"

    @property
    def name(self) -> str:
        """Return the name of the package that has the program."""
        return self.packages[0]

    @property
    def place(self) -> Path:
        """Where its launcher is, or would be; changes with all that it is made of."""
        made_of = "\n".join(self.packages).encode() + self.launcher.read_bytes()
        digest = hashlib.sha256(made_of).hexdigest()[:12]
        folder = cache_folder() / "programs" / f"{self.name}-{self.version}-{digest}"
        return folder / self.launcher.name

    def fetch(self, *, offline: bool = False, on_progress: Progress | None = None) -> Path:
        """The launcher, with the unpacked packages next to it.

        Raises:
            EnvironmentNotReady: no apt, not in the cache and offline, or the index does not answer.
            UsageError: the index does not have this version.
        """
        place = self.place
        if place.exists():
            return place
        if offline:
            raise EnvironmentNotReady(
                f"{self.name} {self.version} is not in the cache and --offline forbids fetching it",
                hint="run once without --offline, or `brokerstorm fetch` the scenario",
            )
        report = on_progress or (lambda text, share: None)
        try:
            place.parent.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{place.parent}.lock", timeout=_FETCH_S):
                if not place.exists():
                    self._unpack(place.parent, report)
        except Timeout:
            raise EnvironmentNotReady(
                f"{self.name}: another process is still fetching its packages"
            ) from None
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot write to the cache {cache_folder()}: {error.strerror or error}",
                hint="free some space or set BROKERSTORM_CACHE to a folder on another disk",
            ) from error
        report(f"{self.name} {self.version} unpacked", 1.0)
        return place

    def released(self) -> list[str]:
        """Versions that the package index of this machine has, in no order.

        Raises:
            EnvironmentNotReady: no apt, or its index does not have the package.
        """
        return list(self._versions())

    def is_released(self) -> bool:
        """Whether the package index of this machine has this version.

        Raises:
            EnvironmentNotReady: as `released`.
        """
        return self.version in self._versions()

    def require_tools(self) -> None:
        """Raise unless this machine has what fetches and unpacks the packages.

        Raises:
            EnvironmentNotReady: a tool of Debian is not installed.
        """
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if missing:
            raise EnvironmentNotReady(
                f"{missing[0]} is not installed: {self.name} comes from packages of Debian",
                hint="use a machine with Debian or Ubuntu, or another system",
            )

    def _versions(self) -> dict[str, str]:
        """Version of the program -> version of the newest package that has it."""
        listed = self._run(["apt-cache", "madison", self.name], _LIST_S)
        found: dict[str, str] = {}
        for line in listed.splitlines():
            columns = [column.strip() for column in line.split("|")]
            if len(columns) == 3 and columns[0] == self.name and columns[2].endswith("Packages"):
                match = _VERSION.fullmatch(columns[1])
                if match:
                    found.setdefault(match["upstream"], columns[1])
        if not found:
            raise EnvironmentNotReady(
                f"the package index of this machine has no {self.name}",
                hint="`apt-get update` reads the index again",
            )
        return found

    def _unpack(self, folder: Path, report: Progress) -> None:
        """Make the folder, complete at once: by one rename."""
        versions = self._versions()
        if self.version not in versions:
            raise UsageError(
                f"the package index of this machine has no {self.name} {self.version}",
                hint=others_hint(self.version, list(versions)),
            )
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}.part-"))
        try:
            packages = part / "packages"
            packages.mkdir()
            report(f"downloading {len(self.packages)} packages of {self.name}", None)
            wanted = [f"{self.name}={versions[self.version]}", *self.packages[1:]]
            self._run(["apt-get", "-q", "download", *wanted], _FETCH_S, packages)
            report(f"unpacking {self.name} {self.version}", None)
            for package in sorted(packages.glob("*.deb")):
                self._run(["dpkg-deb", "-x", str(package), str(part / _TREE)], _FETCH_S)
            shutil.rmtree(packages)
            shutil.copy2(self.launcher, part / self.launcher.name)
            (part / self.launcher.name).chmod(0o755)
            part.chmod(0o755)
            os.replace(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _run(self, command: list[str], timeout_s: float, folder: Path | None = None) -> str:
        self.require_tools()
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise EnvironmentNotReady(
                f"{command[0]} took over {timeout_s:.0f} s", hint="is the network reachable?"
            ) from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            said = (lines or done.stderr.splitlines() or ["no output"])[0].removeprefix("E:")
            raise EnvironmentNotReady(
                f"{command[0]} of {self.name} failed: {said.strip()[:300]}",
                hint="`apt-get update` reads the index again; is the network reachable?",
            )
        return done.stdout
