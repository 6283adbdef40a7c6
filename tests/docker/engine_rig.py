"""A Docker engine for the tests: the one that answers, else one of our own that ends with them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.clusters.docker import engine
from harness.errors import EnvironmentNotReady
from harness.waiting import wait_until

#: Set by continuous integration: a test that cannot have Docker fails there, it is not skipped.
REQUIRED = "BROKERSTORM_DOCKER_TESTS"
START_S = 120.0
STOP_S = 40.0


def is_required() -> bool:
    return os.environ.get(REQUIRED) == "required"


def why_none() -> str:
    """Empty when an engine answers."""
    try:
        engine.connect().close()
    except EnvironmentNotReady as error:
        return str(error)
    return ""


@contextmanager
def own_engine(folder: Path) -> Iterator[str]:
    """Start an engine whose socket and data are below a folder; yields the DOCKER_HOST of it, ends
    it after.

    Raises:
        EnvironmentNotReady: not installed, not root, or it does not start: the last lines of its
            log.
    """
    program = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or os.geteuid() != 0:
        why = "dockerd is not installed" if program is None else "starting dockerd needs root"
        raise EnvironmentNotReady(why, hint="start an engine yourself")
    host = f"unix://{folder}/docker.sock"
    log = folder / "dockerd.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                program,
                f"--host={host}",
                f"--data-root={folder}/data",
                f"--exec-root={folder}/exec",
                f"--pidfile={folder}/dockerd.pid",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for(process, folder / "docker.sock", log)
        yield host
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        unmount_below(folder)


def unmount_below(folder: Path) -> None:
    """Unmount what an engine left below its folder: the network namespace of this machine, after a
    container that used it."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = Path(line.split()[1])
        if folder in place.parents:
            subprocess.run(["umount", str(place)], check=True)


def _wait_for(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    wait_until(lambda: socket.exists() or process.poll() is not None, START_S, every_s=0.05)
    if not socket.exists():
        tail = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        raise EnvironmentNotReady(f"dockerd did not start: {tail}")
