"""Checks a command against any input: a documented exit code, one message, little time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import pytest

from analysis.spark.session import WarmSession
from cli import main
from commands import clusters, contract, suites, upkeep
from experiments import variants as running
from experiments.bisect import rounds as bisecting
from experiments.hunt import hunting as hunts
from experiments.repro import rounds as repro
from experiments.shrink import rounds as shrinks
from harness.errors import Exit

CPU_S = 2.0
#: Nothing was wrong, or it was said what is. Neither *fail* (1) nor an internal error (70).
REFUSALS = (Exit.PASS, Exit.USAGE, Exit.UNKNOWN, Exit.ENVIRONMENT)


#: Where a command has accepted what it was given and goes on to start, build, download or judge.
STARTS = (
    *(
        (module, "new_run")
        for module in (running, repro, clusters, contract, bisecting, shrinks, hunts)
    ),
    *((suites, "_begin"), (suites, "_resume")),
    *(
        (upkeep, "fetch_files"),
        (upkeep, "fetch_spark"),
        (upkeep, "_fetch_images"),
        (contract, "_build"),
        (WarmSession, "start"),
    ),
)


class StartedError(BaseException):
    """A command was accepted: what follows would start something. Not an `Exception`, so nothing
    eats it."""


def refuse_to_start(*_: object, **__: object) -> None:
    raise StartedError


def answer(
    arguments: Sequence[str],
    capsys: pytest.CaptureFixture[str],
    told: str,
    *,
    codes: Sequence[Exit] = REFUSALS,
) -> None:
    """Run a command in this process and check its exit code, its CPU time and what it printed.

    Args:
        told: how to make this case again, for the message of a failure.
    """
    began = time.process_time()
    code: int | None = None
    with contextlib.suppress(StartedError):
        code = main(arguments)
    cpu_s = time.process_time() - began
    out, err = capsys.readouterr()
    where = f"{told}: {list(arguments)}: {err[-2000:]}"
    assert code is None or code in codes, f"exit {code}, {where}"
    assert cpu_s < CPU_S, f"{cpu_s:.1f} s of CPU, {where}"
    assert "\x1b" not in out + err, where
