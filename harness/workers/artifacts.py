"""Says which files of a client library a worker ran from, by hash: a version is but a name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from harness.toolchains.jars import resolved

_CLASSPATH = "-cp"
_DIGITS = 16


def artifact_of(argv: Sequence[str], library: str) -> str:
    """What the command of a worker was made of, in a few words; empty where it cannot be told.

    Java: its jars, by names and contents. Python: the RECORD of the installed distribution, which holds the
    hash of every file of it. Anything else: the program itself.
    """
    try:
        if _CLASSPATH in argv:
            return _jars(argv[argv.index(_CLASSPATH) + 1].split(":"))
        program = Path(argv[0])
        if program.name.startswith("python"):
            return _distribution(program, library)
        return f"program, sha256 {_hash([program.read_bytes()])}"
    except (OSError, IndexError, metadata.PackageNotFoundError):
        return ""


def _jars(classpath: Iterable[str]) -> str:
    for entry in classpath:
        if entry.endswith("/*"):
            folder = Path(entry.removesuffix("/*"))
            return f"jars: {resolved(folder) or _folder(folder)}"
    return ""


def _folder(folder: Path) -> str:
    """As `harness.toolchains.jars.resolved`, of jars that the user brought."""
    jars = sorted(folder.glob("*.jar"))
    return (
        f"{len(jars)}, sha256 {_hash(part for jar in jars for part in (jar.name.encode(), jar.read_bytes()))}"
    )


def _distribution(program: Path, library: str) -> str:
    """Beside brokerstorm, or in the environment of ``program``."""
    own = program.parent.parent.glob("lib/python*/site-packages")
    named = re.sub(r"[-_.]+", "[-_.]", library)
    records = [record for site in own for record in site.glob(f"{named}-[0-9]*.dist-info/RECORD")]
    text = records[0].read_text() if records else metadata.distribution(library).read_text("RECORD")
    return f"RECORD, sha256 {_hash([text.encode()])}" if text else ""


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:_DIGITS]
