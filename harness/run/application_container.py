"""One life of an instance of an application whose program is in an image of the user."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGKILL
from typing import Final

from harness.clusters.docker.programs import ProgramContainer
from harness.contracts.plan import ApplicationPlan
from harness.errors import EnvironmentNotReady, WorkerError
from harness.owners import ROLE, RUN_ID, STATE
from harness.run.application_process import ApplicationProcess
from harness.waiting import wait_until

_LOG = logging.getLogger(__name__)
#: The engine starts a container within this, or something is wrong with it.
_BEGIN_S: Final = 60.0
#: The engine reports the end by signal N as this plus N.
_BY_SIGNAL: Final = 128
_MOST_SIGNAL: Final = 64


class ApplicationContainer(ApplicationProcess):
    """An `ApplicationProcess` in a container. A local process of the docker command passes on its
    output and exit code; signals go to the container.

    The container bears the labels of the run and is removed when the program has ended.
    """

    def __init__(
        self, plan: ApplicationPlan, instance: str, life: int, folder: Path, folders: Sequence[Path]
    ) -> None:
        """``folders``: have the same paths inside."""
        super().__init__(plan, instance, life, folder)
        self._folders = folders
        self._container: ProgramContainer | None = None
        self._pid = 0

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], secrets: Sequence[str] = ()
    ) -> None:
        """Start the container and return when its program runs or has ended. Only ``env`` is in its
        environment.

        Raises:
            EnvironmentNotReady: the engine does not answer or refuses it.
            WorkerError: the docker command cannot be started, or the container does not start.
        """
        super().start(argv, env, secrets)

        def has_begun() -> bool:
            self._pid = self._container.pid() if self._container else 0
            return self._pid > 0 or self._ended.is_set()

        if not wait_until(has_begun, _BEGIN_S, every_s=0.05):
            self.kill()
            raise WorkerError(
                f"{self.name}: its container did not start within {_BEGIN_S:g} s{self.last_lines()}",
                hint="docker info",
            )

    def _open(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        for folder in self._folders:
            folder.chmod(0o777)  # the user inside may be any
        self._container = ProgramContainer(
            env[RUN_ID], self.instance, self.plan.image, argv, env, self._folders
        )
        marks = {name: env[name] for name in (RUN_ID, STATE, ROLE) if name in env}
        return super()._open(self._container.start_command, marks)

    @property
    def pid(self) -> int:
        """Process id of the program on this machine; 0 before it is started."""
        return self._pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, minus the number of the signal that ended it; None while it runs. A
        program that exits with 128 and the number of a signal counts as ended by that signal."""
        code = super().exit_code
        if code is not None and _BY_SIGNAL < code <= _BY_SIGNAL + _MOST_SIGNAL:
            return _BY_SIGNAL - code
        return code

    def _send(self, number: int) -> None:
        try:
            if self._container is not None:
                self._container.send(number)
        except EnvironmentNotReady as error:  # it did not end, which its callers look at
            _LOG.warning("%s: %s", self.name, error)

    def _kill_group(self) -> None:
        """Kill the program. The processes that it started end with it."""
        if self.is_alive:
            self._send(SIGKILL)

    def _after_end(self) -> None:
        if self._container is not None:
            self._container.remove()
