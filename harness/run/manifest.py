"""manifest.json: what ran, on what, and how far it got. Saved at every change, so a kill loses nothing."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from types import MappingProxyType
from typing import Any

import psutil

from harness import __version__
from harness.contracts.plan import Plan
from harness.rundir import RunDir, write_json
from harness.toolchains.own_builds import own_build

SCHEMA_VERSION = 1


def machine() -> dict[str, Any]:
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


def own_builds(plan: Plan) -> list[dict[str, Any]]:
    """What was built by the user: of which client or system, path, commit, whether it was changed, hash."""
    used = dict.fromkeys((each.client, each.client_version) for each in plan.producers)
    used |= dict.fromkeys((each.client, each.client_version) for each in plan.consumers)
    used |= {(plan.system, plan.version): None}
    found = [(name, own_build(version)) for name, version in used]
    return [{"name": name, **own.facts()} for name, own in found if own]


class Manifest:
    """The manifest of a run in progress. The run's thread writes, and the one that notices hangs."""

    def __init__(
        self,
        run: RunDir,
        *,
        command: str,
        versions: dict[str, str],
        facts: Mapping[str, str] = MappingProxyType({}),
        builds: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._run = run
        self._lock = threading.RLock()
        self.document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run.run_id,
            "status": "running",
            "command": command,
            "epoch_ns": 0,
            "epoch_wall": "",
            "versions": versions,
            "builds": list(builds),
            "machine": {**machine(), **facts},
            "phases": [],
            "workers": [],
            "readiness_restored": False,
            "drained": False,
            "problems": [],
        }
        self.save()

    def save(self) -> None:
        with self._lock:
            write_json(self._run.manifest, self.document)

    def begin_phase(self, name: str) -> None:
        """End the current phase, if any, and begin the next."""
        now = time.monotonic_ns()
        with self._lock:
            self._close_phase(now)
            self.document["phases"].append({"name": name, "start_ns": now, "end_ns": 0})
            self.save()

    def _close_phase(self, now: int) -> None:
        phases = self.document["phases"]
        if phases and phases[-1]["end_ns"] == 0:
            phases[-1]["end_ns"] = now

    def set_epoch(self, epoch_ns: int) -> None:
        """Fix t = 0: the start of load."""
        wall_s = time.time() + (epoch_ns - time.monotonic_ns()) / 1e9
        self.document["epoch_ns"] = epoch_ns
        self.document["epoch_wall"] = datetime.fromtimestamp(wall_s, UTC).isoformat()
        self.save()

    def problem(self, kind: str, text: str) -> None:
        """Note something that weakens what the run can prove; each text once."""
        row = {"kind": kind, "text": text}
        with self._lock:
            if row not in self.document["problems"]:
                self.document["problems"].append(row)
                self.save()

    def update(self, **fields: Any) -> None:
        with self._lock:
            self.document.update(fields)
            self.save()

    def finish(self, status: str) -> None:
        """Close the last phase and set the final status: complete, interrupted or error."""
        self._close_phase(time.monotonic_ns())
        self.update(status=status)
