"""Decides which captures of earlier nights go, and why, and removes them. Verdicts and reports stay
longest.

A *capture* is what `analyze` and `trace` need: rows, logs of brokers and workers. Without it a turn
still has its result, its report and its manifest. What a sticky seed was found with is never
touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from experiments.folders import CAPTURE
from experiments.nights.model import Keep
from experiments.nights.night import NightDir, again

_CLUSTER: Final = "cluster"


@dataclass(frozen=True, slots=True)
class Removal:
    """A folder to remove; ``what`` and ``why`` are for people."""

    night: str
    path: Path
    size_bytes: int
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class _Removable:
    """The removable files of a turn or a night.

    Attributes:
        is_green: all of it passed.
        is_capture: the verdicts stay when it is gone.
    """

    night: NightDir
    age_s: float
    path: Path
    size_bytes: int
    is_green: bool
    is_capture: bool


def removals(
    nights: Sequence[NightDir], rule: Keep, protected: Sequence[Path], now: datetime
) -> list[Removal]:
    """Return what the rule removes, the oldest night first. Nights that have not ended keep
    everything.

    Args:
        protected: run folders that stay whole, whatever the rule says.
    """
    over = sorted((night for night in nights if night.is_over), key=lambda night: night.id)
    kept_whole = {path.resolve() for path in protected}
    parts = [part for night in over for part in _parts(night, kept_whole, now)]
    gone = [_removal(part, why) for part in parts if (why := _by_age(part, rule))]
    if rule.total_bytes is None:
        return gone
    excess = (
        sum(_size(night.root) for night in over)
        - rule.total_bytes
        - sum(one.size_bytes for one in gone)
    )
    taken = {one.path for one in gone}
    # Captures first, of green turns before others; then, from the oldest, whole turns with their
    # verdicts.
    rest = [part for part in parts if part.path not in taken]
    rest.sort(key=lambda part: (not part.is_capture, not part.is_green))
    for part in rest:
        if excess <= 0:
            break
        inside = [one for one in gone if part.path in one.path.parents]
        gone = [one for one in gone if one not in inside]
        gone.append(_removal(part, "all nights take more than keep.total"))
        excess -= part.size_bytes - sum(one.size_bytes for one in inside)
    return gone


def apply(gone: Sequence[Removal]) -> Iterator[str]:
    """Remove; yields a line for each night, and one for what could not be removed."""
    for night in dict.fromkeys(one.night for one in gone):
        mine = [one for one in gone if one.night == night]
        failed = []
        for one in mine:
            try:
                shutil.rmtree(one.path)
            except OSError as error:
                failed.append(f"{one.path}: {error.strerror or error}")
        size_mb = sum(one.size_bytes for one in mine) / 1e6
        whats = "; ".join(
            f"{sum(one.what == what for one in mine)} {what}" for what in _names(mine)
        )
        whys = ", ".join(dict.fromkeys(one.why for one in mine))
        yield f"{night}: removed {whats} ({size_mb:,.0f} MB): {whys}"
        yield from (f"could not remove {text}" for text in failed)


def _names(gone: Sequence[Removal]) -> list[str]:
    return list(dict.fromkeys(one.what for one in gone))


def _removal(part: _Removable, why: str) -> Removal:
    if part.path.name == _CLUSTER:
        what = "broker logs"
    else:
        what = f"{'capture' if part.is_capture else 'turn'} folders"
    return Removal(part.night.id, part.path, part.size_bytes, what, why)


def _by_age(part: _Removable, rule: Keep) -> str:
    """Why age removes it; empty = it stays."""
    if not part.is_capture:
        return ""
    limit_s = rule.green_s if part.is_green else rule.red_s
    if part.age_s < limit_s:
        return ""
    return "green: verdicts are kept" if part.is_green else f"red, older than {limit_s / 86400:g} d"


def _parts(night: NightDir, protected: set[Path], now: datetime) -> Iterator[_Removable]:
    """Everything of a night that may go."""
    state = night.load()
    age_s = (now - datetime.fromisoformat(state.started)).total_seconds()
    names = [turn.folder for turn in state.turns]
    green = {name for name, each in night.ended().items() if each.verdict == "pass"}
    for name in names:
        cut = sorted(night.root.glob(f"{name}*-cut-*"))
        for folder in (night.root / name, night.root / again(name), *cut):
            if folder.is_dir() and not _holds(folder, protected):
                for capture in _captures(folder):
                    yield _Removable(night, age_s, capture, _size(capture), name in green, True)
                yield _Removable(night, age_s, folder, _size(folder), name in green, False)
    logs = night.root / _CLUSTER
    if logs.is_dir() and not _holds(night.root, protected):
        yield _Removable(night, age_s, logs, _size(logs), len(green) == len(names), True)


def _holds(folder: Path, protected: set[Path]) -> bool:
    """Whether it is a protected run, or has one in it."""
    whole = folder.resolve()
    return any(path == whole or whole in path.parents for path in protected)


def _captures(folder: Path) -> Iterator[Path]:
    """Yield the captures of a run, or of the rounds of a campaign."""
    for run in (folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())):
        yield from (run / name for name in CAPTURE if (run / name).is_dir())


def _size(folder: Path) -> int:
    """Bytes on disk, as far as it can be read."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total
