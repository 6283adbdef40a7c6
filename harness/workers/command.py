"""Workers in a language without a toolchain of ours: started by a command, made by another one if
need be.

``[other]`` of a ``worker.toml``: ``default`` (version), ``command`` and ``build``. In both,
``{folder}`` is the worker's folder, ``{version}`` the asked version of the client, and ``{build}``
a folder in the cache for this version and these sources: ``build`` is run in it, once, and what it
leaves there is kept. A build of the user's is made by ``build_own``, where ``{source}`` is a copy
of it. ``released`` lists the versions that there are.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from harness.errors import UsageError, WorkerError
from harness.toolchains.cache import cache_folder
from harness.toolchains.own_builds import (
    AskedBuild,
    OwnBuild,
    failed_build,
    in_words,
    own_build,
    pinned_source,
)
from harness.workers.spec import FILE, CommandBuild, Readiness, WorkerSpec

BUILD_TIMEOUT_S, LIST_TIMEOUT_S = 600.0, 60.0
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
    if (build.build or own_build(wanted)) and not (made / _MARKER).exists():
        if offline:
            raise WorkerError(
                f"{worker.library} {wanted} is not in the cache and --offline forbids building it",
                hint="run once without --offline, or `brokerstorm fetch` the scenario",
            )
        on_progress(f"building {worker.library} {in_words(wanted)}, once", None)
        _build_once(worker, wanted, made)
        on_progress(f"{worker.library} {in_words(wanted)} built", 1.0)
    return _filled(worker, wanted, build.command), {}


def readiness(worker: WorkerSpec, version: str) -> Readiness:
    """Whether the programs are there, and whether the worker is built yet."""
    wanted, build = _wanted(worker, version), _build_of(worker)
    making = build.build_own if own_build(wanted) else build.build
    built = not making or (build_folder(worker, wanted) / _MARKER).exists()
    first = [build.command[0], *([] if built else making[:1])]
    needed = _filled(worker, wanted, [word for word in first if built or "{build}" not in word])
    missing = ", ".join(program for program in needed if shutil.which(program) is None)
    if missing:
        return Readiness(False, f"needs {missing}", f"install {missing}")
    shown = in_words(wanted)
    text = shown if built else f"{shown}, to be built on first use"
    return Readiness(True, text, fetched=built or bool(own_build(wanted)))


def build_folder(worker: WorkerSpec, version: str) -> Path:
    """Where what the build makes is kept, or would be: changes with every file of the worker's
    folder."""
    build, own = _build_of(worker), own_build(version)
    digest = hashlib.sha256("\0".join(build.build_own if own else build.build).encode())
    for path in _sources(worker.folder):
        digest.update(f"{path.relative_to(worker.folder)}\0".encode())
        digest.update(path.read_bytes())
    version = f"{own.number}-own-{own.key}" if own else version
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
    if not own_build(wanted) and not _VERSION.match(wanted):
        raise UsageError(
            f"{worker.library}: client_version {version!r} is not a version",
            hint=f"write e.g. {worker.default_version}",
        )
    return wanted


def _filled(worker: WorkerSpec, version: str, words: list[str], source: Path = Path()) -> list[str]:
    own = own_build(version)
    places = {
        "{folder}": worker.folder,
        "{version}": own.number if own else version,
        "{build}": build_folder(worker, version),
        "{source}": source,
    }
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
            try:
                _build(worker, version, folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            (folder / _MARKER).touch()
    except Timeout as error:
        raise WorkerError(
            f"{worker.library} {version}: another process is still building it"
        ) from error
    except OSError as error:
        raise WorkerError(
            f"cannot build {worker.library} in {folder}: {error.strerror or error}"
        ) from error


def _build(worker: WorkerSpec, version: str, folder: Path) -> None:
    own, build = own_build(version), _build_of(worker)
    with tempfile.TemporaryDirectory(prefix="brokerstorm-build-") as work:
        source = own.copy(Path(work) / "source") if own else Path()
        command = _filled(worker, version, build.build_own if own else build.build, source)
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise WorkerError(
                f"{worker.library}: {command[0]} took over {BUILD_TIMEOUT_S:.0f} s"
            ) from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1][:300]
        ended = f"{command[0]} ended with {done.returncode}: {said}"
        if own:
            output = f"{done.stdout}\n{done.stderr}"
            raise failed_build(f"{worker.library} {own.label}", folder.name, ended, output)
        raise WorkerError(f"{worker.library} {version} does not build: {ended}")


def pinned(worker: WorkerSpec, asked: AskedBuild) -> OwnBuild:
    """A folder, a file or a git checkout that ``build_own`` makes a client of.

    Raises:
        UsageError: the worker has no such command.
        EnvironmentNotReady: git cannot be asked.
    """
    if not _build_of(worker).build_own:
        raise UsageError(
            f"{worker.library}: its worker cannot take a client from {asked.path}",
            hint=f"{worker.folder / FILE} would say how: build_own under [other]",
        )
    return pinned_source(asked)


def released(worker: WorkerSpec, version: str = "") -> list[str]:
    """Versions that the worker's own command names, in no order.

    Raises:
        WorkerError: it has no such command, or that does not tell.
    """
    command = _build_of(worker).released
    if not command:
        raise WorkerError(
            f"no package index is known for {worker.library}",
            hint="name its versions, such as 1.2.0",
        )
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, timeout=LIST_TIMEOUT_S, check=True
        )
        found = json.loads(told.stdout)
    except subprocess.TimeoutExpired as error:
        raise WorkerError(
            f"{command[0]} does not list the versions of {worker.library} within "
            f"{LIST_TIMEOUT_S:.0f} s"
        ) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1][:300]
        raise WorkerError(
            f"{command[0]} does not list the versions of {worker.library}: {said}"
        ) from error
    except (OSError, ValueError) as error:
        raise WorkerError(
            f"{command[0]} does not list the versions of {worker.library}: {error}"
        ) from error
    return [str(each) for each in found]
