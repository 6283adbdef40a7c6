"""Runs scenarios and keeps clusters up, through the command line."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from brokerstorm.command import Document, call
from brokerstorm.results import Fault, Result, fault_of, result_of

Runtime = Literal["auto", "process", "docker"]
_Call = Callable[[Sequence[str]], Document]


def run(
    scenario: str | Path | Mapping[str, Any],
    *,
    seed: int | None = None,
    variant: str = "",
    rounds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    runtime: Runtime = "auto",
    offline: bool = False,
    run_dir: str | Path | None = None,
    timeout_s: float | None = None,
    quiet: bool = False,
) -> Result:
    """Run a scenario: start its cluster, drive its load, inject its faults, judge every message.

    Args:
        scenario: a file, the name of a ready scenario, or what would stand in a file.
        seed: decides times and targets of faults; None = another one each time.
        variant: the only one to run, of a scenario with variants.
        rounds: times each variant is run.
        overrides: values of the scenario by key: ``{"load.rate": 5000}``.
        offline: download nothing.
        run_dir: where runs are kept; None = BROKERSTORM_RUN_DIR, else ``./runs``.
        timeout_s: the run is stopped and cleaned up after this.
        quiet: no progress on stderr.

    Returns:
        The result, whatever the verdict; `assert_clean` raises on all but *pass*.

    Raises:
        BrokerstormError: it could not be run: a mistake in the scenario, or the machine lacks something.
        TimeoutError: it was not done in time.
    """
    folder = _run_dir(run_dir)
    words: list[str] = ["--runtime", runtime]
    for name, value in {"--seed": seed, "--rounds": rounds, "--variant": variant or None}.items():
        words += [] if value is None else [name, str(value)]
    for key, value in (overrides or {}).items():
        words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    words += ["--offline"] if offline else []
    with _file_of(scenario) as name:
        document = call(["run", name, *words], run_dir=folder, timeout_s=timeout_s, quiet=quiet)
    return result_of(document, folder)


@dataclass(frozen=True, slots=True)
class Node:
    """One broker, bookie or ZooKeeper. ``client``: address for clients; ``folder``: its settings and logs."""

    name: str
    client: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is up. ``bootstrap``: what clients connect to, in the form of their system."""

    run_id: str
    system: str
    version: str
    bootstrap: str
    nodes: tuple[Node, ...]
    _call: _Call = field(repr=False, compare=False)

    def inject(
        self, fault: str, *, for_s: float | None = None, seed: int | None = None, **keys: Any
    ) -> Fault:
        """Inject a fault; return when it is healed, or, without ``for_s``, when it is proved.

        Args:
            fault: its kind, one of `brokerstorm list faults`; ``keys`` are those of its step in a scenario.
            for_s: heal after this; None = it stays until the cluster ends.

        Raises:
            BrokerstormError: no such fault, key or target, or it could not be healed.
        """
        words = ["inject", fault, "--cluster", self.run_id]
        words += [
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in keys.items()
        ]
        words += [] if for_s is None else ["--for", f"{for_s * 1000:.0f}ms"]
        words += [] if seed is None else ["--seed", str(seed)]
        return fault_of(self._call(words))


@contextmanager
def up(
    system: str = "",
    *,
    scenario: str | Path | Mapping[str, Any] | None = None,
    version: str = "",
    needs: Sequence[str] = (),
    runtime: Runtime = "auto",
    offline: bool = False,
    run_dir: str | Path | None = None,
    timeout_s: float | None = None,
    quiet: bool = False,
) -> Iterator[Cluster]:
    """A cluster of its own, ready for clients; it ends with the block, and its data with it.

    Args:
        system: kafka, nats, pulsar or qpid; empty = the scenario's, or kafka.
        scenario: gives version and broker settings, and what its faults need.
        version: of the brokers.
        needs: what faults need of its start, as `brokerstorm up --needs` takes it.
        timeout_s: for the start, for each fault and for the end.

    Raises:
        BrokerstormError: it could not be started or ended.
        TimeoutError: it was not done in time.
    """
    folder = _run_dir(run_dir)

    def ask(words: Sequence[str]) -> Document:
        return call(words, run_dir=folder, timeout_s=timeout_s, quiet=quiet)

    words = ["--runtime", runtime]
    words += ["--system", system] if system else []
    words += ["--version", version] if version else []
    words += [word for need in needs for word in ("--needs", need)]
    words += ["--offline"] if offline else []
    with _file_of(scenario) as name:
        started = ask(["up", *([name] if name else []), *words])
    try:
        yield _cluster(started, ask)
    finally:
        ask(["down", started["run_id"]])


def _cluster(row: Document, ask: _Call) -> Cluster:
    nodes = tuple(Node(each["name"], each["client"], Path(each["folder"])) for each in row["nodes"])
    return Cluster(row["run_id"], row["system"], row["version"], row["bootstrap"], nodes, ask)


def _run_dir(given: str | Path | None) -> Path:
    return Path(given or os.environ.get("BROKERSTORM_RUN_DIR") or "runs").absolute()


@contextmanager
def _file_of(scenario: str | Path | Mapping[str, Any] | None) -> Iterator[str]:
    """What the command line is given for a scenario; empty for none."""
    if not isinstance(scenario, Mapping):
        yield "" if scenario is None else str(scenario)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(json.dumps(scenario, indent=1))  # JSON is YAML
        yield str(path)
