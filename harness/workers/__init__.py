"""Workers: which there are, and how a process of one is started.

Every folder here with a ``worker.toml`` is a worker. Users name it by its client library. This module
never imports a client; docs/worker-protocol.md says what the started process does.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.errors import UsageError, WorkerError, did_you_mean
from harness.workers import environments, go_build, java_build
from harness.workers.spec import Readiness, WorkerSpec

FOLDER = Path(__file__).parent
KIT = environments.KIT
#: Called with a text and the share done (None: not known).
Progress = Callable[[str, float | None], None]
Command = tuple[list[str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How workers of one language are built and started.

    Attributes:
        launch: (worker, version, offline, on_progress) -> argv and environment; builds on first use.
        readiness: (worker, version) -> what ``doctor`` says; builds and downloads nothing.
    """

    launch: Callable[[WorkerSpec, str, bool, Progress], Command]
    readiness: Callable[[WorkerSpec, str], Readiness]


TOOLCHAINS: Mapping[str, Toolchain] = {
    "python": Toolchain(environments.launch, environments.readiness),
    "java": Toolchain(java_build.launch, java_build.readiness),
    "go": Toolchain(go_build.launch, go_build.readiness),
}


@cache
def _workers() -> dict[str, WorkerSpec]:
    found: dict[str, WorkerSpec] = {}
    for path in sorted(FOLDER.glob("*/worker.toml")):
        worker = WorkerSpec.read(path.parent, tomllib.loads(path.read_text()))
        found[worker.library] = worker
    return found


def known_workers() -> Mapping[str, WorkerSpec]:
    """Every worker by the client library it is named by."""
    return _workers()


def worker_names(system: str = "") -> list[str]:
    """The client libraries that can be named in a scenario, of one system or of all."""
    return sorted(name for name, worker in _workers().items() if system in ("", worker.system))


def load_worker(name: str) -> WorkerSpec:
    """The worker of a client library.

    Raises:
        UsageError: there is none.
    """
    workers = _workers()
    if name in workers:
        return workers[name]
    raise UsageError(
        f"no worker for client {name!r}; {did_you_mean(name, worker_names())}",
        hint="docs/worker-protocol.md says how to add one",
    )


def launch(
    worker: WorkerSpec,
    client_version: str = "",
    *,
    offline: bool = False,
    on_progress: Progress | None = None,
) -> Command:
    """How to start a worker: ``argv`` (the spec's path comes behind it) and what to add to the environment.

    What the asked version needs (a virtual environment, jars, compiled classes) is made on first use and
    kept in the cache.

    Raises:
        WorkerError: the version cannot be had (offline, no such version, a tool is missing or failed).
        UsageError: the repository has no such version; the hint lists some that it has.
        EnvironmentNotReady: no network, no Java, disk full.
    """
    toolchain = TOOLCHAINS.get(worker.language)
    if toolchain is None:
        raise WorkerError(f"worker {worker.library}: language {worker.language!r} has no toolchain")
    return toolchain.launch(worker, client_version, offline, on_progress or (lambda text, share: None))


def readiness(worker: WorkerSpec, client_version: str = "") -> Readiness:
    """Whether a client can be used; builds and downloads nothing."""
    missing = ", ".join(tool for tool in worker.tools if shutil.which(tool) is None)
    if missing:
        return Readiness(False, f"needs {missing}", f"install {missing}")
    return TOOLCHAINS[worker.language].readiness(worker, client_version)
