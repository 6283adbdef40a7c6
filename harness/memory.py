"""Memory that is free, of the machine or of the container; what Spark and judging would like of
it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

SPARK_MB: Final = 1500  # driver heap of 1 GB, and Python workers
SPARK_LEAST_MB: Final = 900  # heap of 512 MB: enough for the quick scenarios
_TASK_MB: Final = 150  # Python, NumPy and PyArrow
#: For a row of sends, log or deliveries while its bucket is judged: 55 to 82 (`bench.scale`).
_JUDGED_ROW_BYTES: Final = 90


def judging_mb(rows: float) -> int:
    """Memory of a task whose bucket has so many rows in all tables."""
    return _TASK_MB + round(rows * _JUDGED_ROW_BYTES / 2**20)


def free_memory_mb() -> int:
    """Memory that programs can still have, swap not counted: a swapping broker is a fault of its
    own."""
    return min(psutil.virtual_memory().available, _cgroup_free()) // 2**20


def _cgroup_free() -> int:
    """Bytes left in a container's memory limit (page cache counts as free); very many when there is
    none."""
    unlimited = 2**62
    for folder, limit, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            ceiling = Path(folder, limit).read_text().strip()
            current = int(Path(folder, used).read_text())
            rows = dict(
                line.split() for line in Path(folder, "memory.stat").read_text().splitlines()
            )
        except (OSError, ValueError):
            continue
        if ceiling != "max" and int(ceiling) < unlimited:
            return max(0, int(ceiling) - current + int(rows.get("inactive_file", 0)))
    return unlimited
