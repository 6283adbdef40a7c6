"""Versions as a suite asks for them, and what they resolve to: ``latest``, ``latest-minor``,
``>=2.14``.

A list of releases comes from the package index of a client or broker, by that index's own client
program, and is kept in the cache for an hour: planning again does not ask again. Where the index
does not answer, the list of an earlier day is used and told.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.clusters import spec_of
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError
from harness.rundir import write_json
from harness.toolchains import maven
from harness.toolchains.versions import RELEASE, numbers, others_hint
from harness.workers import is_released
from harness.workers import released as released_clients
from harness.workers.spec import WorkerSpec

FRESH_S: Final = 3600.0
#: Age from which a kept list that lacks a version does not prove that the version does not exist.
ASKED_AGAIN_S: Final = 60.0
DEFAULT: Final = "default"
LATEST: Final = "latest"
LATEST_MINOR: Final = "latest-minor"


@dataclass(frozen=True, slots=True)
class Chosen:
    """One version for a cell.

    Attributes:
        asked: stable over the nights; of ``>=2.14`` it says which minor version.
        version: what it is this time; empty = the default.
        written: as the file has it.
        place: among the ones that ``written`` means, from 0.
    """

    asked: str
    version: str
    written: str = ""
    place: int = 0


def is_open(asked: str) -> bool:
    """Whether it takes a package index to say which version that is."""
    return asked in (LATEST, LATEST_MINOR) or asked.startswith(">=")


def choose(asked: str, default: str, releases: Sequence[str]) -> list[Chosen]:
    """Return the versions that an open version selects.

    Args:
        default: the version that comes with brokerstorm; decides the major version of
            ``latest-minor``.
        releases: as the package index lists them, in any order; entries that are not releases are
            ignored.

    Raises:
        UsageError: nothing released fits.
    """
    name = default.rpartition(" ")[0]
    known = [each for each in releases if RELEASE.match(each) and each.rpartition(" ")[0] == name]
    ordered = sorted(set(known), key=numbers)
    if asked.startswith(">="):
        floor = numbers(asked)
        lines = {
            numbers(each)[:2]: each for each in ordered if numbers(each)[: len(floor)] >= floor
        }
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
    """The releases from one end to the other, both included, the oldest first; candidates are left
    out unless they are an end.

    Args:
        releases: as the package index lists them, in any order.

    Raises:
        UsageError: an end is not released, or both are the same.
    """
    names = {end.rpartition(" ")[0] for end in ends}
    for end in ends:
        if end not in releases:
            raise UsageError(f"{end} is not released", hint=others_hint(end, releases))
    if len(names) > 1:
        raise UsageError(f"{ends[0]} and {ends[1]} are versions of two clients")
    low, high = sorted(ends, key=numbers)
    if low == high:
        raise UsageError(f"--good and --bad are both {low}", hint="name two releases")
    known = {
        each for each in releases if RELEASE.match(each) and {each.rpartition(" ")[0]} == names
    }
    inside = [each for each in known if numbers(low) < numbers(each) < numbers(high)]
    return [low, *sorted(inside, key=numbers), high]


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

    def releases_of(self, name: str, ask: Callable[[], list[str]]) -> list[str]:
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

    def others(
        self, name: str, version: str, ask: Callable[[], list[str]], is_released: Callable[[], bool]
    ) -> str:
        """Name the releases that there are instead of one that does not exist.

        A kept list that lacks the version may be older than the version, so the index is asked
        again.

        Args:
            name, ask: as of `of`.
            is_released: asks the index for this version alone: its list may leave it out.

        Returns:
            Empty if the version exists.

        Raises:
            BrokerstormError: the version is in no earlier list, and the index does not answer.
        """
        if name not in self._known:
            kept, age_s = _kept(self._path(name))
            if version in kept:
                return ""
            if age_s >= ASKED_AGAIN_S:
                if self._offline:
                    raise EnvironmentNotReady(f"the versions of {name} are not known: --offline")
                kept = self._asked(name, ask)
            self._known[name] = kept
        known = self._known[name]
        if version not in known and is_released():
            known = self._known[name] = [*known, version]
            _, age_s = _kept(self._path(name))
            write_json(self._path(name), {"asked_s": time.time() - age_s, "versions": known})
        return "" if version in known else others_hint(version, known)

    def _asked(self, name: str, ask: Callable[[], list[str]]) -> list[str]:
        """Ask the index for its current list, and keep it.

        Raises:
            BrokerstormError: the index does not answer.
        """
        listed = ask()
        write_json(self._path(name), {"asked_s": time.time(), "versions": listed})
        return listed

    def _path(self, name: str) -> Path:
        return self._folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.json"

    def _found(self, name: str, ask: Callable[[], list[str]]) -> list[str]:
        kept, age_s = _kept(self._path(name))
        if kept and age_s < FRESH_S:
            return kept
        if self._offline:
            why = "--offline"
        else:
            try:
                return self._asked(name, ask)
            except BrokerstormError as error:
                why = str(error)
        if kept:
            self._tell(f"versions of {name} are those of {age_s / 3600:.0f} h ago: {why}")
            return kept
        raise EnvironmentNotReady(
            f"the versions of {name} are not known: {why}",
            hint="name versions such as 1.2.0, or plan once while the package index can be reached",
        )


def _kept(path: Path) -> tuple[list[str], float]:
    """An earlier list and its age in seconds; none without a whole file."""
    try:
        document = json.loads(path.read_text())
        return [str(each) for each in document["versions"]], max(
            0.0, time.time() - document["asked_s"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return [], math.inf


def other_clients(releases: Releases, worker: WorkerSpec, version: str) -> str:
    """Name the releases of a client that there are instead of a version that does not exist.

    Returns:
        Empty if the version exists.

    Raises:
        BrokerstormError: the package index is not known, or it does not answer.
    """
    client = version.rpartition(" ")[0]
    name = f"{worker.library} {client}".rstrip()
    number = version if client else version.removeprefix("v")
    return releases.others(
        name,
        number,
        lambda: released_clients(worker, version),
        lambda: is_released(worker, version),
    )


def choose_clients(releases: Releases, worker: WorkerSpec, asked: str) -> list[Chosen]:
    """Return the released versions of a client that an open version selects.

    Raises:
        UsageError: no release fits.
        EnvironmentNotReady: the package index does not answer, and no earlier list is there.
    """
    listed = releases.releases_of(worker.library, lambda: released_clients(worker))
    return choose(asked, worker.default_version, listed)


def released_brokers(system: str) -> list[str]:
    """Versions of the brokers of a system that its package index has, in no order.

    Raises:
        BrokerstormError: the index does not answer.
    """
    spec = spec_of(system)
    if spec.program:
        return spec.program.released()
    group, name, _ = spec.artifacts.title.split(":")
    return maven.released(group, name)


def other_brokers(releases: Releases, system: str, version: str) -> str:
    """Name the other releases of a system's brokers; see `other_clients`."""
    spec = spec_of(system, version)

    def is_released() -> bool:
        return (
            spec.program.is_released() if spec.program else maven.is_released(spec.artifacts.title)
        )

    return releases.others(
        f"{system} brokers", version, lambda: released_brokers(system), is_released
    )
