"""Damages files below a folder: flipped bits, zeros, a missing end."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.protocols.files import Damage, DamagedPlace, FileKind, kind_of

_BLOCK: Final = 64 * 1024
#: Bytes that are shown of a place.
_SHOWN: Final = 8


def damage_files(
    data: Path,
    kinds: Mapping[str, Sequence[str]],
    files: FileKind,
    damage: Damage,
    *,
    places: int,
    size_bytes: int,
    rng: random.Random,
) -> list[DamagedPlace]:
    """Damage files below a folder; see `harness.protocols.files.DamagesFiles.damage_files`.

    Args:
        kinds: by kind, patterns of paths below the folder; a file is of the first that has it.

    Raises:
        OSError: a file cannot be read or written.
    """
    used = {path: size for path in _files(data, kinds, files) if (size := used_bytes(path))}
    done = []
    for _ in range(places):
        if not used:
            break
        (path,) = rng.choices(list(used), list(used.values()))
        offset = (
            used[path] - min(size_bytes, used[path])
            if damage == "cut"
            else rng.randrange(used[path])
        )
        size = 1 if damage == "flip" else min(size_bytes, used[path] - offset)
        before, after = _write(path, damage, offset, size, rng)
        if before != after:  # zeros over zeros are not a damage
            place = DamagedPlace(
                str(path.relative_to(data)), offset, size, before.hex(), after.hex()
            )
            done.append(place)
        if damage == "cut":
            del used[path]
    return done


def _files(data: Path, kinds: Mapping[str, Sequence[str]], wanted: FileKind) -> list[Path]:
    found = (path for path in sorted(data.rglob("*")) if path.is_file() and not path.is_symlink())
    return [path for path in found if is_of(wanted, str(path.relative_to(data)), kinds)]


def is_of(wanted: FileKind, path: str, kinds: Mapping[str, Sequence[str]]) -> bool:
    """Whether a file is of a kind; what its node uses no more is of none."""
    kind = kind_of(path, kinds)
    return kind == wanted or (wanted == "any" and kind != "unused")


def patterns_of(wanted: FileKind, kinds: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Two regular expressions, the second one empty if nothing is excluded: a file is of a kind if
    its path below the data folder matches the first and not the second (see `is_of`).

    The syntax is common to Python and Go.
    """
    named = list(kinds)
    earlier = ["unused"] if wanted == "any" else named[: named.index(wanted)]
    of = ["*"] if wanted == "any" else kinds[wanted]
    excluded = [each for kind in earlier for each in kinds.get(kind, ())]
    return _any_of(of), _any_of(excluded) if excluded else ""


def _any_of(patterns: Iterable[str]) -> str:
    """A regular expression for whole paths that match one of the patterns, of text and ``*``."""
    each = (".*".join(re.escape(part) for part in one.split("*")) for one in patterns)
    return f"^(?:{'|'.join(each)})$"


def used_bytes(path: Path) -> int:
    """The size of a file without the zeros at its end: what was allocated and not yet written."""
    end = path.stat().st_size
    with path.open("rb") as file:
        while end > 0:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            if left := file.read(end - begin).rstrip(b"\0"):
                return begin + len(left)
            end = begin
    return 0


def _write(
    path: Path, damage: Damage, offset: int, size: int, rng: random.Random
) -> tuple[bytes, bytes]:
    """Damage a place; the bytes shown of it, before the damage, and as they are read after it."""
    shown = min(size, _SHOWN)
    with path.open("r+b") as file:
        file.seek(offset)
        before = file.read(shown)
        file.seek(offset)
        if damage == "cut":
            file.truncate(offset)
        else:
            file.write(
                bytes([before[0] ^ 1 << rng.randrange(8)]) if damage == "flip" else bytes(size)
            )
        file.flush()
        os.fsync(file.fileno())
        file.seek(offset)
        return before, file.read(shown)
