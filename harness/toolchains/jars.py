"""Broker jars from Maven coordinates, in a cache addressed by what was asked and by what that
resolved to.

Maven resolves (`harness.toolchains.maven`). A folder in the cache appears by one rename when it is
whole: a killed download leaves only a ``.part`` folder, which the next one removes. Its marker
holds the name and hash of every jar, and its name a digest of them: what is made from a folder is
kept under its name, and never meets the jars of another resolution.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path, PurePosixPath

from filelock import FileLock, Timeout

from harness.errors import EnvironmentNotReady
from harness.toolchains import maven
from harness.toolchains.cache import cache_folder
from harness.toolchains.coordinates import Artifacts
from harness.toolchains.own_builds import OwnBuild

Progress = Callable[[str, float | None], None]
_MARKER = "complete.json"


def jars_folder(wanted: Artifacts) -> Path:
    """Where the jars of these coordinates are, those resolved last; before that, how its name
    begins."""
    asked = _asked(wanted)
    # Without the digest of what was resolved: a folder of an earlier version of ours.
    found = [
        folder for folder in (asked, *asked.parent.glob(f"{asked.name}-*")) if is_complete(folder)
    ]
    return max(found, key=lambda folder: (folder / _MARKER).stat().st_mtime_ns, default=asked)


def _asked(wanted: Artifacts) -> Path:
    asked = [*sorted(wanted.coordinates), *(f"!{module}" for module in sorted(wanted.exclude))]
    asked += [wanted.archive] if wanted.archive else []
    asked += [f"managed {wanted.managed}"] if wanted.managed else []
    asked += [f"own {wanted.own.digest}"] if wanted.own else []
    digest = hashlib.sha256("\n".join(asked).encode()).hexdigest()[:12]
    _, artifact, version = wanted.title.split(":")
    return cache_folder() / "jars" / f"{artifact}-{version}-{digest}"


def is_complete(folder: Path) -> bool:
    """Whether a cached folder is whole: its marker is there and so is every file that the marker
    lists."""
    try:
        marker = json.loads((folder / _MARKER).read_text())
        names = marker["files"]
    except (OSError, ValueError, KeyError):
        return False
    # What Ivy resolved, as earlier versions of ours did, are other jars than Maven's.
    return (
        bool(names)
        and marker.get("resolver") != "ivy"
        and all((folder / name).is_file() for name in names)
    )


def changed_jars(folder: Path) -> list[str]:
    """Names of jars of a cached folder that are not as they were fetched: changed, missing or added
    since."""
    try:
        fetched = json.loads((folder / _MARKER).read_text())["files"]
        found = _hashes(folder)
    except (OSError, ValueError, KeyError):
        return [_MARKER]
    if isinstance(fetched, list):  # of an earlier version of ours, which noted no hashes
        fetched = {name: found.get(name, "") for name in fetched}
    return sorted(name for name in {*fetched, *found} if fetched.get(name) != found.get(name))


def resolved(folder: Path) -> str:
    """The jars of a cached folder as they are now in a few words: how many, and a digest of their
    names and contents; empty for a folder that is not of the cache."""
    try:
        if not (folder / _MARKER).exists():
            return ""
        files = _hashes(folder)
    except OSError:
        return ""
    return f"{len(files)}, sha256 {_digest(files)[:16]}"


def _digest(files: Mapping[str, str]) -> str:
    """Return the digest of names and hashes of jars."""
    listed = "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(listed.encode()).hexdigest()


def resolve(
    wanted: Artifacts, *, offline: bool = False, on_progress: Progress | None = None
) -> Path:
    """A folder with the jars of the coordinates and all they need at run time.

    Args:
        offline: use the cache only.
        on_progress: called with a text and the share done (None: not known).

    Jars of the cache are compared with what was fetched; those that changed are fetched again.

    Raises:
        EnvironmentNotReady: not in the cache and offline, changed in the cache and offline, no
            network, no resolver, disk full.
        UsageError: a version that the repository does not have.
    """
    folder = jars_folder(wanted)
    changed = changed_jars(folder) if is_complete(folder) else []
    if is_complete(folder) and not changed:
        return folder
    if changed and offline:
        raise EnvironmentNotReady(
            f"{folder / changed[0]} is not as it was fetched",
            hint=f"rm -r {shlex.quote(str(folder))}",
        )
    if offline and not wanted.jars:
        raise EnvironmentNotReady(
            f"{wanted.title} is not in the cache ({folder.parent})",
            hint="run once without --offline, or run `brokerstorm fetch`",
        )
    report = on_progress or (lambda text, share: None)
    try:
        with _locked(_asked(wanted), report):
            folder = jars_folder(wanted)
            if is_complete(folder) and (changed := changed_jars(folder)):
                report(f"{folder / changed[0]} is not as it was fetched: fetching it again", None)
                shutil.rmtree(folder)
            if not is_complete(folder):
                folder = _fetch(wanted, _asked(wanted), report)
    except OSError as error:
        raise EnvironmentNotReady(
            f"cannot write to the cache {cache_folder()}: {error.strerror or error}",
            hint="free some space or set BROKERSTORM_CACHE to a folder on another disk",
        ) from error
    return folder


@contextmanager
def _locked(folder: Path, report: Progress) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report("another process is downloading the same jars; waiting", None)
        try:
            lock.acquire(timeout=maven.TIMEOUT_S)
        except Timeout:
            raise EnvironmentNotReady(
                f"another process has held {lock.lock_file} for {maven.TIMEOUT_S:.0f} s",
                hint="see which with `fuser`, end it and try again",
            ) from None
    try:
        yield
    finally:
        lock.release()


def _fetch(wanted: Artifacts, asked: Path, report: Progress) -> Path:
    """The folder that was made; ``asked``: the beginning of its name."""
    for stale in asked.parent.glob(f"{asked.name}.part-*"):
        shutil.rmtree(stale, ignore_errors=True)
    part = Path(tempfile.mkdtemp(dir=asked.parent, prefix=f"{asked.name}.part-"))
    try:
        resolver = _gather(wanted, part, report)
        files = _hashes(part)
        if not files:
            raise EnvironmentNotReady(f"{resolver} found no jars for {wanted.title}")
        if wanted.jars and wanted.own and not _digest(files).startswith(wanted.own.digest):
            raise EnvironmentNotReady(
                f"the jars in {wanted.jars} have changed since the command began",
                hint="repeat the command to use the new ones",
            )
        marker = {**asdict(wanted), "resolver": resolver, "files": files}
        (part / _MARKER).write_text(json.dumps(marker, indent=1, default=str))
        folder = asked.with_name(f"{asked.name}-{_digest(files)[:12]}")
        if folder.exists():  # it lost files
            shutil.rmtree(folder)
        part.chmod(0o755)
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    report(f"{wanted.title}: {len(files)} jars", 1.0)
    return folder


def _gather(wanted: Artifacts, part: Path, report: Progress) -> str:
    """Put the jars into ``part``; by whom."""
    if wanted.jars:
        report(f"copying {wanted.jars}", None)
        for jar in wanted.jars.glob("*.jar"):
            shutil.copy2(jar, part / jar.name)
        return str(wanted.jars)
    resolver = maven.find_maven()
    report(f"resolving {wanted.title} with {resolver.name}", None)
    if wanted.archive:
        archive = resolver.fetch_archive(wanted, part, lambda text: report(text, None))
        report(f"unpacking {archive.name}", None)
        _unpack(archive, part)
    else:
        resolver.fetch(wanted, part, lambda text: report(text, None))
    return resolver.name


def pinned_jars(path: Path, jars: Path, number: str) -> OwnBuild:
    """The jars of a folder as they are now, as a build of the user's that is at ``path``."""
    return OwnBuild(path, "", _digest(_hashes(jars))[:16], number)


def _hashes(folder: Path) -> dict[str, str]:
    return {path.name: _sha256(path) for path in sorted(folder.glob("*.jar"))}


def _unpack(archive: Path, target: Path) -> None:
    """The jars of a distribution's ``lib`` folder into ``target``; the archive is deleted."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                jar = path.suffix == ".jar" and path.parent.name == "lib" and len(path.parts) == 3
                content = tar.extractfile(member) if jar and member.isfile() else None
                if content:
                    with content, (target / path.name).open("wb") as file:
                        shutil.copyfileobj(content, file)
    except tarfile.TarError as error:
        raise EnvironmentNotReady(
            f"{archive.name} is damaged: {error}", hint="try again"
        ) from error
    archive.unlink()


def _sha256(path: Path) -> str:
    found = path.stat()
    return _sha256_of(path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=4096)
def _sha256_of(path: Path, *identity: int) -> str:
    """A run asks several times for the hashes of some hundred megabytes; ``identity``: what changes
    when the file does."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
