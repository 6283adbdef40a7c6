"""Python workers: next to brokerstorm, or in a virtual environment that has another version of the
client."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from harness.errors import UsageError, WorkerError
from harness.invocation import how_to_install
from harness.toolchains.cache import cache_folder
from harness.toolchains.own_builds import (
    AskedBuild,
    OwnBuild,
    failed_build,
    in_words,
    own_build,
    pinned_source,
)
from harness.toolchains.versions import others_hint
from harness.workers.artifacts import changed_files
from harness.workers.spec import PROGRAMS, Readiness, WorkerSpec, installed_version

_VERSION = re.compile(r"^[0-9][0-9A-Za-z.!+_-]{0,40}$")
_MARKER = "complete"
BUILD_TIMEOUT_S = 300.0
#: Files that pip takes besides a folder.
_FILES = (".whl", ".tar.gz", ".zip")
LIST_TIMEOUT_S = 60.0
#: What Python workers share.
KIT = PROGRAMS / "python_kit"


def launch(
    worker: WorkerSpec, version: str, offline: bool, on_progress: object
) -> tuple[list[str], dict[str, str]]:
    """A Python worker in brokerstorm's own environment where that has the asked version, else in an
    environment of its own.

    Raises:
        WorkerError: the version is not available (offline, no such version, pip failed).
    """
    wanted = version or worker.default_version
    if not wanted:
        raise WorkerError(
            f"client {worker.library} is not installed next to brokerstorm",
            hint=f"{how_to_install()}, name a client_version to fetch, or state a default under [python]",
        )
    python = (
        sys.executable
        if is_beside(worker, wanted)
        else str(python_for(worker, wanted, offline=offline))
    )
    # PYTHONSAFEPATH would hide the worker folder's own modules; the kit comes first, nothing else
    # leaks in.
    paths = {"PYTHONPATH": str(KIT), "PYTHONSAFEPATH": ""}
    return [python, str(worker.folder / worker.entry)], paths


def readiness(worker: WorkerSpec, version: str) -> Readiness:
    """Whether the version is installed, or what will fetch it."""
    wanted = version or worker.default_version
    if not wanted:
        return Readiness(False, "not installed", how_to_install())
    if is_beside(worker, wanted) or is_built(worker, wanted):
        return Readiness(True, in_words(wanted))
    if own := own_build(wanted):
        return Readiness(True, f"{own.label}, to be built on first use")
    _require_version(worker, wanted)
    return Readiness(True, f"{wanted} not fetched yet; pip will", fetched=False)


def released(worker: WorkerSpec, version: str = "") -> list[str]:
    """Versions in the package index that this Python can install, in no order.

    Raises:
        WorkerError: pip does not tell.
    """
    command = [
        sys.executable, "-m", "pip", "index", "versions", _client_package(worker), "--pre",
        "--disable-pip-version-check", "--no-input",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIST_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise WorkerError(
            f"pip does not list the versions of {worker.library} within {LIST_TIMEOUT_S:.0f} s",
            hint="check the network or proxy",
        ) from error
    except OSError as error:
        raise WorkerError(f"pip does not list the versions of {worker.library}: {error}") from error
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if listed is None:
        said = done.stderr.strip().splitlines() or ["no output"]
        raise WorkerError(f"pip does not list the versions of {worker.library}: {said[-1]}")
    return listed[1].split(", ")


def _client_package(worker: WorkerSpec) -> str:
    """Name of the package that has the versions of the client: the one that ``packages`` asks for
    at ``{version}``; it may differ from the name of the worker."""
    for text in worker.python.packages:
        name, _, asked = text.partition("==")
        if "{version}" in asked:
            return name.partition("[")[0].strip()
    return worker.library


def pinned(worker: WorkerSpec, asked: AskedBuild) -> OwnBuild:
    """A wheel, an archive of sources, a folder of sources or a git checkout of the client.

    Raises:
        UsageError: no Python project, or another package's.
        EnvironmentNotReady: git cannot be asked.
    """
    build = pinned_source(asked)
    if build.path.is_file():
        name = re.split(r"-\d", build.path.name)[0]
        if not build.path.name.endswith(_FILES):
            raise UsageError(
                f"{build.path} is nothing that pip installs",
                hint=f"name a folder or *{', *'.join(_FILES)}",
            )
        _refuse_another(worker, build, name)
        return build
    project = build.text("pyproject.toml")
    if project is None and build.text("setup.py") is None:
        raise UsageError(
            f"{build.path} is not a Python project: no pyproject.toml and no setup.py there",
            hint=f"name the folder of {worker.library} that has it, or a wheel",
        )
    try:
        table = tomllib.loads(project or "").get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{build.path / 'pyproject.toml'}: not valid TOML: {error}") from error
    _refuse_another(worker, build, str(table.get("name", worker.library)))
    # A tag names the last release; what the project says of itself is nearer.
    number = asked.number or str(table.get("version", build.number))
    return OwnBuild(build.path, build.commit, build.digest, number)


def _refuse_another(worker: WorkerSpec, build: OwnBuild, name: str) -> None:
    if _normal(name) != _normal(worker.library):
        raise UsageError(f"{build.path} is {name}, not {worker.library}")


def _normal(name: str) -> str:
    """Return the form of a package's name that an index uses, for names that it treats as the
    same."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages_of(worker: WorkerSpec, version: str, source: Path | None = None) -> list[str]:
    """Return the packages that pip installs; ``source`` replaces the released client."""
    packages = worker.python.packages or [f"{worker.library}=={{version}}"]
    released = [
        text.format(version=version)
        for text in packages
        if source is None or "{version}" not in text
    ]
    return [str(source), *released] if source else released


