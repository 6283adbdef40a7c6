"""Checks of engine, compose plugin and images, for clusters in containers; each with its remedy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from harness.clusters import spec_of
from harness.clusters.assembly import why_no_containers
from harness.clusters.docker import engine, images
from harness.clusters.images import compose_plugin, standin
from harness.clusters.layout.compose import ClusterLayout
from harness.errors import EnvironmentNotReady
from harness.need import Need

#: A Pulsar stand-in with its base is 600 MB; a run's volumes hold every message three times.
ENGINE_DISK_MB = 4000
_MB = 2**20


def docker_checks(
    system: str, version: str = "", topology: str = "", *, needed: bool = True
) -> list[Need]:
    """Engine, plugin, images and the engine's disk, for a run of a system on Docker.

    Args:
        needed: whether the run must be on Docker; where it may be, these say what Docker lacks.

    Raises:
        UsageError: no such system, version or topology.
    """
    spec = spec_of(system, version, topology)
    found = [_plugin_check()]
    try:
        client = engine.connect()
    except EnvironmentNotReady as error:
        found.insert(0, Need("docker engine", False, str(error), _engine_remedy(error.hint)))
    else:
        try:
            found = [
                _engine_check(client),
                *found,
                _images_check(client, spec),
                _disk_check(client),
            ]
        except EnvironmentNotReady as error:  # it went away between two questions
            found.insert(0, Need("docker engine", False, str(error), error.hint))
        finally:
            client.close()
    return [Need(check.name, check.ok, check.text, check.remedy, needed) for check in found]


def _engine_remedy(hint: str) -> str:
    """An engine that is not installed cannot be started."""
    if os.environ.get("DOCKER_HOST") or shutil.which(
        "dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"
    ):
        return hint
    return f"install one (Debian, Ubuntu: apt install docker.io iptables), then {hint}"


def _engine_check(client: Any) -> Need:
    with engine.asking("the Docker engine does not report its version"):
        version = client.version()
    return Need("docker engine", True, f"{version['Version']}, API {version['ApiVersion']}")


def _plugin_check() -> Need:
    try:
        return Need("compose plugin", True, compose_plugin.find().text)
    except EnvironmentNotReady as error:
        return Need("compose plugin", False, str(error), error.hint)


def _images_check(client: Any, spec: ClusterLayout) -> Need:
    if reason := why_no_containers(spec):
        return Need("images", False, reason, "use --runtime process")
    tag = standin.image_of(spec)
    image = standin.look(client, tag)
    if image.kind != "absent":
        return Need("images", True, f"{tag}: {image.kind}, {image.size_mb} MB")
    try:
        images.can_pull(tag)
    except EnvironmentNotReady as error:
        remedy = (
            f"`brokerstorm fetch --images --system {spec.system} --version {spec.version}` builds "
            "a stand-in"
        )
        return Need("images", False, str(error), remedy)
    return Need("images", True, f"{tag} not there yet; a registry gives it")


def _disk_check(client: Any) -> Need:
    """Check the disk of the engine's data folder, if it is on this machine."""
    with engine.asking("the Docker engine does not report where its data is"):
        folder = Path(client.info()["DockerRootDir"])
    try:
        free_mb = shutil.disk_usage(folder).free // _MB
    except OSError:
        return Need(
            "disk of the docker engine", True, f"{folder} is not on this machine; not checked"
        )
    ok = free_mb >= ENGINE_DISK_MB
    text = f"{free_mb} MB free at {folder}, {ENGINE_DISK_MB} MB needed"
    remedy = "" if ok else "free some space: `docker system df` shows what the engine holds"
    return Need("disk of the docker engine", ok, text, remedy)
