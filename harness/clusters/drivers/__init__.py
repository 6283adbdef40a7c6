"""Drivers: what does something to the nodes of a cluster that brokerstorm did not start."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.clusters.drivers.driven import DrivenNodes, abilities_of, is_open
from harness.clusters.drivers.driver import Driver
from harness.connections.drivers import DriversPart
from harness.connections.file import Connection
from harness.owners import RUN_ID
from harness.protocols.cluster import Admin, Endpoint, HasHealthProbe, Node

__all__ = ["DrivenNodes", "Driver", "drivers_of", "drivers_on"]


def drivers_on(connection: Connection, nodes: Sequence[Node], admin: Admin) -> list[DrivenNodes]:
    """Return what the drivers of a connection file can do with the nodes of a cluster, one part for
    each ability.

    Args:
        nodes: those that are registered now; others of the file may be down.
    """
    file = connection.file
    # A broker that a program starts must not look like a process of the run: `clean` would end it.
    environment = {name: value for name, value in os.environ.items() if name != RUN_ID}
    drivers = drivers_of(file.drivers, connection.path.parent, environment)
    known = {node.name: node.client for node in nodes}
    named = {name: _endpoint(one.address) for name, one in file.nodes.items()}
    places = named | known

    def answers(node: str) -> bool:
        if node in known and isinstance(admin, HasHealthProbe):
            return admin.answers(node)
        return is_open(places[node])

    return abilities_of(drivers, places, answers)


def _endpoint(address: str) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(host, int(port) if port.isdigit() else 0)


def drivers_of(part: DriversPart, folder: Path, environment: Mapping[str, str]) -> list[Driver]:
    """The drivers that a connection file names, in its order of preference; nothing is reached yet.

    Args:
        folder: of the connection file; paths in it are relative to it.
        environment: of the programs that a command driver runs.
    """
    found: list[Driver] = []
    if part.command:
        from harness.clusters.drivers.command import CommandDriver

        found.append(CommandDriver(part.command, folder, environment))
    if part.docker:
        from harness.clusters.drivers.docker import DockerDriver

        found.append(DockerDriver(part.docker))
    if part.kubernetes:
        from harness.clusters.drivers.kubernetes import KubernetesDriver

        found.append(KubernetesDriver(part.kubernetes, folder))
    return found
