"""Finds the images of a cluster in the Docker engine, and pulls those that it lacks."""

from __future__ import annotations

import time
from typing import Any

from harness.clusters.docker.engine import asking, connect
from harness.clusters.layout.compose import ClusterLayout
from harness.errors import EnvironmentNotReady
from harness.toolchains.jars import Progress

BUILD_HINT = "`brokerstorm fetch --images` builds a stand-in; or use --runtime process"
_ASK_S = 4
_PULL_S = 900.0
_MB = 2**20


def needed(spec: ClusterLayout) -> list[str]:
    """Images of a cluster, each once."""
    return list(dict.fromkeys(service.image for service in spec.services))


def missing(client: Any, spec: ClusterLayout) -> list[str]:
    """Return the images of a layout that the engine does not have."""
    return [tag for tag in needed(spec) if not has_image(client, tag)]


def has_image(client: Any, tag: str) -> bool:
    """Return whether the engine has an image.

    Raises:
        EnvironmentNotReady: the engine does not answer.
    """
    from docker.errors import ImageNotFound

    with asking(f"cannot ask for the image {tag}"):
        try:
            client.api.inspect_image(tag)
        except ImageNotFound:
            return False
    return True


def provide(
    client: Any, spec: ClusterLayout, *, offline: bool, on_progress: Progress | None
) -> None:
    """Pull what the engine lacks.

    Raises:
        EnvironmentNotReady: an image is not there and must not be, or cannot be, pulled.
    """
    for tag in missing(client, spec):
        if offline:
            raise EnvironmentNotReady(
                f"the Docker engine has no image {tag} (--offline)", hint=BUILD_HINT
            )
        can_pull(tag)
        pull(client, tag, on_progress or (lambda text, share: None))


def can_pull(tag: str) -> None:
    """Return when a registry answers for an image; takes some seconds at most.

    Raises:
        EnvironmentNotReady: none does.
    """
    asker = connect()
    asker.api.timeout = _ASK_S
    try:
        with asking(f"the Docker engine has no image {tag}, and no registry gives it"):
            asker.api.inspect_distribution(tag)
    except EnvironmentNotReady as error:
        error.hint = BUILD_HINT
        raise
    finally:
        asker.close()


def pull(client: Any, tag: str, report: Progress) -> None:
    """Pull an image; progress in megabytes.

    Raises:
        EnvironmentNotReady: the registry refuses, or it takes longer than a quarter of an hour.
    """
    deadline = time.monotonic() + _PULL_S
    have: dict[str, int] = {}
    wanted: dict[str, int] = {}
    with asking(f"cannot pull {tag}"):
        for line in client.api.pull(tag, stream=True, decode=True):
            if "error" in line:
                raise EnvironmentNotReady(f"cannot pull {tag}: {line['error']}", hint=BUILD_HINT)
            if time.monotonic() > deadline:
                raise EnvironmentNotReady(
                    f"{tag} is not pulled within {_PULL_S:.0f} s",
                    hint="check the network, then repeat the command",
                )
            detail = line.get("progressDetail") or {}
            if line.get("status") == "Downloading" and detail.get("total"):
                have[line["id"]], wanted[line["id"]] = detail["current"], detail["total"]
                total = sum(wanted.values())
                report(f"pulling {tag} ({total // _MB} MB)", sum(have.values()) / total)
