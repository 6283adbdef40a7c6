"""One block of loopback addresses a run, 127.0.R.0/24, so that runs side by side never collide.

A claim is a file named after R that holds the run id and the process that made it. It is valid while that
process, or any process or container of the run, lives: a kept cluster outlives its harness, and a killed
harness needs no clean-up to give its block back. The ports are then bound once as a check, because another
user's runs and foreign services have no claims here.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from harness.clusters.nodes.processes import ProcessId, identify, run_processes
from harness.errors import EnvironmentNotReady

BLOCKS = 253
CHECK_BLOCK = 254  # never given to a run: where `doctor` tries whether addresses can be bound
_LOCK_S = 30.0
_CHECKED_NODES = 9  # addresses of a block whose ports are tried before it is given out


@dataclass(frozen=True, slots=True)
class Claim:
    block: int
    run_id: str
    folder: str
    owner: ProcessId
    kept: bool
    runtime: str = "process"


def state_folder() -> Path:
    """Where claims live; BROKERSTORM_STATE overrides.

    Raises:
        EnvironmentNotReady: it cannot be made.
    """
    override = os.environ.get("BROKERSTORM_STATE")
    folder = Path(override) if override else platformdirs.user_state_path("brokerstorm")
    folder = folder / "addresses"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentNotReady(
            f"cannot write to {folder}: {error.strerror}", hint="set BROKERSTORM_STATE to a folder of yours"
        ) from error
    return folder


def address(block: int, number: int) -> str:
    """Address of node ``number`` (1 ...) in a block."""
    return f"127.0.{block}.{number}"


def claims() -> list[Claim]:
    """Every claim on file, valid or not."""
    found = []
    for path in sorted(state_folder().glob("127.0.*.json")):
        try:
            row = json.loads(path.read_text())
            owner = ProcessId(row["pid"], row["started_s"])
            runtime = row.get("runtime", "process")
            found.append(Claim(row["block"], row["run_id"], row["folder"], owner, row["kept"], runtime))
        except (OSError, ValueError, KeyError):
            continue  # torn by a crash: claimable again
    return found


def claim(
    run_id: str,
    folder: Path,
    ports: Iterable[int],
    *,
    runtime: str = "process",
    living: Callable[[], Collection[str]] = frozenset,
) -> int:
    """Take a free block for a run and return R.

    Args:
        runtime: of the run's cluster.
        living: run ids that have containers; asked only when a run that had some has lost its harness.

    Raises:
        EnvironmentNotReady: no block is free on these ports.
    """
    ports = list(ports)
    refused: OSError | None = None
    with _lock():
        held = {c.block for c in claims() if c.owner.is_alive()}
        held |= _held_by_nodes(living)
        # Start somewhere else for every run: users on one machine have separate claims.
        first = zlib.crc32(run_id.encode())
        for block in ((first + step) % BLOCKS + 1 for step in range(BLOCKS)):
            if block in held:
                continue
            refused = _refused(block, ports)
            if refused is None:
                _write(Claim(block, run_id, str(folder), _self(), kept=False, runtime=runtime))
                return block
    listed = ", ".join(map(str, ports))
    if refused is not None and refused.errno == errno.EADDRNOTAVAIL:
        raise EnvironmentNotReady(
            "127.0.1.1 cannot be bound: this system gives only 127.0.0.1 to the loopback interface",
            hint="add the addresses, e.g. on macOS: sudo ifconfig lo0 alias 127.0.1.1 up",
        )
    raise EnvironmentNotReady(
        f"no free addresses for ports {listed} in 127.0.1.0-127.0.{BLOCKS}.255",
        hint=f"a service listens there on every address; see `ss -ltnp`, last answer: {refused}",
    )


def keep(block: int, run_id: str) -> None:
    """Mark a claim as one of a cluster that is meant to outlive this process."""
    _rewrite(block, run_id, lambda found: replace(found, kept=True))


def take_over(block: int, run_id: str) -> None:
    """Let this process look after a claim whose maker is gone.

    While its maker lives it stays the maker's: with this process it would end, and `clean` would take a
    cluster that somebody uses.
    """
    _rewrite(block, run_id, lambda found: found if found.owner.is_alive() else replace(found, owner=_self()))


def _rewrite(block: int, run_id: str, change: Callable[[Claim], Claim]) -> None:
    with _lock():
        for found in claims():
            if (found.block, found.run_id) == (block, run_id):
                _write(change(found))


def release(run_id: str) -> None:
    """Give back every block of a run. Idempotent."""
    with _lock():
        for found in claims():
            if found.run_id == run_id:
                _path(found.block).unlink(missing_ok=True)


def _held_by_nodes(living: Callable[[], Collection[str]]) -> set[int]:
    """Blocks of runs of which processes or containers live, with or without a harness."""
    alive = {found for _, found in run_processes()}
    if any(claim.runtime == "docker" and not claim.owner.is_alive() for claim in claims()):
        alive |= set(living())
    return {claim.block for claim in claims() if claim.run_id in alive}


def _self() -> ProcessId:
    identity = identify(os.getpid())
    assert identity is not None
    return identity


def _path(block: int) -> Path:
    return state_folder() / f"127.0.{block}.json"


@contextmanager
def _lock() -> Iterator[None]:
    path = state_folder() / "lock"
    try:
        with FileLock(path, timeout=_LOCK_S):
            yield
    except Timeout:
        raise EnvironmentNotReady(
            f"{path} has been locked for {_LOCK_S:.0f} s", hint=f"fuser {path}"
        ) from None


def _write(claimed: Claim) -> None:
    row = {
        "block": claimed.block,
        "run_id": claimed.run_id,
        "folder": claimed.folder,
        "pid": claimed.owner.pid,
        "started_s": claimed.owner.started_s,
        "kept": claimed.kept,
        "runtime": claimed.runtime,
    }
    path = _path(claimed.block)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(row))
    os.replace(temporary, path)


def _refused(block: int, ports: Iterable[int]) -> OSError | None:
    """The error that binding one of the ports gives, None when all are free."""
    for port in ports:
        for number in range(1, _CHECKED_NODES + 1):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the JVM does
                try:
                    probe.bind((address(block, number), port))
                except OSError as error:
                    return error
    return None
