"""The command driver: programs of the user's, run with a list of arguments and never by a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar, cast

from harness.clusters.drivers.driver import Driver, State
from harness.connections.drivers import (
    ACTIONS,
    CHECK_CODES,
    NODE,
    Action,
    CommandDriverPart,
    CommandPart,
)
from harness.errors import EnvironmentNotReady

_SAID_BYTES = 4096
_SHOWN = 200


class CommandDriver(Driver):
    """Runs one program an action. They start in the connection file's folder and read nothing."""

    name: ClassVar[str] = "command"

    def __init__(
        self, part: CommandDriverPart, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._part = part
        self._folder = folder
        self._environment = dict(environment)
        self.actions = frozenset(action for action in ACTIONS if getattr(part, action))

    def act(self, action: Action, node: str, *, grace_s: float = 0.0) -> None:
        code, said = self._run(action, cast("CommandPart", getattr(self._part, action)), node)
        if code:
            raise _failed(action, node, f"ended with exit code {code}", said)

    def state(self, node: str) -> State:
        code, said = self._run("check", self._part.check, node)
        if code not in CHECK_CODES:
            codes = "0 (running), 1 or 3 (down) or 10 (paused)"
            raise _failed(
                "check", node, f"ended with exit code {code}, which is not one of {codes}", said
            )
        return cast("State", CHECK_CODES[code])

    def _run(self, what: str, command: CommandPart, node: str) -> tuple[int, str]:
        """Exit code and the last line that was printed. What it prints goes to a file: a broker
        that it starts may hold a pipe open for days."""
        argv = [argument.replace(NODE, node) for argument in command.run]
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    argv,
                    cwd=self._folder,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise _failed(what, node, f"cannot start {argv[0]}: {error.strerror}", "") from None
            try:
                code = process.wait(command.timeout)
            except subprocess.TimeoutExpired:
                _end(process)
                why = f"did not end within {command.timeout:g} s and was killed"
                raise _failed(what, node, why, _last_line(said)) from None
            except BaseException:  # Ctrl-C: nothing would wait for it any more
                _end(process)
                raise
            return code, _last_line(said)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The program and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(said: IO[bytes]) -> str:
    said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID_BYTES))
    lines = said.read().decode(errors="replace").split("\n")
    return next((line.strip()[:_SHOWN] for line in reversed(lines) if line.strip()), "")


def _failed(what: str, node: str, why: str, said: str) -> EnvironmentNotReady:
    said_text = f'; it said "{said}"' if said else ""
    return EnvironmentNotReady(
        f"the command driver's {what} of {node} {why}{said_text}",
        hint=f"run the list at drivers.command.{what} by hand",
    )