def is_beside(worker: WorkerSpec, version: str) -> bool:
    """Whether the environment that runs brokerstorm has all that the worker needs, at these
    versions."""
    wanted = [package.partition("==") for package in packages_of(worker, version)]
    return all(number and installed_version(name) == number for name, _, number in wanted)


def has_package(worker: WorkerSpec, version: str, package: str) -> bool:
    """Whether the environment in which the worker runs has a package, or will have it when it is
    built."""
    if is_beside(worker, version):
        return bool(installed_version(package))
    return package in {
        text.partition("==")[0].partition("[")[0] for text in packages_of(worker, version)
    }


def environments_folder() -> Path:
    """Where they are kept. May be deleted at any time."""
    return cache_folder() / "workers"


def environment_folder(worker: WorkerSpec, version: str) -> Path:
    """Where the environment of a version is, or would be: changes with what is installed in it."""
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    packages = " ".join(worker.python.packages)
    if own := own_build(version):
        version = f"{own.number}-own-{own.key}"
    digest = f"-{hashlib.sha256(packages.encode()).hexdigest()[:8]}" if packages else ""
    return environments_folder() / f"{worker.library}-{version}-{python}{digest}"


def is_built(worker: WorkerSpec, version: str) -> bool:
    return (environment_folder(worker, version) / _MARKER).exists()


def _require_version(worker: WorkerSpec, version: str) -> None:
    """Raises: UsageError: the text could be a path or an option of pip."""
    if not _VERSION.match(version):
        raise UsageError(
            f"{worker.library}: client_version {version!r} is not a version",
            hint=f"write e.g. {worker.default_version or '2.8.0'}",
        )


def python_for(worker: WorkerSpec, version: str, *, offline: bool = False) -> Path:
    """The interpreter of the environment that has the client at a version, built on first use.

    Processes that ask at once wait for one build. A build that was interrupted starts from the
    beginning.

    Raises:
        UsageError: not a version.
        WorkerError: offline and not built, or pip could not install it.
    """
    library = worker.library
    if not own_build(version):
        _require_version(worker, version)
    folder = environment_folder(worker, version)
    return _environment(
        folder, f"{library} {version}", lambda: _fill(worker, version, folder), offline=offline
    )


def python_with(packages: Sequence[str], *, offline: bool = False) -> Path:
    """The interpreter of an environment that has some packages (``NAME==VERSION``), built on first
    use. Raises as `python_for`.
    """
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:16]
    folder = environments_folder() / f"packages-{python}-{digest}"

    def fill() -> None:
        venv.create(folder, with_pip=True)
        result = _pip_install(folder, packages, "--quiet")
        if result.returncode:
            said = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
            why = (said or result.stderr.splitlines() or ["pip said nothing"])[-1][:300]
            raise WorkerError(f"pip could not install {' '.join(packages)}: {why}")

    return _environment(folder, " ".join(packages), fill, offline=offline)


