"""Becomes another program that the kernel signals when its parent dies: `bound.py SIGNAL PARENT
WORDS...`.

A cancelled Spark job kills Python tasks without their ``finally``; their processes would live on.
The wish outlives exec, and asking from here needs no code between fork and exec of a process with
threads. Standard library only: it runs before anything of ours is on the path.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(signal_number: str, parent: str, *words: str) -> None:
    """Exit with 1 where the parent is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)
    os.execvpe(words[0], list(words), os.environ)


if __name__ == "__main__":
    main(*sys.argv[1:])
