"""Live tests use the machine alone: a second test run waits for the first, so that neither sees the
other's load as a slow broker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

LOCK_WAIT_S = 1800


@pytest.fixture(scope="session", autouse=True)
def machine() -> Iterator[None]:
    """Held from the first live test to the last."""
    with FileLock(
        Path(tempfile.gettempdir()) / "brokerstorm-live-tests.lock", timeout=LOCK_WAIT_S, is_singleton=True
    ):
        yield
