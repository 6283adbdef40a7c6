"""An operator's program: kill, stop, restart, pause, resume or check a node by its name.

    python tests/driver_rig/act_on_node.py CLUSTER_FOLDER ACTION NODE

The nodes are processes of a test; this knows them by their pid files only, as the program of a
command driver knows a stranger's. The standard library alone: it starts often, on machines that do
other things.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SIGNALS = {"kill": "SIGKILL", "stop": "SIGTERM", "pause": "SIGSTOP", "resume": "SIGCONT"}
STARTED = 19  # of the fields after the program's name, proc(5)


def fields(pid: int) -> list[str]:
    """State, parent and so on of a process (proc(5)); of one that is gone, a zombie's state."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["Z"]


def remember(folder: Path, pid: int) -> None:
    """How it was started, before it is ended."""
    of = Path(f"/proc/{pid}")
    read = {
        name: (of / name).read_bytes().decode().rstrip("\0").split("\0")
        for name in ("cmdline", "environ")
    }
    (folder / "started_as.json").write_text(json.dumps(read))


def restart(folder: Path, row: dict[str, object]) -> None:
    how = json.loads((folder / "started_as.json").read_text())
    with (folder / "logs" / "stdout.log").open("ab") as log:
        process = subprocess.Popen(
            how["cmdline"],
            cwd=folder,
            env=dict(line.split("=", 1) for line in how["environ"]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    started_s = int(fields(process.pid)[STARTED]) / os.sysconf("SC_CLK_TCK")
    (folder / "pid.json").write_text(
        json.dumps({**row, "pid": process.pid, "started_s": started_s})
    )


def main(cluster: str, action: str, node: str) -> int:
    """Do it; the exit code is the check's (0 running, 3 down, 10 paused)."""
    folder = Path(cluster) / node
    row = json.loads((folder / "pid.json").read_text())
    if action == "restart":
        restart(folder, row)
        return 0
    pid = int(row["pid"])
    state = fields(pid)[0]
    if action == "check":
        return {"T": 10, "Z": 3}.get(state, 0)
    if state == "Z":
        sys.exit(f"{node} is down")
    if action in ("kill", "stop"):
        remember(folder, pid)
    os.killpg(pid, getattr(signal, SIGNALS[action]))
    while action in ("kill", "stop") and fields(pid)[0] != "Z":
        time.sleep(0.01)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
