"""Workers: which there are, and how a process of one is started.

Every folder of ``workers/`` with a ``worker.toml`` is a worker, and so is one that
BROKERSTORM_WORKERS or a scenario names. Users name it by its client library. This module never
imports a client; docs/worker-protocol.md says what the started process does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.contracts.worker import ProcessSpec
from harness.errors import BrokerstormError, EnvironmentNotReady, UsageError, did_you_mean
from harness.log_stamp import LOG_ZONE
from harness.rundir import path_below, resolved
from harness.toolchains.own_builds import AskedBuild, OwnBuild, asked_build, is_own, own_build
from harness.workers import command, environments, go_build, java_build, rust_build
from harness.workers.spec import FILE, PROGRAMS, Readiness, WorkerSpec

FOLDER = PROGRAMS
CHECK_TIMEOUT_S = 30.0
KIT = environments.KIT
#: Environment variable: folders of workers, separated as in PATH.
VARIABLE = "BROKERSTORM_WORKERS"
#: Variable of a worker's process: the options that it sets unless the scenario does, by role, as
#: JSON.
OPTIONS = "BROKERSTORM_WORKER_OPTIONS"
#: Called with a text and the share done (None: not known).
Progress = Callable[[str, float | None], None]
Command = tuple[list[str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How workers of one language are built and started.

    Attributes:
        launch: (worker, version, offline, on_progress) -> argv and environment; builds on first
            use.
        readiness: (worker, version) -> what ``doctor`` says; builds and downloads nothing.
        released: (worker, version) -> the versions that its package index has, in no order.
        is_released: (worker, version) -> whether the index has a version that its list leaves out;
            None = its lists are complete.
        pinned: (worker, what the user named) -> a build of the user's, as it is now.
    """

    launch: Callable[[WorkerSpec, str, bool, Progress], Command]
    readiness: Callable[[WorkerSpec, str], Readiness]
    released: Callable[[WorkerSpec, str], list[str]]
    pinned: Callable[[WorkerSpec, AskedBuild], OwnBuild]
    is_released: Callable[[WorkerSpec, str], bool] | None = None


TOOLCHAINS: Mapping[str, Toolchain] = {
    name: Toolchain(
        made.launch, made.readiness, made.released, made.pinned, getattr(made, "is_released", None)
    )
    for name, made in (
        ("python", environments),
        ("java", java_build),
        ("go", go_build),
        ("rust", rust_build),
        ("other", command),
    )
}


def known_workers(folders: Sequence[str | Path] = ()) -> Mapping[str, WorkerSpec]:
    """Every worker, by the client library it is named by.

    They come with brokerstorm, from BROKERSTORM_WORKERS and from ``folders``; a
    folder is a worker's, or one that holds such folders.

    Raises:
        UsageError: a folder without workers, a ``worker.toml`` that cannot be used, or two of one
            library.
    """
    ours = os.environ.get(VARIABLE, "").split(os.pathsep)
    named = (
        resolved(path_below(Path(), str(folder))) for folder in (*ours, *folders) if str(folder)
    )
    return _known(tuple(dict.fromkeys(named)))


@cache
def _known(folders: tuple[Path, ...]) -> Mapping[str, WorkerSpec]:
    found = {worker.library: worker for worker in map(WorkerSpec.read, _folders_in(FOLDER))}
    for path in folders:
        own = _folders_in(path)
        if not own:
            raise UsageError(
                f"no workers in {path}: no {FILE} there or in a folder below it",
                hint=f"set {VARIABLE} to a folder with workers",
            )
        for folder in own:
            worker = WorkerSpec.read(folder)
            other = found.setdefault(worker.library, worker)
            if other.folder != folder:
                raise UsageError(
                    f"two workers of library {worker.library!r}: {other.folder} and {folder}",
                    hint=f"give one of them another name: library in its {FILE}",
                )
    return found


def _folders_in(path: Path) -> list[Path]:
    return (
        [path] if (path / FILE).exists() else sorted(each.parent for each in path.glob(f"*/{FILE}"))
    )


def worker_names(system: str = "", folders: Sequence[str | Path] = ()) -> list[str]:
    """The client libraries that can be named in a scenario, of one system or of all."""
    return sorted(
        name for name, worker in known_workers(folders).items() if system in ("", *worker.systems)
    )


