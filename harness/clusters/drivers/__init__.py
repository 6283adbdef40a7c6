"""Drivers: what does something to the nodes of a cluster that brokerstorm did not start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.clusters.drivers.driver import Driver
from harness.connections.drivers import DriversPart

__all__ = ["Driver", "drivers_of"]


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
