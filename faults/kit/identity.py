"""Tells a process from a later one with the same pid."""

from __future__ import annotations

from typing import Any

import psutil

from harness.start_times import started_s


def process_identity(pid: int) -> dict[str, Any]:
    """What tells this process from a later one with the same pid; empty when it is gone."""
    try:
        return {"pid": pid, "started_s": started_s(pid)}
    except psutil.NoSuchProcess:
        return {}
