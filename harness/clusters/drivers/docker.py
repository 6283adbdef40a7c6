"""The docker driver: containers that bear a label, on any engine that Docker's library reaches."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, ClassVar, Final

from harness.clusters.docker.engine import asking
from harness.clusters.drivers.driver import Driver, State
from harness.connections.drivers import NODE, Action, DockerDriverPart
from harness.errors import EnvironmentNotReady

#: An engine's word for how a container is -> ours; others are "down".
_STATES: Final[dict[str, State]] = {"running": "running", "paused": "paused"}
_HINT: Final = "look at drivers.docker of the connection file, and at `docker ps --all` there"


class DockerDriver(Driver):
    """Every action is one request to the engine of a node."""

    name: ClassVar[str] = "docker"
    actions: frozenset[Action] = frozenset({"kill", "stop", "restart", "pause", "resume"})

    def __init__(self, part: DockerDriverPart) -> None:
        self._part = part
        self._clients: dict[str, Any] = {}

    def act(self, action: Action, node: str, *, grace_s: float = 0.0) -> None:
        with asking(f"the docker driver cannot {action} {node}", hint=_HINT):
            self._act(self._container(node), action, grace_s)

    def _act(self, container: Any, action: Action, grace_s: float) -> None:
        if action == "kill":
            container.kill()
        elif action == "stop":
            # the library waits that much longer by itself
            container.stop(timeout=max(1, round(grace_s)))
        elif action == "restart":
            container.start()
        elif action == "pause":
            container.pause()
        else:
            container.unpause()

    def state(self, node: str) -> State:
        with asking(f"the docker driver cannot ask for {node}", hint=_HINT):
            return _STATES.get(self._container(node).attrs["State"], "down")

    def _container(self, node: str) -> Any:
        """Return a node's container from the engine's list, without inspecting it.

        Raises:
            EnvironmentNotReady: not exactly one bears the label.
        """
        label = self._part.label.replace(NODE, node)
        found = self._client(node).containers.list(
            all=True, sparse=True, filters={"label": label.split(",")}
        )
        if len(found) != 1:
            names = ", ".join(each.attrs["Names"][0].lstrip("/") for each in found)
            raise EnvironmentNotReady(
                f"the docker driver finds {len(found)} containers with the label {label}, where"
                f" {node} needs one{': ' if names else ''}{names}",
                hint=_HINT,
            )
        return found[0]

    def _client(self, node: str) -> Any:
        host = self._part.host.replace(NODE, node)
        if host not in self._clients:
            import docker

            environment = {**os.environ, "DOCKER_HOST": host} if host else dict(os.environ)
            self._clients[host] = docker.from_env(
                timeout=self._part.timeout, environment=environment
            )
        return self._clients[host]

    def close(self) -> None:
        for client in self._clients.values():
            with suppress(Exception):
                client.close()
        self._clients.clear()
