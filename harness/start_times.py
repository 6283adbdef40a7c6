"""When a process was started, by a clock that cannot be set: what distinguishes it from a later one
with its pid.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import psutil

#: Two readings of one start are this near, also where there is only the time of day.
SAME_START_S: Final = 2.0
_STARTTIME: Final = 19  # of the fields after the program's name, proc(5)


def started_s(pid: int) -> float:
    """Seconds between the machine's start and the process' start; where there is no /proc, its time
    of day.

    psutil's own time is the boot time and this, and the boot time moves when the clock is set, as
    it is when a virtual machine is resumed: every process would look like a later one.

    Raises:
        psutil.NoSuchProcess: there is none.
    """
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(after_name[_STARTTIME]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return psutil.Process(pid).create_time()
