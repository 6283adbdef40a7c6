"""Live tests use the machine alone: a second test run waits for the first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machine import alone


@pytest.fixture(scope="session", autouse=True)
def machine() -> Iterator[None]:
    """Held from the first live test to the last."""
    with alone():
        yield
