"""Real processes as the nodes of a cluster that drivers act on."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from harness.admin.health import first_bytes
from harness.protocols.cluster import Endpoint
from harness.waiting import wait_until

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {"PATH": os.environ["PATH"]}
_DOWN = 3


def operator(cluster: Path, action: str) -> list[str]:
    """The argument list of the command driver for an action of `tests.driver_rig.act_on_node`."""
    return [sys.executable, "-S", str(HERE / "act_on_node.py"), str(cluster), action, "{node}"]


class Nodes:
    """Processes that answer requests, one a name, each with a folder as a cluster's nodes have.

    They are an operator's: none bears the id of a run, or a `clean` beside these tests would end
    them.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.endpoints = {name: Endpoint("127.0.0.1", _free_port()) for name in names}
        for name, endpoint in self.endpoints.items():
            (folder / name / "logs").mkdir(parents=True)
            (folder / name / "pid.json").write_text(json.dumps({"node": name}))
            server = [sys.executable, "-S", str(HERE / "node_server.py"), str(endpoint.port)]
            how = {
                "cmdline": server,
                "environ": [f"{key}={value}" for key, value in ENVIRONMENT.items()],
            }
            (folder / name / "started_as.json").write_text(json.dumps(how))
            self.start(name)
        if not wait_until(lambda: all(map(self.answers, names)), 60, every_s=0.02):
            self.close()
            raise AssertionError(f"not all of {names} answer")

    def answers(self, node: str) -> bool:
        return first_bytes(self.endpoints[node], b"ping", 4, 0.5) == b"pong"

    def start(self, node: str) -> None:
        assert self._act("restart", node) == 0, f"{node} was not started"

    def kill(self, node: str) -> None:
        if self._act("check", node) != _DOWN:
            self._act("kill", node)

    def close(self) -> None:
        for node in self.endpoints:
            self.kill(node)

    def _act(self, action: str, node: str) -> int:
        command = [part.format(node=node) for part in operator(self.folder, action)]
        return subprocess.run(command, timeout=60, check=False).returncode


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
