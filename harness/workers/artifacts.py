"""Says which files of a client library a worker ran from, by hash: a version is but a name."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from harness.toolchains.jars import resolved

_CLASSPATH = "-cp"
_DIGITS = 16


def artifact_of(argv: Sequence[str], library: str) -> str:
    """Return what a worker's command was made from, in a few words; empty if this is not known.

    Java: its jars, by names and contents. Python: the RECORD of the installed distribution, which
    holds the hash of every file of it, and which files are not as it says. Anything else: the
    program itself.
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
    """Return the digest of jars that the user brought; see `harness.toolchains.jars.resolved`."""
    jars = sorted(folder.glob("*.jar"))
    return (
        f"{len(jars)}, sha256 "
        f"{_hash(part for jar in jars for part in (jar.name.encode(), jar.read_bytes()))}"
    )


def _distribution(program: Path, library: str) -> str:
    """Beside brokerstorm, or in the environment of ``program``."""
    own = program.parent.parent.glob("lib/python*/site-packages")
    named = re.sub(r"[-_.]+", "[-_.]", library)
    records = [record for site in own for record in site.glob(f"{named}-[0-9]*.dist-info/RECORD")]
    text = records[0].read_text() if records else metadata.distribution(library).read_text("RECORD")
    if not text:
        return ""
    site = (
        records[0].parent.parent
        if records
        else Path(str(metadata.distribution(library).locate_file("")))
    )
    changed = changed_files(text, site)
    said = f"; not as it says: {changed[0]}, {len(changed)} in all" if changed else ""
    return f"RECORD, sha256 {_hash([text.encode()])}{said}"


def changed_files(record: str, site: Path) -> list[str]:
    """Files of an installed distribution that are missing or not as its RECORD says.

    Args:
        record: the text of its RECORD.
        site: folder that the paths in it are relative to.
    """
    changed = []
    for row in filter(None, csv.reader(io.StringIO(record))):
        name, digest = row[0], "".join(row[1:2])
        # compiled code and RECORD itself have none
        if len(row) > 1 and not digest.startswith("sha256="):
            continue
        try:
            found = hashlib.sha256((site / name).read_bytes()).digest()
        except OSError:
            found = b""
        if urlsafe_b64encode(found).rstrip(b"=").decode() != digest.removeprefix("sha256="):
            changed.append(name)
    return changed


def _hash(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:_DIGITS]
