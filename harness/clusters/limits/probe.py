"""A synced write that is timed, by this process or by one in a control group of somebody else's.

    python -S harness/clusters/limits/probe.py GROUP PATH SIZE

Cgroups v2 hold a process to the rules of its own group: what a node feels shows only from within
the node's. The standard library alone: a probe starts often, on machines that do other things.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from pathlib import Path


def synced_write(path: Path, size: int) -> tuple[str, float]:
    """Write so many bytes, sync and remove them; the system's complaint ("" = none) and seconds it
    took."""
    start, said = time.monotonic(), ""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(handle, bytes(size))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        said = errno.errorcode.get(error.errno or 0, str(error))
    took_s = time.monotonic() - start
    path.unlink(missing_ok=True)
    return said, took_s


if __name__ == "__main__":
    group, path, size = sys.argv[1:]
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    sys.stdout.write(json.dumps(synced_write(Path(path), int(size))))
