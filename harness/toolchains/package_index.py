"""Package indexes of Debian, as apt reads and verifies them: of this machine and of other suites.

The index of another suite comes from the mirror that this machine's package sources name. It is
read into a folder of the cache with settings of its own. The settings and lists of the system's apt
stay as they are.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from filelock import FileLock, Timeout

from harness.errors import EnvironmentNotReady
from harness.toolchains.cache import cache_folder

TOOLS: Final = ("apt-get", "apt-cache", "dpkg-deb")
#: Lists what apt is configured with, one line a source; `sources_in` reads it.
LIST_SOURCES: Final = (
    "apt-get",
    "indextargets",
    "--format",
    "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)",
    "Created-By: Packages",
)
#: The keys of the archive, of all its suites; a file of the package of that name.
_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LIST_S: Final = 60.0
_FETCH_S: Final = 600.0
#: An index that is older is read again before it is used.
_FRESH_S: Final = 6 * 3600.0
#: ``epoch:upstream-revision``, the version of a package.
_VERSION: Final = re.compile(r"(?:\d+:)?(?P<upstream>.+?)(?:-[^-]*)?")


#: Whatever the settings of this machine say, packages without a signature are refused.
_VERIFIED: Final = (
    "-oAcquire::AllowInsecureRepositories=false",
    "-oAcquire::AllowWeakRepositories=false",
    "-oAcquire::AllowDowngradeToInsecureRepositories=false",
    "-oAPT::Get::AllowUnauthenticated=false",
)
#: An index that could not be read is an error; apt's own default is a warning.
_WHOLE: Final = ("-oAPT::Update::Error-Mode=any",)


class PackageSource(NamedTuple):
    """A source of packages; ``key`` is empty where apt does not say which file has its keys."""

    uri: str
    release: str
    component: str
    key: str


def sources_in(listed: str) -> list[PackageSource]:
    """Return the sources in the output of `LIST_SOURCES`."""
    found = [PackageSource(*line.split("|")) for line in listed.splitlines()]
    return [one if one.key.startswith("/") else one._replace(key="") for one in found]


def require_tools(needed_by: str) -> None:
    """Raise unless this machine has what fetches and unpacks packages.

    Raises:
        EnvironmentNotReady: a tool of Debian is not installed.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise EnvironmentNotReady(
            f"{missing[0]} is not installed: {needed_by} comes from packages of Debian",
            hint="use a machine with Debian or Ubuntu, or another system",
        )


