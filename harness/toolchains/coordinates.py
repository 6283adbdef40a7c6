"""Maven coordinates of the jars that something runs from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.toolchains.local_repository import LocalModules
from harness.toolchains.own_builds import OwnBuild

_MODULE = re.compile(r"^(\*:\*|[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+)$")
_ARCHIVE = re.compile(r"^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+){4}$")
_COORDINATE = re.compile(r"^[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+$")
#: Excludes all that the coordinates would pull in.
EVERYTHING = "*:*"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """``group:artifact:version`` coordinates to run from, and ``group:artifact`` to leave out of
    what they pull in (``*:*``: all of it); or ``archive``,
    ``group:artifact:version:type:classifier`` of a distribution whose ``lib`` folder holds the
    jars. The first of them names the folder in the cache.

    ``managed`` is the ``group:artifact:version`` of a pom that says which versions a project built
    its own distribution with: poms that count on it ask for versions that exclude each other.

    ``own`` is a build of the user's: the jars in the folder ``jars``, or, with ``coordinates``, the
    modules next to its pom in a local Maven repository, which come before released ones.

    Raises:
        UsageError: text of another form.
    """

    coordinates: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    archive: str = ""
    managed: str = ""
    own: OwnBuild | None = None
    jars: Path | None = None

    def __post_init__(self) -> None:
        for text in (*self.coordinates, *filter(None, [self.managed])):
            if not _COORDINATE.match(text):
                raise UsageError(f"{text!r} is not of the form group:artifact:version")
        if self.archive and not _ARCHIVE.match(self.archive):
            raise UsageError(
                f"{self.archive!r} is not of the form group:artifact:version:type:classifier"
            )
        if [bool(self.archive), bool(self.coordinates), self.jars is not None].count(True) != 1:
            raise UsageError(
                "jars come from coordinates, from an archive or from a folder: name one of these"
            )
        for text in self.exclude:
            if not _MODULE.match(text):
                raise UsageError(f"{text!r} is not of the form group:artifact")

    @property
    def title(self) -> str:
        if self.coordinates:
            return self.coordinates[0]
        if self.own:
            return f"own:{re.sub(r'[^A-Za-z0-9_.-]+', '-', self.own.path.name)}:{self.own.number}"
        return ":".join(self.archive.split(":")[:3])

    def own_modules(self) -> LocalModules:
        """The modules of a build of the user's that is in a local Maven repository."""
        assert self.own is not None
        return LocalModules.of_pom(self.own.path, self.coordinates[0].split(":")[0])