def load_worker(name: str, folders: Sequence[str | Path] = (), *, system: str = "") -> WorkerSpec:
    """The worker of a client library; ``folders`` as of `known_workers`.

    ``system``: the one that it is used with, where it has several; empty = its first.

    Raises:
        UsageError: there is none.
    """
    workers = known_workers(folders)
    if name in workers:
        return workers[name].on_system(system)
    raise UsageError(
        f"no worker for client {name!r}; {did_you_mean(name, sorted(workers))}",
        hint="docs/howto/add-a-worker.md says how to add one",
    )


def is_ours(worker: WorkerSpec) -> bool:
    """Whether it comes with brokerstorm."""
    return worker.folder.parent == FOLDER


def launch(
    worker: WorkerSpec,
    client_version: str = "",
    *,
    offline: bool = False,
    on_progress: Progress | None = None,
) -> Command:
    """How to start a worker: ``argv`` (the spec's path follows it) and what to add to the
    environment.

    What the asked version needs (a virtual environment, jars, compiled classes) is made on first
    use and kept in the cache.

    Raises:
        WorkerError: the version is not available (offline, no such version, a tool is missing or
            failed).
        UsageError: the repository has no such version; the hint lists some that it has.
        EnvironmentNotReady: no network, no Java, disk full.
    """
    said = on_progress or (lambda text, share: None)
    version = pinned(worker, client_version)
    argv, env = TOOLCHAINS[worker.language].launch(worker, version, offline, said)
    return argv, {**env, OPTIONS: json.dumps(worker.options), "TZ": LOG_ZONE}


def pinned(worker: WorkerSpec, client_version: str) -> str:
    """A version that means the same to the end: ``dir:PATH`` as what is there now, any other as it
    is.

    Asked twice, a process gets the same answer: the rounds of a command run one build.

    Raises:
        UsageError: the folder or commit does not exist, or it is not this client.
        EnvironmentNotReady: git cannot be asked.
    """
    if not is_own(client_version) or own_build(client_version):
        return client_version
    asked = (worker.folder, client_version)
    if asked not in _PINNED:
        _PINNED[asked] = str(
            TOOLCHAINS[worker.language].pinned(worker, asked_build(client_version))
        )
    return _PINNED[asked]


_PINNED: dict[tuple[Path, str], str] = {}


def readiness(worker: WorkerSpec, client_version: str = "") -> Readiness:
    """Whether a client can be used; builds and downloads nothing. A build of this machine that is
    not there is not ready.

    Raises:
        UsageError: ``client_version`` is not a version, or one that this worker is not for.
    """
    missing = ", ".join(tool for tool in worker.tools if shutil.which(tool) is None)
    if missing:
        return Readiness(False, f"needs {missing}", f"install {missing}")
    try:
        return TOOLCHAINS[worker.language].readiness(worker, pinned(worker, client_version))
    except EnvironmentNotReady as error:
        return Readiness(False, str(error), error.hint)
    except UsageError as error:
        if is_own(client_version) or client_version.startswith(java_build.JARS):
            return Readiness(False, str(error), error.hint)
        raise


def released(worker: WorkerSpec, client_version: str = "") -> list[str]:
    """Every version of a client that its package index has, pre-releases too, in no order.

    ``client_version``: of the client, where a worker has several.

    Raises:
        WorkerError, EnvironmentNotReady: the index is not known, or it does not tell.
    """
    return TOOLCHAINS[worker.language].released(worker, client_version)


def is_released(worker: WorkerSpec, client_version: str) -> bool:
    """Whether the package index of a client has a version that its list leaves out, such as a
    retracted one.

    Raises:
        EnvironmentNotReady: the index does not answer.
    """
    ask = TOOLCHAINS[worker.language].is_released
    return ask is not None and ask(worker, client_version)


def refused_options(worker: WorkerSpec, spec: ProcessSpec) -> str | None:
    """The client's own words against the options of a worker's spec; empty when it takes them.

    None when it cannot be asked: the worker has no ``checks_options``, the version is not fetched
    yet, or no answer comes within `CHECK_TIMEOUT_S`: the run asks again. No broker is needed.
    """
    if not worker.checks_options:
        return None
    try:
        argv, environment = launch(worker, spec.client.version, offline=True)
    except BrokerstormError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.json"
        path.write_text(json.dumps({**spec.document(), "capture_dir": folder}))
        try:
            done = subprocess.run(
                [*argv, "--check-options", str(path)],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=CHECK_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:  # an interpreter on a machine that does much else
            return None
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return next((str(message["text"]) for message in said if message.get("fatal")), "")
