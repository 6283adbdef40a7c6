"""Workers that are one program: built on first use, and kept in the cache by what they are made
of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.toolchains.cache import cache_folder
from harness.toolchains.go import build_once
from harness.toolchains.versions import numbers
from harness.workers.spec import Readiness, WorkerSpec

Progress = Callable[[str, float | None], None]
VERSION: Final = re.compile(r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$")


@dataclass(frozen=True, slots=True)
class WorkerProgram:
    """A worker's program for one version of its client.

    Attributes:
        label: the version, for people.
        path: where it is, built or not.
        is_own: of a build of the user's.
        build: (empty folder, where to put it). Raises UsageError: no such version; WorkerError: it
            does not build.
    """

    label: str
    path: Path
    is_own: bool
    build: Callable[[Path, Path], None]


@dataclass(frozen=True, slots=True)
class CompiledWorkers:
    """The compiled workers of one language.

    Attributes:
        how: for people: ``with Go, once``.
        program: (worker, version) -> its program. Raises UsageError: not a version;
            EnvironmentNotReady: the language is not here, or too old.
        timeout_s: how long another process may build the same.
    """

    how: str
    program: Callable[[WorkerSpec, str], WorkerProgram]
    timeout_s: float

    def launch(
        self, worker: WorkerSpec, version: str, offline: bool, on_progress: Progress
    ) -> tuple[list[str], dict[str, str]]:
        """The command of a worker; downloads and builds on first use.

        Raises:
            UsageError: not a version, or one that its package index does not have.
            WorkerError: offline and not built, or it does not build.
            EnvironmentNotReady: the language is not here, or too old.
        """
        made = self.program(worker, version)
        if not made.path.exists():
            name = f"{worker.library} {made.label}"
            if offline:
                raise WorkerError(
                    f"{name} is not in the cache and --offline forbids fetching it",
                    hint="run once without --offline, or `brokerstorm fetch` the scenario",
                )
            on_progress(f"building {name} {self.how}", None)
            build_once(worker.library, made.path, made.build, self.timeout_s)
            on_progress(f"{name} built", 1.0)
        return [str(made.path)], {}

    def readiness(self, worker: WorkerSpec, version: str) -> Readiness:
        """Whether the language is here, and whether the worker is built yet."""
        try:
            made = self.program(worker, version)
        except EnvironmentNotReady as error:
            return Readiness(False, str(error), error.hint)
        built = made.path.exists()
        text = made.label if built else f"{made.label}, to be built on first use"
        return Readiness(True, text, fetched=built or made.is_own)


def numbered(worker: WorkerSpec, version: str, default: str, oldest: str) -> str:
    """The number that a ``client_version`` asks for ("" = the default).

    Raises:
        UsageError: not a version, or older than the first that this worker is for.
    """
    wanted = version.strip().removeprefix("v") or default
    if not VERSION.match(wanted):
        raise UsageError(
            f"{worker.library}: client_version {version!r} is not a version",
            hint=f"write e.g. {default}",
        )
    if numbers(wanted) < numbers(oldest):
        raise UsageError(
            f"{worker.library} {wanted} is too old: this worker is for {oldest} and newer"
        )
    return wanted


def cached_program(
    worker: WorkerSpec,
    version: str,
    made_with: str,
    folders: Iterable[Path],
    sources: Callable[[Path], Iterator[Path]],
) -> Path:
    """Path of a program, built or not: changes with everything that it is made of."""
    digest = hashlib.sha256(made_with.encode())
    for folder in folders:
        for path in sources(folder):
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(path.read_bytes())
    name = f"{worker.library}-{version}-{digest.hexdigest()[:12]}"
    return cache_folder() / "workers" / name / worker.library
