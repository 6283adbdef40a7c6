"""The compose plugin, version 2: the user's own, or one built from its published Go module into our
cache.

Nothing of the user's is changed: a built plugin is found by a configuration folder of our own,
which only the processes that we start are given.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentNotReady, WorkerError
from harness.toolchains import go as go_tool
from harness.toolchains.cache import cache_folder
from harness.toolchains.jars import Progress

MODULE = "github.com/docker/compose/v5"
#: The last release whose dependencies the module proxy has all of.
VERSION = "v5.5.1"
DOCKER_HINT = "install the docker command (Debian: apt install docker.io)"
BUILD_HINT = (
    "`brokerstorm fetch --images` builds it; or install Docker's package docker-compose-plugin"
)
_ASK_S = 20.0
#: Some 300 modules: half a minute on a machine that has nothing else to do, minutes on a busy one.
_BUILD_S = 1500.0


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that works. ``environment`` is what the docker command must be started with to find
    it."""

    text: str
    environment: Mapping[str, str]


def plugin_folder() -> Path:
    """The configuration folder of ours in which the docker command finds a plugin that we built."""
    return cache_folder() / "docker" / f"compose-{VERSION}"


def find() -> Plugin:
    """The compose plugin that the docker command has, else the one in our cache.

    Raises:
        EnvironmentNotReady: neither is there, or no docker command exists.
    """
    if shutil.which("docker") is None:
        raise EnvironmentNotReady("the docker command is not on the PATH", hint=DOCKER_HINT)
    text = _version(os.environ)
    if text:
        return Plugin(text, os.environ)
    environment = _ours()
    text = _version(environment)
    if text:
        return Plugin(f"{text}, built into {plugin_folder()}", environment)
    raise EnvironmentNotReady(
        "the docker command has no compose plugin of version 2", hint=BUILD_HINT
    )


def ensure(*, on_progress: Progress | None = None) -> Plugin:
    """`find`, after building one into the cache where there is none.

    Raises:
        EnvironmentNotReady: no docker command, no Go, no network, a build that fails.
    """
    try:
        return find()
    except EnvironmentNotReady as error:
        if error.hint != BUILD_HINT:
            raise
    report = on_progress or (lambda text, share: None)
    report(f"building the compose plugin {VERSION} of the docker command, once", None)
    try:
        go_tool.build_once(
            "compose plugin", plugin_folder() / "cli-plugins" / "docker-compose", _build
        )
    except WorkerError as error:
        raise EnvironmentNotReady(str(error), hint=error.hint or BUILD_HINT) from error
    return find()


def _ours() -> dict[str, str]:
    return {**os.environ, "DOCKER_CONFIG": str(plugin_folder())}


def _version(environment: Mapping[str, str]) -> str:
    """Empty without a plugin. A docker command without one may print its own help and be
    content."""
    try:
        done = subprocess.run(
            ["docker", "compose", "version", "--short"],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    number = done.stdout.strip().removeprefix("v")
    return f"compose {number}" if done.returncode == 0 and number[:1].isdigit() else ""


def _build(empty: Path, target: Path) -> None:
    go = go_tool.find_go()
    found = _go([go.path, "mod", "download", "-json", f"{MODULE}@{VERSION}"], empty)
    source = Path(json.loads(found)["Dir"])
    flags = f"-s -w -X {MODULE}/internal.Version={VERSION}"
    _go([go.path, "build", "-ldflags", flags, "-o", str(target), "./cmd"], source)
    target.chmod(0o755)


def _go(command: list[str], folder: Path) -> str:
    try:
        done = go_tool.run_go(command, folder, _BUILD_S)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentNotReady(
            f"the compose plugin was not built within {_BUILD_S:.0f} s", hint=BUILD_HINT
        ) from error
    if done.returncode:
        said = go_tool.first_error(done.stderr or done.stdout)
        raise EnvironmentNotReady(
            f"cannot build the compose plugin with {command[0]}: {said}", hint=BUILD_HINT
        )
    return done.stdout
