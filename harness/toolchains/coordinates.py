"""Maven coordinates of the jars that something runs from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import UsageError

_MODULE = re.compile(r"^(\*:\*|[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+)$")
_ARCHIVE = re.compile(r"^[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+){4}$")
_COORDINATE = re.compile(r"^[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+$")
#: Excludes all that the coordinates would pull in.
EVERYTHING = "*:*"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """``group:artifact:version`` coordinates to run from, and ``group:artifact`` to leave out of what they
    pull in (``*:*``: all of it); or ``archive``, ``group:artifact:version:type:classifier`` of a distribution
    whose ``lib`` folder holds the jars. The first of them names the folder in the cache.

    ``managed`` is the ``group:artifact:version`` of a pom that says which versions a project built its own
    distribution with: poms that count on it ask for versions that exclude each other.

    Raises:
        UsageError: text of another form.
    """

    coordinates: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    archive: str = ""
    managed: str = ""

    def __post_init__(self) -> None:
        for text in (*self.coordinates, *filter(None, [self.managed])):
            if not _COORDINATE.match(text):
                raise UsageError(f"{text!r} is not of the form group:artifact:version")
        if self.archive and not _ARCHIVE.match(self.archive):
            raise UsageError(f"{self.archive!r} is not of the form group:artifact:version:type:classifier")
        if bool(self.archive) == bool(self.coordinates):
            raise UsageError("jars come from coordinates or from an archive: name one of the two")
        for text in self.exclude:
            if not _MODULE.match(text):
                raise UsageError(f"{text!r} is not of the form group:artifact")

    @property
    def title(self) -> str:
        return self.coordinates[0] if self.coordinates else ":".join(self.archive.split(":")[:3])