def debian_mirror() -> str:
    """The mirror of Debian in this machine's package sources; empty = it is another distribution.

    Raises:
        EnvironmentNotReady: no apt.
    """
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return ""
    if system.get("ID") != "debian":
        return ""
    release = system.get("VERSION_CODENAME", "")
    listed = sources_in(_run([*LIST_SOURCES], _LIST_S, "the list of package sources"))
    return next((one.uri for one in listed if one.release == release), "")


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """The packages that one suite has.

    Attributes:
        suite: of Debian, for example ``trixie``; empty = what this machine is configured with.
    """

    suite: str = ""

    @property
    def label(self) -> str:
        """Return the name of the index, for messages."""
        return f"Debian {self.suite}" if self.suite else "the package index of this machine"

    def versions(self, name: str) -> dict[str, str]:
        """Version of a program, without epoch and revision -> version of its newest package.

        Raises:
            EnvironmentNotReady: no apt, or the index cannot be read.
        """
        listed = self._apt("apt-cache", ["madison", name], _LIST_S, name)
        found: dict[str, str] = {}
        for line in listed.splitlines():
            columns = [column.strip() for column in line.split("|")]
            if len(columns) == 3 and columns[0] == name and columns[2].endswith("Packages"):
                match = _VERSION.fullmatch(columns[1])
                if match:
                    found.setdefault(match["upstream"], columns[1])
        return found

    def download(self, packages: Sequence[str], folder: Path) -> None:
        """Download the newest version of packages (or ``name=version``) into a folder.

        Raises:
            EnvironmentNotReady: no apt, no such package, or the mirror does not answer.
        """
        name = packages[0].partition("=")[0]
        self._apt("apt-get", ["-q", "download", *packages], _FETCH_S, name, folder)

    def unpack(self, package: Path, into: Path) -> None:
        """Unpack the files of a package; nothing is installed.

        Raises:
            EnvironmentNotReady: it is not a package, or the disk is full.
        """
        _run(["dpkg-deb", "-x", str(package), str(into)], _FETCH_S, package.stem)

    def _apt(
        self, tool: str, words: list[str], timeout_s: float, name: str, folder: Path | None = None
    ) -> str:
        require_tools(name)
        options = ["-c", str(self._read())] if self.suite else []
        return _run([tool, *options, *_VERIFIED, *words], timeout_s, name, folder)

    def _read(self) -> Path:
        """Read the index of another suite unless that was done some hours ago; returns the settings
        of apt that use it."""
        root = cache_folder() / "packages" / self.suite
        settings, stamp = root / "apt.conf", root / "read"
        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / "lock", timeout=_FETCH_S):
                if not _is_fresh(stamp):
                    self._prepare(root, settings)
                    update = ["apt-get", "-c", str(settings), *_VERIFIED, *_WHOLE, "-q", "update"]
                    _run(update, _FETCH_S, self.label)
                    stamp.touch()
        except Timeout:
            raise EnvironmentNotReady(
                f"another process is still reading the package index of {self.label}"
            ) from None
        except OSError as error:
            raise EnvironmentNotReady(
                f"cannot write to the cache {root}: {error.strerror or error}",
                hint="free some space or set BROKERSTORM_CACHE to a folder on another disk",
            ) from error
        return settings

    def _prepare(self, root: Path, settings: Path) -> None:
        """Write the source of the suite, and settings that keep apt in this folder."""
        if not _KEYRING.exists():
            raise EnvironmentNotReady(
                f"{_KEYRING} is missing: packages of {self.label} could not be verified",
                hint="apt-get install debian-archive-keyring",
            )
        mirror = debian_mirror()
        for folder in ("lists/partial", "archives/partial"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        (root / "status").touch()
        words = f"target=Packages signed-by={_KEYRING}"
        (root / "sources.list").write_text(f"deb [{words}] {mirror} {self.suite} main\n")
        # The system's own settings were read before these: proxies count, its hooks do not.
        lines = [
            "#clear APT::Update::Pre-Invoke;",
            "#clear APT::Update::Post-Invoke;",
            "#clear APT::Update::Post-Invoke-Success;",
            'APT::Sandbox::User "";',
            'Acquire::Languages "none";',
            f'Dir::Etc::sourcelist "{root}/sources.list";',
            'Dir::Etc::sourceparts "/dev/null";',
            'Dir::Etc::preferences "/dev/null";',
            'Dir::Etc::preferencesparts "/dev/null";',
            f'Dir::State::lists "{root}/lists";',
            f'Dir::State::status "{root}/status";',
            f'Dir::Cache "{root}";',
            'Dir::Cache::pkgcache "pkgcache.bin";',
        ]
        settings.write_text("\n".join(lines) + "\n")


def _is_fresh(stamp: Path) -> bool:
    try:
        return time.time() - stamp.stat().st_mtime < _FRESH_S
    except OSError:
        return False


def _run(command: list[str], timeout_s: float, what: str, folder: Path | None = None) -> str:
    require_tools(what)
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
            f"{command[0]} took over {timeout_s:.0f} s",
            hint="check the network, then repeat the command",
        ) from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        said = (lines or done.stderr.splitlines() or ["no output"])[0].removeprefix("E:")
        raise EnvironmentNotReady(
            f"{command[0]} of {what} failed: {said.strip()[:300]}",
            hint="`apt-get update` reads the index again; is the network reachable?",
        )
    return done.stdout
