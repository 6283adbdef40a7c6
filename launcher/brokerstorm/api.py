"""Runs scenarios and starts clusters through the command line."""

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
    """Run a scenario: start its cluster, send its load, inject its faults and judge every message.

    Args:
        scenario: Path of a scenario file, name of a ready scenario, or a mapping with the contents
            of a file; paths in a mapping are relative to the current folder.
        seed: Seed for the times and targets of faults. None chooses a new seed for every call.
        variant: Run only this variant. Empty runs all variants of the scenario.
        rounds: Number of runs of each variant. None runs each variant once.
        overrides: Values that replace values of the scenario, by key, for example ``{"load.rate":
            5000}``.
        runtime: Start brokers as local processes or in Docker containers. ``auto`` chooses.
        offline: Download nothing, and fail if a file is missing.
        run_dir: Folder for runs. None uses ``BROKERSTORM_RUN_DIR``, or ``./runs`` if that is not
            set.
        timeout_s: Stop the run and clean up after this many seconds. None waits without a limit.
        quiet: Print no progress to stderr.

    Returns:
        The result, whatever its verdict. `assert_clean` raises unless the verdict is *pass*.

    Raises:
        BrokerstormError: The scenario has an error, or this machine lacks a requirement.
        TimeoutError: The run did not end within ``timeout_s``.
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
    """A node of a cluster: a broker, a bookie or a ZooKeeper server.

    Attributes:
        name: Name of the node, which faults use as a target, for example ``kafka-1``.
        client: Address for clients. Empty if clients do not connect to this node.
        folder: Folder with its configuration and its logs.
    """

    name: str
    client: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster.

    Attributes:
        run_id: Identifier of the cluster; commands take it as ``--cluster``.
        system: ``kafka``, ``nats``, ``pulsar``, ``qpid`` or ``rabbitmq``.
        version: Version of the brokers.
        bootstrap: Address that clients connect to, in the form that clients of this system expect.
        nodes: All nodes of the cluster.
    """

    run_id: str
    system: str
    version: str
    bootstrap: str
    nodes: tuple[Node, ...]
    _call: _Call = field(repr=False, compare=False)

    def inject(
        self, fault: str, *, for_s: float | None = None, seed: int | None = None, **keys: Any
    ) -> Fault:
        """Inject a fault, and wait until it is undone.

        Args:
            fault: Kind of fault, one of ``brokerstorm list faults``.
            for_s: Undo the fault after this many seconds. None keeps it until the cluster ends, and
                returns as soon as it has taken effect.
            seed: Seed for choices within the fault. None chooses a new one.
            **keys: Keys of the fault as in a scenario, for example ``target="leader-of:orders"``.

        Raises:
            BrokerstormError: The kind, a key or the target does not exist, or the fault could not
                be undone.
        """
        words = ["inject", fault, "--cluster", self.run_id]
        words += [
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in keys.items()
        ]
        words += [] if for_s is None else ["--undo-after", f"{for_s * 1000:.0f}ms"]
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
    """Start a cluster for a ``with`` block. Its nodes and data are removed at the end of the block.

    Args:
        system: ``kafka``, ``nats``, ``pulsar``, ``qpid`` or ``rabbitmq``. Empty uses the system of
            the scenario, or Kafka.
        scenario: Scenario that gives the version, the settings and the requirements of its faults.
        version: Version of the brokers. Empty uses the version of the scenario, or the default of
            the system.
        needs: Requirements of faults at the start of the cluster, as for ``brokerstorm up
            --needs``.
        runtime: Start brokers as local processes or in Docker containers. ``auto`` chooses.
        offline: Download nothing, and fail if a file is missing.
        run_dir: Folder for configuration and logs. None uses ``BROKERSTORM_RUN_DIR``, or
            ``./runs``.
        timeout_s: Limit in seconds for the start, for each fault, and for the end. None sets no
            limit.
        quiet: Print no progress to stderr.

    Yields:
        The running cluster, ready for clients.

    Raises:
        BrokerstormError: The cluster could not be started or ended.
        TimeoutError: A step did not end within ``timeout_s``.
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
    """The argument for the command line that names the scenario; empty without a scenario."""
    if not isinstance(scenario, Mapping):
        yield "" if scenario is None else str(scenario)
        return
    text = json.dumps(scenario, indent=1)  # JSON is YAML
    with _temporary_file() as file:
        file.write(text)
        file.flush()
        yield file.name


def _temporary_file() -> Any:
    """A file that is removed when it is closed: in the current folder, to which paths in a mapping
    are relative, or elsewhere if that is not writable."""
    try:
        return tempfile.NamedTemporaryFile(
            "w", dir=Path.cwd(), prefix=".brokerstorm-", suffix=".yaml"
        )
    except OSError:
        return tempfile.NamedTemporaryFile("w", prefix="brokerstorm-", suffix=".yaml")
