"""One test run at a time has brokers on this machine, so that none takes another's load for a slow
broker."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock

LOCK_WAIT_S: Final = 1800
#: Held by the process that hands tests out: its workers may run brokers side by side.
LOCK: Final = FileLock(
    Path(tempfile.gettempdir()) / "brokerstorm-live-tests.lock", timeout=LOCK_WAIT_S
)


def is_worker() -> bool:
    """Whether another process hands this one its tests (pytest-xdist)."""
    return "PYTEST_XDIST_WORKER" in os.environ


def on_brokers(nodeid: str) -> bool:
    """Whether a test starts brokers."""
    return nodeid.startswith(("tests/live/", "tests/docker/"))


#: Held while a test leaves behind what `clean` would remove, and by who runs `clean` for all runs.
ORPHANS: Final = FileLock(
    Path(tempfile.gettempdir()) / "brokerstorm-orphans.lock", timeout=LOCK_WAIT_S
)


@contextmanager
def alone() -> Iterator[None]:
    """Hold the lock, unless whoever hands out the tests does."""
    if is_worker():
        yield
        return
    with LOCK:
        yield
