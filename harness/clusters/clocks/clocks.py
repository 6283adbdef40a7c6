"""The wall clocks of nodes and of clients: `clock.c` in this folder, preloaded, and one small file
each.

libfaketime makes a JVM start in 35 s and each reading cost 14 us, so that brokers are fenced before
any jump. This library costs nanoseconds. It is built with the machine's C compiler on first use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harness.errors import EnvironmentNotReady, WorkerError
from harness.protocols.clocks import OWN_CLOCKS
from harness.toolchains.cache import cache_folder
from harness.toolchains.go import build_once
from harness.waiting import wait_until

GIVES: Final = frozenset({OWN_CLOCKS})
_SOURCE: Final = Path(__file__).with_name("clock.c")
_FILE: Final = "clock"
_VARIABLE: Final = "BROKERSTORM_CLOCK"
#: The variable that names the libraries which are loaded before a program's own.
PRELOAD: Final = "LD_PRELOAD"
# The struct clock_file of clock.c.
_SIZE: Final = 72
_TURN, _SLOT, _TOLD = struct.Struct("=Q"), struct.Struct("=3q"), struct.Struct("=2q")
_SLOTS_AT, _TOLD_AT = 8, 56
_POLL_S: Final = 0.02
_BUILD_S: Final = 60.0


def why_not() -> str:
    """Why no node can have a clock of its own here; empty when one can."""
    return (
        ""
        if _compiler()
        else "their library is built with a C compiler; there is none (apt install gcc)"
    )


def fetch() -> Path:
    """The library, built on first use.

    Raises:
        EnvironmentNotReady: no compiler, or it does not build.
    """
    if reason := why_not():
        raise EnvironmentNotReady(f"faults on clocks: {reason}")
    key = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:8]
    library = cache_folder() / "tools" / f"clock-{os.uname().machine}-{key}" / "clock.so"
    try:
        build_once("the clock library", library, _build)
    except WorkerError as error:
        raise EnvironmentNotReady(str(error), hint=error.hint) from error
    return library


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def _build(folder: Path, part: Path) -> None:
    command = [
        _compiler() or "cc",
        "-O2",
        "-shared",
        "-fPIC",
        "-o",
        str(part),
        str(_SOURCE),
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise EnvironmentNotReady(
            f"the clock library does not build: {said}",
            hint="install the headers of C (Debian, Ubuntu: apt install libc6-dev)",
        )


class OwnClocks:
    """The clocks of processes that were started with one.

    Args:
        folders: of each, by the name of the node or client.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._files = {name: path / _FILE for name, path in folders.items()}
        self._library = ""

    def environment(self, node: str) -> dict[str, str]:
        """Return the environment variables that a node is started with."""
        if node not in self._files:
            return {}
        file = self._files[node]
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(_SIZE))
        self._library = self._library or str(fetch())
        return {PRELOAD: self._library, _VARIABLE: str(file)}

    def set(self, node: str, ahead_s: float, speed: float = 1.0) -> None:
        """Set a node's clock; see `HasClocks.set_clock`."""
        slot = _SLOT.pack(round(ahead_s * 1e9), round((speed - 1) * 1e9), time.monotonic_ns())
        with self._file(node).open("r+b", buffering=0) as file:
            (turn,) = _TURN.unpack(os.pread(file.fileno(), _TURN.size, 0))
            os.pwrite(file.fileno(), slot, _SLOTS_AT + (turn + 1) % 2 * _SLOT.size)
            os.pwrite(file.fileno(), _TURN.pack(turn + 1), 0)

    def offset_told(self, node: str, *, within_s: float) -> float | None:
        """Return how far a node's clock is ahead; see `HasClocks.clock_told`."""
        with self._file(node).open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes(_TOLD.size), _TOLD_AT)
            found: list[float] = []

            def is_told() -> bool:
                told_ns, real_ns = _TOLD.unpack(os.pread(file.fileno(), _TOLD.size, _TOLD_AT))
                if told_ns > 0:
                    found.append((told_ns - real_ns) / 1e9)
                return bool(found)

            return found[0] if wait_until(is_told, within_s, every_s=_POLL_S) else None

    def were_set(self) -> bool:
        """Return whether any clock was set; see `HasClocks.were_clocks_set`. A file that was never
        changed counts as not set.
        """
        return any(
            _TURN.unpack(path.read_bytes()[: _TURN.size])[0] for path in self._files.values()
        )

    def _file(self, node: str) -> Path:
        if node not in self._files or not self._files[node].exists():
            raise EnvironmentNotReady(
                f"{node} was started without {OWN_CLOCKS}",
                hint="start it with a scenario whose faults need it: `brokerstorm up SCENARIO`; clients of "
                "other machines have none",
            )
        return self._files[node]
