"""Resolves the runtime `auto` for one cluster: containers where they can work here and now, else
processes.

A run that ends up as processes must not pay for the question: without an engine it is a look at a
socket's path, with an engine that lacks the images one question more. That no registry answered is
remembered for some minutes.
"""

from __future__ import annotations

import json
import time
from contextlib import closing, suppress
from dataclasses import dataclass

from harness.clusters.assembly import why_no_containers
from harness.clusters.docker.engine import connect
from harness.clusters.docker.images import can_pull, missing
from harness.clusters.images import compose_plugin
from harness.clusters.layout.addresses import state_folder
from harness.clusters.layout.compose import ClusterLayout
from harness.errors import BrokerstormError

AUTO, PROCESS, DOCKER = "auto", "process", "docker"
_REMEMBERED_S = 600.0


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """A runtime, and why it is this one: a part of a sentence."""

    runtime: str
    why: str

    def __str__(self) -> str:
        return f"{self.runtime} ({self.why})"


def choose(
    wanted: str, spec: ClusterLayout, *, needs: frozenset[str], offline: bool
) -> RuntimeChoice:
    """The runtime for a cluster. Never raises for ``auto``: what speaks against containers is the
    reason."""
    if wanted != AUTO:
        return RuntimeChoice(wanted, "asked for")
    try:
        return _docker_if_it_can(spec, needs, offline=offline)
    except BrokerstormError as error:
        return RuntimeChoice(PROCESS, str(error).splitlines()[0])


def _docker_if_it_can(
    spec: ClusterLayout, needs: frozenset[str], *, offline: bool
) -> RuntimeChoice:
    from harness.clusters.docker.runtime import DockerRuntime

    if lacking := DockerRuntime.lacking(needs):
        return RuntimeChoice(PROCESS, f"a fault of this scenario needs {', '.join(lacking)}")
    for need in sorted(needs):
        if reason := DockerRuntime.why_not(need):
            return RuntimeChoice(PROCESS, reason)
    with closing(connect()) as client:
        lacks = missing(client, spec)
    if reason := why_no_containers(spec):
        return RuntimeChoice(PROCESS, reason)
    if lacks:
        if offline or _was_refused(lacks[0]):
            return RuntimeChoice(PROCESS, f"the Docker engine has no image {lacks[0]}")
        try:
            can_pull(lacks[0])
        except BrokerstormError:
            _remember_refusal(lacks[0])
            raise
    compose_plugin.find()
    have = f"pulls {', '.join(lacks)}" if lacks else "has the images"
    return RuntimeChoice(DOCKER, f"a Docker engine answers and {have}")


def _was_refused(tag: str) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError):
        row = json.loads((state_folder().parent / "registry.json").read_text())
        return bool(row["tag"] == tag and 0 <= time.time() - row["at_s"] < _REMEMBERED_S)
    return False


def _remember_refusal(tag: str) -> None:
    with suppress(OSError):
        (state_folder().parent / "registry.json").write_text(
            json.dumps({"tag": tag, "at_s": time.time()})
        )
