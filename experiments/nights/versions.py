"""Versions as a suite asks for them, and what they resolve to: ``latest``, ``latest-minor``, ``>=2.14``.

A list of releases comes from the package index of a client or broker, by that index's own client program,
and is kept in the cache for an hour: planning again does not ask again. Where the index does not answer, the
list of an earlier day is used and told.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.rundir import write_json

FRESH_S: Final = 3600.0
DEFAULT: Final = "default"
LATEST: Final = "latest"
LATEST_MINOR: Final = "latest-minor"
#: Releases that an error names.
_NEAR: Final = 4
#: A release is numbers only: no candidate, milestone or snapshot. Some have a client's name before them.
_RELEASE: Final = re.compile(r"^(?:[\w-]+ )?\d+(?:\.\d+)+$")


@dataclass(frozen=True, slots=True)
class Chosen:
    """One version for a cell.

    Attributes:
        asked: stable over the nights; of ``>=2.14`` it says which minor version.
        version: what it is this time; empty = the default.
        written: as the file has it.
        place: among those that ``written`` stands for, from 0.
    """

    asked: str
    version: str
    written: str = ""
    place: int = 0


def is_open(asked: str) -> bool:
    """Whether it takes a package index to say which version that is."""
    return asked in (LATEST, LATEST_MINOR) or asked.startswith(">=")


def numbers(version: str) -> tuple[int, ...]:
    """``"2.14.0"`` -> ``(2, 14, 0)``; a client's name before it does not count."""
    return tuple(int(part) for part in re.findall(r"\d+", version.rpartition(" ")[2]))


def choose(asked: str, default: str, releases: Sequence[str]) -> list[Chosen]:
    """What an open version stands for.

    Args:
        default: the version that comes with brokerstorm; decides the major version of ``latest-minor``.
        releases: as the package index lists them, in any order; what is no release is passed over.

    Raises:
        UsageError: nothing released fits.
    """
    name = default.rpartition(" ")[0]
    known = [each for each in releases if _RELEASE.match(each) and each.rpartition(" ")[0] == name]
    ordered = sorted(set(known), key=numbers)
    if asked.startswith(">="):
        floor = numbers(asked)
        lines = {numbers(each)[:2]: each for each in ordered if numbers(each)[: len(floor)] >= floor}
        found = [
            Chosen(f"{asked} {'.'.join(map(str, line))}", each, asked, place)
            for place, (line, each) in enumerate(lines.items())
        ]
    else:
        major = numbers(default)[:1]
        fits = [each for each in ordered if asked == LATEST or numbers(each)[:1] == major]
        found = [Chosen(asked, fits[-1], asked)] if fits else []
    if not found:
        newest = f"the newest is {ordered[-1]}" if ordered else "none is released"
        raise UsageError(f"no release fits {asked}: {newest}")
    return found


def between(ends: tuple[str, str], releases: Sequence[str]) -> list[str]:
    """The releases from one end to the other, both included, the oldest first; candidates are left out
    unless they are an end.

    Args:
        releases: as the package index lists them, in any order.

    Raises:
        UsageError: an end is not released, or both are the same.
    """
    names = {end.rpartition(" ")[0] for end in ends}
    for end in ends:
        if end not in releases:
            near = ", ".join(_nearest(end, releases))
            raise UsageError(f"{end} is not released", hint=f"near it: {near}" if near else "")
    if len(names) > 1:
        raise UsageError(f"{ends[0]} and {ends[1]} are versions of two clients")
    low, high = sorted(ends, key=numbers)
    if low == high:
        raise UsageError(f"good and bad are both {low}", hint="name two releases")
    known = {each for each in releases if _RELEASE.match(each) and {each.rpartition(" ")[0]} == names}
    inside = [each for each in known if numbers(low) < numbers(each) < numbers(high)]
    return [low, *sorted(inside, key=numbers), high]


def _nearest(version: str, known: Sequence[str]) -> list[str]:
    """Releases near one that there is not, the oldest first."""
    same = [each for each in known if _RELEASE.match(each)]
    near = sorted(same, key=lambda each: _distance(numbers(each), numbers(version)))
    return sorted(near[:_NEAR], key=numbers)


class Releases:
    """Lists of released versions, kept in a folder of the cache.

    Args:
        offline: ask no index; use what an earlier plan has learned.
        tell: gets one line when an older list had to do.
    """

    def __init__(self, folder: Path, *, offline: bool = False, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._offline = offline
        self._tell = tell
        self._known: dict[str, list[str]] = {}

    def of(self, name: str, ask: Callable[[], list[str]]) -> list[str]:
        """The releases of a client or broker.

        Args:
            name: of the list, unique among all.
            ask: asks the index; raises `BrokerstormError`.

        Raises:
            EnvironmentNotReady: the index does not answer, and no earlier list is there.
        """
        if name not in self._known:
            self._known[name] = self._found(name, ask)
        return self._known[name]

    def lack(self, name: str, version: str, ask: Callable[[], list[str]]) -> list[str]:
        """Releases near one that does not exist; empty when it does, or when nobody can say.

        Args:
            name, ask: as of `of`.
        """
        kept, _ = _kept(self._path(name))
        if version in kept or not _RELEASE.match(version):
            return []
        try:
            known = self.of(name, ask)
        except BrokerstormError:
            return []
        return [] if version in known else _nearest(version, known)

    def _path(self, name: str) -> Path:
        return self._folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.json"

    def _found(self, name: str, ask: Callable[[], list[str]]) -> list[str]:
        path = self._path(name)
        kept, age_s = _kept(path)
        if kept and age_s < FRESH_S:
            return kept
        if self._offline:
            why = "--offline"
        else:
            try:
                listed = ask()
            except BrokerstormError as error:
                why = str(error)
            else:
                write_json(path, {"asked_s": time.time(), "versions": listed})
                return listed
        if kept:
            self._tell(f"versions of {name} are those of {age_s / 3600:.0f} h ago: {why}")
            return kept
        raise EnvironmentNotReady(
            f"the versions of {name} are not known: {why}",
            hint="name versions such as 1.2.0, or plan once while the package index can be reached",
        )


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    return [abs(a - b) for a, b in zip_longest(one, other, fillvalue=0)]


def _kept(path: Path) -> tuple[list[str], float]:
    """An earlier list and its age in seconds; none where there is no whole file."""
    try:
        document = json.loads(path.read_text())
        return [str(each) for each in document["versions"]], max(0.0, time.time() - document["asked_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return [], 0.0
