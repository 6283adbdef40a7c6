"""manifest.json: what ran, on what, and how far it got. Saved at every change, so a kill loses
nothing."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import metadata
from types import MappingProxyType
from typing import Any

import psutil

from harness import __version__
from harness.contracts.plan import Plan
from harness.contracts.rows import Build, Manifest, Phase, Problem
from harness.rundir import RunDir, write_json
from harness.toolchains.own_builds import own_build


def machine() -> dict[str, object]:
    """The machine in a few words, for the report's environment table."""
    return {
        "cpus": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def library_versions(*names: str) -> dict[str, str]:
    """Installed versions of Python distributions, brokerstorm's own first."""
    return {"brokerstorm": __version__, **{name: metadata.version(name) for name in names}}


def own_builds(plan: Plan) -> list[Build]:
    """Return the user's own builds of clients and brokers."""
    used = dict.fromkeys((each.client, each.client_version) for each in plan.producers)
    used |= dict.fromkeys((each.client, each.client_version) for each in plan.consumers)
    used |= {(plan.system, plan.version): None}
    found = [(name, own_build(version)) for name, version in used]
    return [
        Build(name, str(own.path), own.commit, own.is_changed, own.digest, own.number)
        for name, own in found
        if own
    ]


class ManifestFile:
    """The manifest of a run in progress. The run's thread writes, and the one that notices
    hangs."""

    def __init__(
        self,
        run: RunDir,
        *,
        command: str,
        versions: dict[str, str],
        facts: Mapping[str, str] = MappingProxyType({}),
        builds: Sequence[Build] = (),
        before: Manifest | None = None,
    ) -> None:
        """``before``: what an earlier harness had written, to continue it."""
        self._run = run
        self._lock = threading.RLock()
        self.content = before or Manifest(
            run_id=run.run_id,
            status="running",
            command=command,
            versions=versions,
            builds=list(builds),
            machine={**machine(), **facts},
            readiness_restored=False,
            drained=False,
        )
        self.update()

    def update(self, **fields: Any) -> None:
        """Write it whole, with these fields of `Manifest` replaced."""
        with self._lock:
            self.content = replace(self.content, **fields)
            write_json(self._run.manifest, asdict(self.content))

    def begin_phase(self, name: str) -> None:
        """End the current phase, if any, and begin the next."""
        now = time.monotonic_ns()
        with self._lock:
            self.update(phases=[*self._closed(now), Phase(name, now)])

    def go_on_with_load(self) -> None:
        """The load, which had ended, continues; it counts from its first beginning."""
        with self._lock:
            phases = self._closed(time.monotonic_ns())
            start_ns = min((phase.start_ns for phase in phases if phase.name == "load"), default=0)
            others = [phase for phase in phases if phase.name != "load"]
            self.update(phases=[*others, Phase("load", start_ns or time.monotonic_ns())])

    def end_phase(self, end_ns: int) -> None:
        """The current phase ended then, and no other has begun."""
        with self._lock:
            self.update(phases=self._closed(end_ns))

    def _closed(self, now: int) -> list[Phase]:
        """The phases so far, all of which have ended."""
        return [
            phase if phase.end_ns else replace(phase, end_ns=max(now, phase.start_ns))
            for phase in self.content.phases
        ]

    def set_epoch(self, epoch_ns: int) -> None:
        """Fix t = 0: the start of load."""
        wall_s = time.time() + (epoch_ns - time.monotonic_ns()) / 1e9
        self.update(epoch_ns=epoch_ns, epoch_wall=datetime.fromtimestamp(wall_s, UTC).isoformat())

    def problem(self, kind: str, text: str) -> None:
        """Note something that weakens what the run can prove; each text once."""
        row = Problem(kind, text)
        with self._lock:
            if row not in self.content.problems:
                self.update(problems=[*self.content.problems, row])

    def finish(self, status: str) -> None:
        """Close the last phase and set the final status: complete, interrupted or error."""
        with self._lock:
            self.update(status=status, phases=self._closed(time.monotonic_ns()))
