"""Workers: which there are, and how a process of one is started.

Every folder here with a ``worker.toml`` is a worker. Users name it by its client library. This module
never imports a client; docs/worker-protocol.md says what the started process does.
"""

from __future__ import annotations

import difflib
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.errors import UsageError, WorkerError
from harness.workers.environments import python_for

FOLDER = Path(__file__).parent
KIT = FOLDER / "python_kit"


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker folder.

    Attributes:
        library: the client library; what users write in a scenario.
        roles: ``producer``, ``consumer``, ``audit``.
        options: by role, native options the worker sets unless the scenario does.
        client_defaults: by role, what the client does when nobody sets anything (for promises).
        tools: commands it needs on PATH beyond brokerstorm itself.
    """

    library: str
    about: str
    language: str
    roles: tuple[str, ...]
    folder: Path
    entry: str
    tools: tuple[str, ...]
    versions: str
    options: Mapping[str, Mapping[str, str]]
    client_defaults: Mapping[str, Mapping[str, str]]

    @property
    def installed_version(self) -> str:
        """Version of the library beside brokerstorm, the default; empty when there is none."""
        try:
            return metadata.version(self.library)
        except metadata.PackageNotFoundError:
            return ""


@cache
def _workers() -> dict[str, WorkerSpec]:
    found: dict[str, WorkerSpec] = {}
    for path in sorted(FOLDER.glob("*/worker.toml")):
        raw: dict[str, Any] = tomllib.loads(path.read_text())
        found[raw["library"]] = WorkerSpec(
            library=raw["library"],
            about=raw["about"],
            language=raw["language"],
            roles=tuple(raw["roles"]),
            folder=path.parent,
            entry=raw["entry"],
            tools=tuple(raw["tools"]),
            versions=raw["versions"],
            options=raw["options"],
            client_defaults=raw.get("client_defaults", {}),
        )
    return found


def worker_names() -> list[str]:
    """The client libraries that can be named in a scenario."""
    return sorted(_workers())


def load_worker(name: str) -> WorkerSpec:
    """The worker of a client library.

    Raises:
        UsageError: there is none.
    """
    workers = _workers()
    if name in workers:
        return workers[name]
    near = difflib.get_close_matches(name, workers, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(
        f"no worker for client {name!r}{guess}",
        hint=f"there are: {', '.join(worker_names())}; docs/worker-protocol.md says how to add one",
    )


def launch(
    worker: WorkerSpec, client_version: str = "", *, offline: bool = False
) -> tuple[list[str], dict[str, str]]:
    """How to start a worker: ``argv`` (the spec's path comes behind it) and what to add to the environment.

    A version other than the installed one gets its own virtual environment in the cache, made on first use.

    Raises:
        WorkerError: the version cannot be had (offline, no such version, pip failed).
    """
    if worker.language != "python":
        raise WorkerError(f"worker {worker.library}: language {worker.language!r} cannot be launched yet")
    python = sys.executable
    if client_version and client_version != worker.installed_version:
        python = str(python_for(worker.library, client_version, offline=offline))
    elif not worker.installed_version:
        raise WorkerError(
            f"client {worker.library} is not installed beside brokerstorm",
            hint="run `make setup`, or name a client_version to fetch",
        )
    # PYTHONSAFEPATH would hide the worker folder's own modules; the kit comes first, nothing else leaks in.
    return [python, str(worker.folder / worker.entry)], {"PYTHONPATH": str(KIT)}
