"""A program from packages of Debian: fetched from a package index, unpacked into the cache and
never installed.

apt checks the signatures of the index and the hashes of the packages. So only versions that the
index of this machine, or of a suite of Debian, has at the moment can be used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from filelock import FileLock, Timeout

from harness.errors import EnvironmentNotReady, UsageError
from harness.toolchains import package_index
from harness.toolchains.cache import cache_folder
from harness.toolchains.package_index import PackageIndex
from harness.toolchains.versions import others_hint

Progress = Callable[[str, float | None], None]
_FETCH_S: Final = 600.0
_TREE: Final = "root"


@dataclass(frozen=True, slots=True)
class PackagedProgram:
    """One version of a program that packages of Debian have.

    Attributes:
        packages: what it needs; its version is the version of the first one.
        version: as its authors number it, without the revision of the package.
        launcher: the script that starts it. It is put next to the folder ``root``, in which the
            packages are unpacked.
        suites: of Debian, which may have the version when this machine's own index does not; the
            most likely first.
        own: always None: there are no builds of the user's.
    """

    packages: tuple[str, ...]
    version: str
    launcher: Path
    suites: tuple[str, ...] = ()
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

    def parts(self) -> dict[str, Path]:
        """Return the files of the program in an image, by their names there; `fetch` makes them.
        Pages and configuration of the packages are left out.
        """
        root = self.place.parent / _TREE / "usr"
        found = (path for path in (root / "lib").rglob("*") if path.is_file())
        return {str(path.relative_to(root)): path for path in sorted(found)}

    def released(self) -> list[str]:
        """Versions that this machine's index and the suites have, in no order.

        Raises:
            EnvironmentNotReady: no apt, or an index that does not answer.
        """
        return list(dict.fromkeys(one for _, found in self._indexes() for one in found))

    def is_released(self) -> bool:
        """Whether this machine's index or a suite has this version.

        Raises:
            EnvironmentNotReady: as `released`.
        """
        return any(self.version in found for _, found in self._indexes())

    def require_tools(self) -> None:
        """Raise unless this machine has what fetches and unpacks the packages.

        Raises:
            EnvironmentNotReady: a tool of Debian is not installed.
        """
        package_index.require_tools(self.name)

    def _indexes(self) -> Iterator[tuple[PackageIndex, dict[str, str]]]:
        """Yield each index with the versions that it has, each when it is asked for.

        Raises:
            EnvironmentNotReady: none has the program.
        """
        any_has_it = False
        for index in self._readable():
            found = index.versions(self.name)
            any_has_it |= bool(found)
            yield index, found
        if not any_has_it:
            raise EnvironmentNotReady(
                f"the package index of this machine has no {self.name}",
                hint="`apt-get update` reads the index again",
            )

    def _readable(self) -> Iterator[PackageIndex]:
        """Yield this machine's index, and one for each suite if it has a mirror of Debian."""
        yield PackageIndex()
        if self.suites and package_index.debian_mirror():
            yield from map(PackageIndex, self.suites)

    def _found(self) -> tuple[PackageIndex, str]:
        """The index that has this version, and the version of the package there.

        Raises:
            UsageError: none has it.
        """
        known: dict[str, None] = {}
        for index, versions in self._indexes():
            if self.version in versions:
                return index, versions[self.version]
            known |= dict.fromkeys(versions)
        asked = " or ".join(index.label for index in self._readable())
        raise UsageError(
            f"{self.name} {self.version} is not in {asked}",
            hint=others_hint(self.version, list(known)),
        )

    def _unpack(self, folder: Path, report: Progress) -> None:
        """Make the folder, complete at once: by one rename."""
        report(f"reading package indexes for {self.name} {self.version}", None)
        index, version = self._found()
        part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}.part-"))
        try:
            packages = part / "packages"
            packages.mkdir()
            report(f"downloading {len(self.packages)} packages of {self.name}", None)
            index.download([f"{self.name}={version}", *self.packages[1:]], packages)
            report(f"unpacking {self.name} {self.version}", None)
            for package in sorted(packages.glob("*.deb")):
                index.unpack(package, part / _TREE)
            shutil.rmtree(packages)
            shutil.copy2(self.launcher, part / self.launcher.name)
            (part / self.launcher.name).chmod(0o755)
            part.chmod(0o755)
            os.replace(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
