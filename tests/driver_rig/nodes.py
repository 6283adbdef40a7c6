"""Real processes as the nodes of a cluster that drivers act on."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from harness.admin.health import first_bytes
from harness.clusters.nodes.node_process import NodeFolder, NodeProcess
from harness.protocols.cluster import Endpoint
from harness.waiting import wait_until

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {"PATH": os.environ["PATH"]}
RUN = "drivers"


def operator(cluster: Path, action: str) -> list[str]:
    """The argument list of the command driver for an action of `tests.driver_rig.act_on_node`."""
    return [sys.executable, "-S", str(HERE / "act_on_node.py"), str(cluster), action, "{node}"]


class Nodes:
    """Processes that answer requests, one a name; their files are in one folder each, as a cluster's."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.endpoints = {name: Endpoint("127.0.0.1", _free_port()) for name in names}
        self._processes = {name: NodeProcess(name, NodeFolder(folder / name), RUN) for name in names}
        for name in names:
            self.start(name)
        if not wait_until(lambda: all(map(self.answers, names)), 60, every_s=0.02):
            self.close()
            raise AssertionError(f"not all of {names} answer")

    def answers(self, node: str) -> bool:
        return first_bytes(self.endpoints[node], b"ping", 4, 0.5) == b"pong"

    def start(self, node: str) -> None:
        command = [sys.executable, "-S", str(HERE / "node_server.py"), str(self.endpoints[node].port)]
        self._processes[node].adopt()
        self._processes[node].launch(command, ENVIRONMENT)

    def kill(self, node: str) -> None:
        self._processes[node].adopt()
        self._processes[node].kill()

    def close(self) -> None:
        for node in self._processes:
            self.kill(node)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
