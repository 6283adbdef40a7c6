"""Compares version numbers, and words which versions there are instead of one that does not
exist."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

#: Versions that an error names around the one that was asked for.
_NEAR: Final = 4
#: Numbers only: no candidate, milestone or snapshot. Some have a client's name before them.
RELEASE: Final = re.compile(r"^(?:[\w-]+ )?\d+(?:\.\d+)+$")


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers in a version, for comparing; a client's name before it does not count."""
    return tuple(int(part) for part in re.findall(r"\d+", version.rpartition(" ")[2]))


def nearest(version: str, known: Sequence[str], count: int = _NEAR) -> list[str]:
    """Return the known versions around one that is not known, in ascending order."""
    ordered = sorted(set(known), key=numbers)
    place = sum(numbers(each) < numbers(version) for each in ordered)
    first = max(0, min(place - count // 2, len(ordered) - count))
    return ordered[first : first + count]


def others_hint(version: str, known: Sequence[str]) -> str:
    """Return a hint with the versions near an unknown one, the newest, and how many more there are.

    Candidates and snapshots are left out unless nothing else was published. Empty if ``known`` is
    empty.
    """
    releases = {each for each in known if RELEASE.match(each)} or set(known)
    if not releases:
        return ""
    near = nearest(version, list(releases))
    newest = max(releases, key=numbers)
    text = f"the closest ones are {', '.join(near)}"
    if newest not in near:
        text += f"; the newest is {newest}"
    if more := len(releases - {*near, newest}):
        text += f"; {more} more"
    return text
