"""The things that a command lends an experiment, for tests."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cli import cli
from commands.console import Settings
from commands.repeating import repeat_command
from harness.run.interrupts import Interrupts


def settings(run_dir: Path, *, json: bool = False, quiet: bool = True) -> Settings:
    """Of a command line with no option but the folder of runs; no colour."""
    return Settings(
        json=json,
        quiet=quiet,
        verbose=0,
        color=False,
        run_dir=run_dir,
        interrupts=Interrupts(),
        repeat=partial(repeat_command, cli),
    )
