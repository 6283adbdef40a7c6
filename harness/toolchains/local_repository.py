"""Modules that a build installed into a local Maven repository, read without writing into it.

``mvn install`` and ``gradlew publishToMavenLocal`` put them below GROUP/ARTIFACT/VERSION. Maven
itself would keep what it downloads in the same folder, and serve a build of the user's from then on
where the released version was asked for; so it is given copies, in a repository that is thrown
away.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.toolchains.checkout import digest_of

#: Beside the modules: where Maven once got them from, which would make it ask there again.
_OF_MAVEN = ("_remote.repositories", "resolver-status.properties", ".lastUpdated")


@dataclass(frozen=True, slots=True)
class LocalModules:
    """All modules of a group, and of the groups below it, that a repository holds at one
    version."""

    repository: Path
    group: str
    version: str

    @classmethod
    def of_pom(cls, pom: Path, group: str) -> LocalModules:
        """Return the modules next to the pom of one of them."""
        return cls(pom.parents[2 + len(group.split("."))], group, pom.parent.name)

    def digest(self) -> str:
        """Return the digest of the modules' files; empty when there are none."""
        return digest_of(self.repository, self._files())

    def copy(self, target: Path, digest: str) -> None:
        """Put them into another repository.

        Raises:
            UsageError: they are not the modules of ``digest``.
        """
        files = list(self._files())
        for name in files:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.repository / name, target / name)
        if digest_of(target, files) != digest:
            raise UsageError(
                f"{self.group} {self.version} in {self.repository} has changed since the command began",
                hint="repeat the command to use the new one",
            )

    def _files(self) -> Iterator[str]:
        below = self.repository.joinpath(*self.group.split("."))
        for folder in sorted(each for each in below.rglob(self.version) if each.is_dir()):
            for path in sorted(folder.iterdir()):
                if path.is_file() and not path.name.endswith(_OF_MAVEN):
                    yield path.relative_to(self.repository).as_posix()


def poms_of(repository: Path, group: str, artifact: str) -> list[Path]:
    """The pom of each version of an artifact that a repository holds."""
    folder = repository.joinpath(*group.split("."), artifact)
    return sorted(folder.glob(f"*/{artifact}-*.pom"))
