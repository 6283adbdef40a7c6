"""Errors a user can do something about, each with its exit code.

    BrokerstormError            70  an internal error, unless a subclass says otherwise
    +-- UsageError               2  a bad command line, scenario file or run folder
    |   +-- ScenarioError        2  a key or value of a scenario
    +-- EnvironmentNotReady      4  Java, network, ports, memory, disk, a cluster that is not ready
    +-- WorkerError              4  a worker could not be built or started
    +-- HealError                5  a fault is still applied
    +-- Interrupted        130/143  Ctrl-C, SIGTERM or SIGHUP, after healing, without a verdict

A message names the thing, the value found and what is allowed; ``hint`` is the next step.
"""

from __future__ import annotations

import difflib
import errno
import signal
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, Literal, Self

#: Names in a message: there may be a hundred topics.
_LISTED: Final = 40


#: What makes the exit code of a night 1: a cell that is red since then, any red cell, or nothing.
FailOn = Literal["new", "any", "none"]


class Exit(IntEnum):
    """Exit codes of every command (docs/reference/cli.md)."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    UNKNOWN = 3
    ENVIRONMENT = 4
    NOT_HEALED = 5
    BUG = 70
    OUTPUT = 74
    INTERRUPTED = 130
    TERMINATED = 143


#: What the system says when a disk, or a user's share of it, is full.
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def unexpected_text(error: BaseException) -> str:
    """Text for an error that is not a `BrokerstormError`: a full disk in words, else an internal
    error."""
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        where = f" of {error.filename}" if error.filename else ""
        return f"no space left on the disk{where}"
    return f"internal error: {error!r}"


#: Exit code -> (what it means, what to do), for docs/reference/cli.md.
EXIT_MEANING: Final[dict[Exit, tuple[str, str]]] = {
    Exit.PASS: ("pass; of a scenario with variants: every variant came out as expected", ""),
    Exit.FAIL: (
        "fail: a promise was broken, a variant was not as expected, or a worker broke its contract",
        "read the report",
    ),
    Exit.USAGE: (
        "the command line, a scenario or a run folder cannot be used",
        "the message names the key",
    ),
    Exit.UNKNOWN: (
        "unknown: the run could not have shown a failure; `shrink`: no class",
        "the validity checks of the report say why",
    ),
    Exit.ENVIRONMENT: (
        "the machine or the cluster is not ready: network, memory, disk, a client",
        "`brokerstorm doctor` names the remedy",
    ),
    Exit.NOT_HEALED: ("a fault or a leftover could not be undone", "`brokerstorm clean`"),
    Exit.BUG: ("an internal error", "report it with the traceback file that is named"),
    Exit.OUTPUT: (
        "the output could not be written (full disk, closed stream); a verdict is in the run folder",
        "`brokerstorm show`",
    ),
    Exit.INTERRUPTED: (
        "stopped by Ctrl-C before there was a verdict; faults are undone, captured data is kept",
        "`brokerstorm analyze`",
    ),
    Exit.TERMINATED: (
        "stopped by SIGTERM or SIGHUP (closed terminal) before a verdict; otherwise as 130",
        "`brokerstorm analyze`",
    ),
}


#: Problems of one input that are listed, so that the first stays on the screen.
MOST_PROBLEMS: Final = 30


class BrokerstormError(Exception):
    """Base of all errors that brokerstorm raises on purpose.

    Attributes:
        hint: the next step; empty = none.
        further: other problems of the same input, a line each.
    """

    exit_code: Exit = Exit.BUG

    def __init__(self, message: str, *, hint: str = "", further: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.further = tuple(further)

    @classmethod
    def of_lines(cls, lines: Iterable[str], *, hint: str = "") -> Self:
        """One error for all problems of an input, a line each, as far as a terminal shows them.

        Args:
            lines: the problems, at least one; a line that is repeated counts once.
        """
        found = list(dict.fromkeys(lines))
        more = len(found) - MOST_PROBLEMS
        hints = [f"{more} more after these" if more > 0 else "", hint]
        return cls(found[0], hint="; ".join(filter(None, hints)), further=found[1:MOST_PROBLEMS])


class UsageError(BrokerstormError):
    """The command line or a file the user gave cannot be used."""

    exit_code = Exit.USAGE


class ScenarioError(UsageError):
    """A key or value of a scenario is wrong; the message names the key."""


class EnvironmentNotReady(BrokerstormError):
    """The machine or the cluster is not in a state to run."""

    exit_code = Exit.ENVIRONMENT


class WorkerError(BrokerstormError):
    """A worker process could not be built, started or talked to."""

    exit_code = Exit.ENVIRONMENT


class HealError(BrokerstormError):
    """A fault could not be healed: something is left over."""

    exit_code = Exit.NOT_HEALED


class Interrupted(BrokerstormError):
    """The user or the system asked the run to stop; raised after healing has begun."""

    exit_code = Exit.INTERRUPTED

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        is_ctrl_c = signal_number == signal.SIGINT
        self.exit_code = Exit.INTERRUPTED if is_ctrl_c else Exit.TERMINATED


def did_you_mean(wrong: str, known: Iterable[str], *, label: str = "known") -> str:
    """For the end of a message or its hint: ``did you mean kill? known: kill, pause``."""
    names = list(known)
    near = difflib.get_close_matches(wrong, names, n=1)
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return f"{f'did you mean {near[0]}? ' if near else ''}{label}: {listed or 'none'}"


def called_here(asked: str, words: Mapping[str, Mapping[str, str]]) -> str:
    """For the end of a message: what a word of another tool is called here; empty = it is none of
    these.

    Upper and lower case, dots, ``-`` and ``_`` make no difference.

    Args:
        words: tool -> its words -> what to write here. Words of ``applications`` are of no tool.
    """
    for tool, own in words.items():
        for word, here in own.items():
            if _plain(word) == _plain(asked):
                of = "" if tool == "applications" else f" of {tool}"
                return f"{word}{of}, here: {here.replace('`', '')}"
    return ""


def _plain(word: str) -> str:
    return word.replace("-", "").replace("_", "").replace(".", "").lower()
