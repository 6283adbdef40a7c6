"""Runs the commands that the summary of a run prints, as its reader would.

A command that would start brokers again is taken as far as that.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from harness.errors import Exit
from tests.cli.answers import STARTS, StartedError, refuse_to_start
from tests.live.run_rig import brokerstorm

STARTERS = ("run", "repro", "suite", "shrink", "hunt", "bisect")


def printed_commands(summary: str) -> list[list[str]]:
    """The words after ``brokerstorm`` of each command at the end of a summary."""
    lines = re.findall(r"^[a-z]+ +brokerstorm (.+)$", summary, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def follow_summary(run: Path | str) -> list[list[str]]:
    """Show the summary of a run or of an experiment, and run each command in it.

    Returns:
        The commands, as `printed_commands` does.
    """
    shown = brokerstorm("show", str(run))
    assert shown.out, shown.err  # the exit code is the verdict
    (page,) = re.findall(r"^report +(.+)$", shown.out, re.MULTILINE)
    assert Path(page).is_file(), page
    commands = printed_commands(shown.out)
    for words in commands:
        if words[0] in STARTERS:
            assert_accepted(words)
            continue
        assert_answered(words)
        if words[0] == "trace":
            assert_answered(["trace", "--first", words[2]])
    return commands


def assert_accepted(words: list[str]) -> None:
    """The command goes as far as the start of brokers, and no further."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in STARTS:
            patch.setattr(owner, name, refuse_to_start)
        with pytest.raises(StartedError):
            brokerstorm(*words)


def assert_answered(words: list[str]) -> None:
    """The command succeeds; a trace is of the message that it names."""
    said = brokerstorm(*words)
    assert said.code == Exit.PASS, (words, said.out, said.err)
    if words[0] == "trace" and words[1] != "--first":
        assert said.out.startswith(words[1]), (words, said.out)
        assert "was never sent" not in said.out + said.err, (words, said.out)