def _environment(folder: Path, name: str, fill: Callable[[], None], *, offline: bool) -> Path:
    """The interpreter of an environment; ``fill`` makes it where it is missing or was changed."""
    python = folder / "bin" / "python"
    is_there = (folder / _MARKER).exists()
    changed = _changed(folder) if is_there else ""
    if is_there and not changed:
        return python
    if changed and offline:
        raise WorkerError(
            f"{changed} is not as it was installed, and --offline forbids installing it again",
            hint=f"rm -r {shlex.quote(str(folder))}",
        )
    if offline:
        raise WorkerError(
            f"{name} is not in the cache and --offline forbids fetching it",
            hint="run once without --offline, or `brokerstorm fetch` the scenario",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{folder}.lock", timeout=BUILD_TIMEOUT_S):
            if not (folder / _MARKER).exists() or _changed(folder):
                _build(folder, name, fill)
    except Timeout as error:
        raise WorkerError(f"{name}: another process is still installing it") from error
    return python


def _changed(folder: Path) -> str:
    """A file of an environment that is not as it was installed; empty where there is none."""
    for record in sorted(folder.glob("lib/python*/site-packages/*.dist-info/RECORD")):
        site = record.parent.parent
        if changed := changed_files(record.read_text(), site):
            return str(site / changed[0])
    return ""


def _build(folder: Path, name: str, fill: Callable[[], None]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        fill()
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise WorkerError(f"cannot make a virtual environment in {folder}: {error}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / _MARKER).write_text(f"{name}\n")


def _fill(worker: WorkerSpec, version: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="brokerstorm-python-") as work:
        own = own_build(version)
        source = own.copy(Path(work) / "source") if own else None
        venv.create(folder, with_pip=True)
        _install(worker, version, folder, packages_of(worker, version, source))
    # Only what was installed says what a project is called that does not state its name.
    names = [
        re.split(r"-\d", each.name)[0] for each in folder.glob("lib/*/site-packages/*.dist-info")
    ]
    if own and _normal(worker.library) not in map(_normal, names):
        raise WorkerError(f"{own.path} is not {worker.library}: pip installed none from it")


def _install(worker: WorkerSpec, version: str, folder: Path, packages: list[str]) -> None:
    own = own_build(version)  # all that pip says of it goes into a log
    result = _pip_install(folder, packages, *(() if own else ("--quiet",)))
    if result.returncode and own:
        errors = [
            line.strip() for line in result.stderr.splitlines() if re.search(r"\b[Ee]rror\b", line)
        ]
        said = (errors or result.stderr.splitlines() or ["pip said nothing"])[-1][:300]
        raise failed_build(
            f"{worker.library} {own.label}", folder.name, said, f"{result.stdout}\n{result.stderr}"
        )
    if result.returncode:
        raise _pip_error(worker.library, version, result.stderr)


def _pip_install(
    folder: Path, packages: Sequence[str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run pip in an environment; what it printed, and its exit code.

    Raises:
        WorkerError: it does not end.
    """
    command = [
        str(folder / "bin" / "python"), "-I", "-m", "pip", "install", *options,
        "--disable-pip-version-check", "--no-input", "--prefer-binary", *packages,
    ]  # fmt: skip
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise WorkerError(
            f"pip install {' '.join(packages)} took over {BUILD_TIMEOUT_S:.0f} s"
        ) from error


def _pip_error(library: str, version: str, stderr: str) -> WorkerError:
    """One line out of pip's many, and the versions there are for this Python."""
    errors = [
        line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR")
    ]
    if any("No matching distribution" in line for line in errors):
        listed = re.search(r"\(from versions: ([^)]+)\)", stderr)
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        known = listed[1].split(", ") if listed and listed[1] != "none" else []
        return WorkerError(
            f"{library} has no version {version} for {python}",
            hint=others_hint(version, known) or "is the package index reachable?",
        )
    why = errors[-1] if errors else stderr.strip()[-300:]
    return WorkerError(f"pip could not install {library}=={version}: {why}")
