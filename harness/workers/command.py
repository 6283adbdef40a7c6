"""Workers in a language without a toolchain of ours: started by a command, made by another one if need be.

``[other]`` of a ``worker.toml``: ``default`` (version), ``command`` and ``build``. In both, ``{folder}`` is
the worker's folder, ``{version}`` the asked version of the client, and ``{build}`` a folder in the cache for
this version and these sources: ``build`` is run in it, once, and what it leaves there is kept.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from harness.errors import UsageError, WorkerError
from harness.toolchains.cache import cache_folder
from harness.workers.spec import CommandBuild, Readiness, WorkerSpec

BUILD_TIMEOUT_S = 600.0
_VERSION = re.compile(r"^[0-9A-Za-z][0-9A-Za-z.+_-]{0,60}$")
_MARKER = ".complete"
Progress = Callable[[str, float | None], None]


def launch(
    worker: WorkerSpec, version: str, offline: bool, on_progress: Progress
) -> tuple[list[str], dict[str, str]]:
    """The command of the worker; builds on first use.

    Raises:
        UsageError: not a version.
        WorkerError: offline and not built, or the build failed.
    """
    wanted, build = _wanted(worker, version), _build_of(worker)
    made = build_folder(worker, wanted)
    if build.build and not (made / _MARKER).exists():
        if offline:
            raise WorkerError(
                f"{worker.library} {wanted} is not in the cache and --offline forbids building it",
                hint="run once without --offline, or `brokerstorm fetch` the scenario",
            )
        on_progress(f"building {worker.library} {wanted}, once", None)
        _build_once(worker, wanted, made)
        on_progress(f"{worker.library} {wanted} built", 1.0)
    return _filled(worker, wanted, build.command), {}


def readiness(worker: WorkerSpec, version: str) -> Readiness:
    """Whether the programs are there, and whether the worker is built yet."""
    try:
        wanted, build = _wanted(worker, version), _build_of(worker)
    except UsageError as error:
        return Readiness(False, str(error), error.hint)
    built = not build.build or (build_folder(worker, wanted) / _MARKER).exists()
    first = [build.command[0], *([] if built else build.build[:1])]
    needed = _filled(worker, wanted, [word for word in first if built or "{build}" not in word])
    missing = ", ".join(program for program in needed if shutil.which(program) is None)
    if missing:
        return Readiness(False, f"needs {missing}", f"install {missing}")
    return Readiness(True, wanted if built else f"{wanted}, to be built on first use")


def build_folder(worker: WorkerSpec, version: str) -> Path:
    """Where what the build makes is kept, or would be: changes with every file of the worker's folder."""
    digest = hashlib.sha256("\0".join(_build_of(worker).build).encode())
    for path in _sources(worker.folder):
        digest.update(f"{path.relative_to(worker.folder)}\0".encode())
        digest.update(path.read_bytes())
    return cache_folder() / "workers" / f"{worker.library}-{version}-{digest.hexdigest()[:12]}"


def _sources(folder: Path) -> Iterator[Path]:
    """Every file but hidden ones, in a fixed order."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _build_of(worker: WorkerSpec) -> CommandBuild:
    assert worker.other is not None  # `WorkerSpec` sees to it
    return worker.other


def _wanted(worker: WorkerSpec, version: str) -> str:
    wanted = version.strip() or worker.default_version
    if not _VERSION.match(wanted):
        raise UsageError(
            f"{worker.library}: client_version {version!r} is not a version",
            hint=f"write e.g. {worker.default_version}",
        )
    return wanted


def _filled(worker: WorkerSpec, version: str, words: list[str]) -> list[str]:
    places = {"{folder}": worker.folder, "{version}": version, "{build}": build_folder(worker, version)}
    filled = []
    for word in words:
        for place, value in places.items():
            word = word.replace(place, str(value))
        filled.append(word)
    return filled


def _build_once(worker: WorkerSpec, version: str, folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock", timeout=BUILD_TIMEOUT_S):
            if (folder / _MARKER).exists():
                return
            shutil.rmtree(folder, ignore_errors=True)  # of a build that was cut off
            folder.mkdir()
            _build(worker, version, folder)
            (folder / _MARKER).touch()
    except Timeout as error:
        raise WorkerError(f"{worker.library} {version}: another process is still building it") from error
    except OSError as error:
        raise WorkerError(f"cannot build {worker.library} in {folder}: {error.strerror or error}") from error


def _build(worker: WorkerSpec, version: str, folder: Path) -> None:
    command = _filled(worker, version, _build_of(worker).build)
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise WorkerError(f"{worker.library}: {command[0]} took over {BUILD_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1][:300]
        raise WorkerError(
            f"{worker.library} {version} does not build: {command[0]} ended with {done.returncode}: {said}"
        )


def released(worker: WorkerSpec, version: str = "") -> list[str]:
    """Nobody knows where a command's client is published.

    Raises:
        WorkerError: always.
    """
    raise WorkerError(
        f"no package index is known for {worker.library}", hint="name its versions, such as 1.2.0"
    )
