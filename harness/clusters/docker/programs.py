"""Containers that run a program of the user next to a cluster, such as an instance of an
application under test.

Such a container uses the network of this machine, because the addresses of the brokers, and of the
proxies before them, are on its loopback interface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from harness.clusters.docker import engine
from harness.clusters.docker.engine import asking
from harness.clusters.docker.images import has_image
from harness.errors import EnvironmentNotReady

#: Names the instance that a container is a life of.
INSTANCE_LABEL: Final = "brokerstorm.instance"


def why_not(image: str) -> tuple[str, str]:
    """Why the Docker engine cannot run a program of an image here, and what to do about it; two
    empty texts when it can."""
    if engine.socket_path() is None:
        return (
            "the Docker engine is on another machine (DOCKER_HOST), where the addresses of the brokers"
            " mean nothing",
            "unset DOCKER_HOST",
        )
    try:
        with closing(engine.connect()) as client:
            if has_image(client, image):
                return "", ""
    except EnvironmentNotReady as error:
        return str(error), error.hint
    return f"the Docker engine has no image {image}", f"docker pull {image}, or docker build"


class ProgramContainer:
    """One container that runs a program of the user once, until it ends. Thread-safe.

    Attributes:
        start_command: the command that starts it and passes on its output and exit code.
    """

    def __init__(
        self,
        run_id: str,
        instance: str,
        image: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        folders: Sequence[Path],
    ) -> None:
        """Make the container; `start_command` starts it. A container that an interrupted run left
        of the same instance is removed before.

        Args:
            argv: arguments of the image's entry point; empty = the image's own command.
            folders: folders of this machine that have the same paths inside.

        Raises:
            EnvironmentNotReady: the engine does not answer or refuses it.
        """
        from docker.types import Mount

        labels = {**engine.labels_of(run_id), INSTANCE_LABEL: instance}
        self._instance = instance
        self._client = engine.connect()
        with asking(f"cannot make the container of {instance}"):
            for before in self._client.containers.list(
                all=True,
                sparse=True,
                filters={"label": [f"{name}={value}" for name, value in labels.items()]},
            ):
                before.remove(force=True, v=True)
            self._container: Any = self._client.containers.create(
                image,
                list(argv) or None,
                environment=dict(env),
                labels=labels,
                network_mode="host",
                mounts=[Mount(str(path), str(path), type="bind") for path in folders],
            )
        self.start_command = ("docker", "start", "--attach", str(self._container.id))

    def pid(self) -> int:
        """The process id of its first process on this machine; 0 while it does not run."""
        from docker.errors import NotFound

        with asking(f"cannot ask for the state of the container of {self._instance}"):
            try:
                state = self._client.api.inspect_container(self._container.id)["State"]
            except NotFound:  # it has ended and was removed
                return 0
        return int(state.get("Pid") or 0) if state.get("Running") else 0

    def send(self, number: int) -> None:
        """Send a signal to its first process. Nothing happens when that has ended.

        Raises:
            EnvironmentNotReady: the engine does not answer or refuses it.
        """
        from docker.errors import APIError, NotFound

        with asking(f"cannot send signal {number} to {self._instance}"):
            try:
                self._container.kill(signal=number)
            except NotFound:
                return
            except APIError:
                if self.pid():
                    raise

    def remove(self) -> None:
        """Remove it with its own volumes. If the engine does not do it, `clean` will."""
        with suppress(EnvironmentNotReady), asking(f"cannot remove {self._instance}"):
            self._container.remove(force=True, v=True)
        self._client.close()
