"""Tells a process from a later one with the same pid."""

from __future__ import annotations

import psutil

from harness.contracts.ledger import StoppedProcess
from harness.start_times import started_s


def process_of(name: str, pid: int | None) -> StoppedProcess:
    """The process of a node or client, which is to be stopped; without pid when it is gone, or none
    of this machine."""
    if not pid:
        return StoppedProcess(node=name)
    try:
        return StoppedProcess(node=name, pid=pid, started_s=started_s(pid))
    except psutil.NoSuchProcess:
        return StoppedProcess(node=name)
