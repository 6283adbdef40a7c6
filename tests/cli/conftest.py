"""Fixtures of the tests of commands."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def clients_are_left_alone(clients_are_not_asked: None) -> None:
    """Unless a test is `asked`."""
