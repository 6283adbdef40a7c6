"""Whose a process or container is: ours when it belongs to this user and names this state folder.

A process says so in its environment, what is in a Docker engine by a label.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs
import psutil

from harness.run_ids import checked_run_id, is_run_id

#: The variable that every process of a run has in its environment.
RUN_ID: Final = "BROKERSTORM_RUN_ID"
#: The variable that names the state folder: for a command the one to use, in a process of a run the
#: one that its run is claimed in.
STATE: Final = "BROKERSTORM_STATE"
#: The variable that says what a worker process is: producer, consumer, pipeline or audit.
ROLE: Final = "BROKERSTORM_ROLE"
_MOST_PID: Final = 2**31 - 1
_MARK: Final = re.compile(r"(\d{1,10}):(/[^\x00-\x1f\x7f]*)", re.ASCII)


def is_pid(number: object) -> bool:
    """Whether this can be the pid of one process; 0 and negative numbers mean groups to the
    kernel."""
    return type(number) is int and 0 < number <= _MOST_PID


def default_state() -> Path:
    """The state folder of a user who names none."""
    return platformdirs.user_state_path("brokerstorm")


def state_root() -> Path:
    """This command's state folder, absolute and without links; it may not exist yet."""
    return Path(os.environ.get(STATE) or default_state()).resolve()


def marks_of(run_id: str) -> dict[str, str]:
    """Variables that tell the processes of a run from all others.

    Raises:
        UsageError: not a run id.
    """
    return {RUN_ID: checked_run_id(run_id), STATE: str(state_root())}


def owner_mark() -> str:
    """This user and state folder as one text: the mark of what has no environment, such as a
    container."""
    return f"{os.geteuid()}:{state_root()}"


def short_owner_mark() -> str:
    """`owner_mark` as 8 hexadecimal digits, for names that have little room: rules, control
    groups."""
    return hashlib.sha256(owner_mark().encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class RunOwner:
    """The run that a process belongs to, and whose run that is.

    Attributes:
        state: the state folder in which the run is claimed.
    """

    run_id: str
    uid: int
    state: str

    @property
    def is_us(self) -> bool:
        """Whether it is this user, with this state folder."""
        return self.uid == os.geteuid() and self.state == str(state_root())


def marked_owner(run_id: str, mark: str) -> RunOwner | None:
    """The owner that a mark names; None when the text is not a mark."""
    found = _MARK.fullmatch(mark)
    return RunOwner(run_id, int(found[1]), found[2]) if found else None


def owner_of(pid: int) -> RunOwner | None:
    """Return the run that the environment of a process names; None if it names none, is not
    readable or is gone.

    Anybody may start a process with any environment: the user id is the kernel's word, the rest is
    a claim. A program with the set-user-id bit has the environment of its caller: its real user
    counts.
    """
    if not is_pid(pid):
        return None
    try:
        process = psutil.Process(pid)
        environment = process.environ()
        uid = process.uids().real
    except (psutil.Error, OSError):
        return None
    run_id = environment.get(RUN_ID, "")
    if not is_run_id(run_id):
        return None
    # Earlier versions named no state folder in it: then it is the default, as for a command.
    return RunOwner(run_id, uid, environment.get(STATE) or str(default_state().resolve()))


def run_id_of(pid: int) -> str | None:
    """The run of ours that started a process; None when it is not ours, not readable or gone."""
    owner = owner_of(pid)
    return owner.run_id if owner and owner.is_us else None


def other_runs(run_id: str) -> set[str]:
    """Ids of other runs that have processes on this machine now, of whatever user and state folder.

    This process and its parents do not count: a user may have the variable in the shell.
    """
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    owners = (owner_of(pid) for pid in psutil.pids() if pid not in own)
    return {owner.run_id for owner in owners if owner} - {run_id}
