"""One block of loopback addresses a run, 127.0.R.0/24, so that runs side by side never collide.

A claim is a file named after R that holds the run id and the process that made it. It is valid
while that process, or any process or container of the run, lives: a kept cluster outlives its
harness, and a killed harness needs no clean-up to give its block back. The ports are then bound
once as a check, because another user's runs and foreign services have no claims here.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from harness.clusters.nodes.processes import ProcessId, identify, run_processes
from harness.errors import EnvironmentNotReady, UsageError
from harness.owners import STATE, state_root
from harness.run_ids import checked_run_id
from harness.rundir import read_json

BLOCKS = 253
CHECK_BLOCK = 254  # never given to a run: where `doctor` tries whether addresses can be bound
_LOCK_S = 30.0
_CHECKED_NODES = 9  # addresses of a block whose ports are tried before it is given out


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a run on a block of loopback addresses and ports, as its file in the state
    folder has it.
    """

    block: int
    run_id: str
    folder: str
    owner: ProcessId
    kept: bool
    runtime: str = "process"


def state_folder() -> Path:
    """Where claims live; BROKERSTORM_STATE overrides.

    Raises:
        EnvironmentNotReady: it cannot be made, or others can write to it: `clean` does what files
            there say.
    """
    root = state_root()
    folder = root / "addresses"
    hint = f"set {STATE} to a folder that only this user can write to"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for found in (root, folder):
            about = found.stat()
            if about.st_uid != os.geteuid():
                raise EnvironmentNotReady(
                    f"the state folder {found} belongs to another user", hint=hint
                )
            if about.st_mode & stat.S_IWOTH:
                raise EnvironmentNotReady(
                    f"every user can write to the state folder {found}", hint=hint
                )
    except OSError as error:
        raise EnvironmentNotReady(
            f"cannot write to {folder}: {error.strerror}", hint=hint
        ) from error
    return folder


def address(block: int, number: int) -> str:
    """Address of node ``number`` (1 ...) in a block."""
    return f"127.0.{block}.{number}"


def claims() -> list[Claim]:
    """Every claim on file, whether its harness lives or not. A damaged one is none: its block can
    be claimed again."""
    return [found for _, found in _claim_files() if isinstance(found, Claim)]


def damaged_claims() -> dict[Path, str]:
    """Files in the place of claims that hold none -> what is wrong with each, for people."""
    return {path: found for path, found in _claim_files() if isinstance(found, str)}


def _claim_files() -> Iterator[tuple[Path, Claim | str]]:
    """Each file with its claim, or with what is wrong with it."""
    for path in sorted(state_folder().glob("127.0.*.json")):
        try:
            yield path, _claim_in(path)
        except KeyError as error:
            yield path, f"a damaged claim: it has no {error}"
        except (UsageError, ValueError) as error:
            yield path, f"a damaged claim: {error}"


def _claim_in(path: Path) -> Claim:
    """
    Raises:
        UsageError, ValueError, KeyError: it is damaged.
    """
    row = read_json(path)
    block, folder, kept, runtime = (
        row["block"],
        row["folder"],
        row["kept"],
        row.get("runtime", "process"),
    )
    named = re.fullmatch(r"127\.0\.(\d{1,3})\.json", path.name)
    if named is None or type(block) is not int or block != int(named[1]) or not 0 < block <= BLOCKS:
        raise ValueError(f"its block is {str(block)[:40]!r}")
    if not isinstance(folder, str) or "\0" in folder or not Path(folder).is_absolute():
        raise ValueError("its folder is not an absolute path")
    if type(kept) is not bool or not isinstance(runtime, str):
        raise ValueError("kept or runtime has another type")
    owner = ProcessId(row["pid"], row["started_s"])
    return Claim(block, checked_run_id(str(row["run_id"])), folder, owner, kept, runtime)


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
        living: run ids that have containers; asked only when a run that had some has lost its
            harness.

    Raises:
        UsageError: not a run id.
        EnvironmentNotReady: no block is free on these ports.
    """
    checked_run_id(run_id)
    ports = list(ports)
    refused: OSError | None = None
    with _lock():
        held = {c.block for c in claims() if c.owner.is_alive()}
        held |= _held_by_nodes(living)
        held |= {block for block in range(1, BLOCKS + 1) if _path(block).is_dir()}
        # Start somewhere else for every run: users on one machine have separate claims.
        first = zlib.crc32(run_id.encode())
        for block in ((first + step) % BLOCKS + 1 for step in range(BLOCKS)):
            if block in held:
                continue
            refused = _refused(block, ports)
            if refused is None:
                _write(
                    Claim(
                        block, run_id, str(folder.absolute()), _self(), kept=False, runtime=runtime
                    )
                )
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

    While its maker lives it stays the maker's: with this process it would end, and `clean` would
    take a cluster that somebody uses.
    """
    _rewrite(
        block,
        run_id,
        lambda found: found if found.owner.is_alive() else replace(found, owner=_self()),
    )


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
