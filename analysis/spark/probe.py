"""First questions to an executor. Standard library only: it must run where NumPy is missing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

_NEEDED = ("numpy", "pyarrow", "analysis.spark.task")


def missing_modules(_rows: Iterator[Any]) -> Iterator[tuple[str, str, str]]:
    """One row a task: path and version of its Python, and what it cannot import ("" = all is
    there)."""
    missing = []
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(str(error))
    yield sys.executable, ".".join(map(str, sys.version_info[:2])), "; ".join(missing[:1])


def warm_up(rows: Iterator[Any]) -> Iterator[Any]:
    """Import what a judging task will, before it is needed."""
    import_for_judging()
    yield from rows


def import_for_judging() -> None:
    """Import the modules of a judging task."""
    importlib.import_module("pyarrow.parquet")
    importlib.import_module("analysis.spark.task")
