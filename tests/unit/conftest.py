"""Fixtures of the unit tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

WORKERS = Path(__file__).resolve().parents[2] / "workers"


@pytest.fixture
def worker_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], ModuleType]]:
    """``worker_module(worker, module)``: found as the worker's own process finds it, gone
    afterwards."""
    before = set(sys.modules)

    def load(worker: str, module: str) -> ModuleType:
        for folder in ("python_kit", worker):
            monkeypatch.syspath_prepend(WORKERS / folder)
        return importlib.import_module(module)

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]
