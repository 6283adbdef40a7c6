"""The cluster that our client meets in production."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def brokerstorm_up() -> dict[str, Any]:
    return {"system": "kafka", "version": "4.1.2"}
