"""Python workers: beside brokerstorm, or in a virtual environment that has another version of the client."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from filelock import FileLock, Timeout

from harness.errors import WorkerError
from harness.invocation import how_to_install
from harness.toolchains.cache import cache_folder
from harness.workers.spec import Readiness, WorkerSpec, installed_version

_VERSION = re.compile(r"^[0-9][0-9A-Za-z.!+_-]{0,40}$")
_MARKER = "complete"
BUILD_TIMEOUT_S = 300.0
LIST_TIMEOUT_S = 60.0
#: What Python workers share.
KIT = Path(__file__).parent / "python_kit"


def launch(
    worker: WorkerSpec, version: str, offline: bool, on_progress: object
) -> tuple[list[str], dict[str, str]]:
    """A Python worker beside brokerstorm where that has the asked version, else in an environment of its own.

    Raises:
        WorkerError: the version cannot be had (offline, no such version, pip failed).
    """
    wanted = version or worker.default_version
    if not wanted:
        raise WorkerError(
            f"client {worker.library} is not installed beside brokerstorm",
            hint=f"{how_to_install()}, name a client_version to fetch, or state a default under [python]",
        )
    python = sys.executable if is_beside(worker, wanted) else str(python_for(worker, wanted, offline=offline))
    # PYTHONSAFEPATH would hide the worker folder's own modules; the kit comes first, nothing else leaks in.
    paths = {"PYTHONPATH": str(KIT), "PYTHONSAFEPATH": ""}
    return [python, str(worker.folder / worker.entry)], paths


def readiness(worker: WorkerSpec, version: str) -> Readiness:
    """Whether the version is installed, or what will fetch it."""
    wanted = version or worker.default_version
    if not wanted:
        return Readiness(False, "not installed", how_to_install())
    if is_beside(worker, wanted) or is_built(worker, wanted):
        return Readiness(True, wanted)
    return Readiness(True, f"{wanted} not fetched yet; pip will", fetched=False)


def released(worker: WorkerSpec, version: str = "") -> list[str]:
    """Versions in the package index that this Python can install, in no order.

    Raises:
        WorkerError: pip does not tell.
    """
    command = [
        sys.executable, "-m", "pip", "index", "versions", worker.library,
        "--disable-pip-version-check", "--no-input",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIST_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorkerError(f"pip does not list the versions of {worker.library}: {error}") from error
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if listed is None:
        said = done.stderr.strip().splitlines() or ["no output"]
        raise WorkerError(f"pip does not list the versions of {worker.library}: {said[-1]}")
    return listed[1].split(", ")


def packages_of(worker: WorkerSpec, version: str) -> list[str]:
    """What pip is asked for."""
    return [
        text.format(version=version) for text in worker.python.packages or [f"{worker.library}=={{version}}"]
    ]


def is_beside(worker: WorkerSpec, version: str) -> bool:
    """Whether the environment that runs brokerstorm has all that the worker needs, at these versions."""
    pinned = [package.partition("==") for package in packages_of(worker, version)]
    return all(number and installed_version(name) == number for name, _, number in pinned)


def environments_folder() -> Path:
    """Where they are kept. May be deleted at any time."""
    return cache_folder() / "workers"


def environment_folder(worker: WorkerSpec, version: str) -> Path:
    """Where the environment of a version is, or would be: changes with what is installed in it."""
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    packages = " ".join(worker.python.packages)
    digest = f"-{hashlib.sha256(packages.encode()).hexdigest()[:8]}" if packages else ""
    return environments_folder() / f"{worker.library}-{version}-{python}{digest}"


def is_built(worker: WorkerSpec, version: str) -> bool:
    return (environment_folder(worker, version) / _MARKER).exists()


def python_for(worker: WorkerSpec, version: str, *, offline: bool = False) -> Path:
    """The interpreter of the environment that has the client at a version, built on first use.

    Processes that ask at once wait for one build. A build that was cut off is started anew.

    Raises:
        WorkerError: not a version, offline and not built, or pip could not install it.
    """
    library = worker.library
    if not _VERSION.match(version):
        raise WorkerError(f"{library}: client_version {version!r} is not a version", hint="write e.g. 2.8.0")
    folder = environment_folder(worker, version)
    python = folder / "bin" / "python"
    if is_built(worker, version):
        return python
    if offline:
        raise WorkerError(
            f"{library} {version} is not in the cache and --offline forbids fetching it",
            hint="run once without --offline, or `brokerstorm fetch` the scenario",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{folder}.lock", timeout=BUILD_TIMEOUT_S):
            if not is_built(worker, version):
                _build(worker, version, folder)
    except Timeout as error:
        raise WorkerError(f"{library} {version}: another process is still installing it") from error
    return python


def _build(worker: WorkerSpec, version: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise WorkerError(f"cannot make a virtual environment in {folder}: {error}") from error
    packages = packages_of(worker, version)
    command = [
        str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet",
        "--disable-pip-version-check", "--no-input", "--prefer-binary", *packages,
    ]  # fmt: skip
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise WorkerError(f"pip install {' '.join(packages)} took over {BUILD_TIMEOUT_S:.0f} s") from error
    if result.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise _pip_error(worker.library, version, result.stderr)
    (folder / _MARKER).write_text(" ".join(packages) + "\n")


def _pip_error(library: str, version: str, stderr: str) -> WorkerError:
    """One line out of pip's many, and the versions there are for this Python."""
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR")]
    if any("No matching distribution" in line for line in errors):
        listed = re.search(r"\(from versions: ([^)]+)\)", stderr)
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        return WorkerError(
            f"{library} has no version {version} for {python}",
            hint=f"there is: {listed[1]}"
            if listed and listed[1] != "none"
            else "is the package index reachable?",
        )
    why = errors[-1] if errors else stderr.strip()[-300:]
    return WorkerError(f"pip could not install {library}=={version}: {why}")
