"""Brings the topology of a compose file up, by the compose plugin through testcontainers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.clusters.docker.wiring import env_text
from harness.clusters.layout.compose import ClusterLayout
from harness.errors import EnvironmentNotReady
from harness.owners import marks_of

ENV_FILE = "compose.env"
_UP_S = 300.0
_CAUSES = (
    (
        r"port is already allocated|address already in use|failed to bind host port",
        "a published port is taken: see `ss -ltnp`",
    ),
    (
        r"no space left on device",
        "free some disk space: `docker system df` shows what the engine holds",
    ),
    (
        r"pull access denied|manifest unknown|no such host|failed to resolve|TLS handshake|i/o timeout",
        "no registry gives the image: `brokerstorm fetch --images` builds it",
    ),
    (r"permission denied.*docker\.sock", "join the group of the engine's socket"),
    (
        r"Cannot connect to the Docker daemon|error during connect",
        "check the Docker daemon: `docker info`",
    ),
    (
        r"pool.*overlaps|could not find an available",
        "`docker network prune` removes unused networks",
    ),
)


class CannotCompose(EnvironmentNotReady):
    """The plugin gave up; its last lines."""


def up(
    spec: ClusterLayout,
    files: Sequence[Path],
    folder: Path,
    values: Mapping[str, str],
    environment: Mapping[str, str],
    services: Sequence[str] = (),
    profiles: Sequence[str] = (),
) -> None:
    """Start every service of the topology, or these; returns when all were started, steps of the
    start done.

    Not when they are healthy: a cluster is waited for by asking the brokers, more often and more
    strictly.

    Args:
        files: the compose file of the system, and what is laid over it.
        folder: of the cluster; the env file goes there, so that a person can use the plugin too.
        values: the compose file's variables.
        environment: of the plugin's process.
        services: the only ones to start; all of them when empty.
        profiles: of services besides the topology's.

    Raises:
        CannotCompose: the plugin's own words.
    """
    env_file = folder / ENV_FILE
    try:
        env_file.write_text(env_text(values))
    except OSError as error:
        raise EnvironmentNotReady(f"cannot write {env_file}: {error.strerror}") from error
    # What a user's shell has under these names must not win over the file.
    inherited = {name: value for name, value in environment.items() if name not in values}
    try:
        _compose(
            [str(file) for file in files],
            env_file,
            [profile for profile in (spec.topology, *profiles) if profile],
            list(services),
            {**inherited, **marks_of(values["BROKERSTORM_RUN_ID"])},
        ).start()
    except subprocess.CalledProcessError as error:
        raise _refused(
            error.stderr.decode(errors="replace") + error.stdout.decode(errors="replace")
        ) from None
    except subprocess.TimeoutExpired:
        raise CannotCompose(
            f"the containers are not started within {_UP_S:.0f} s",
            hint="close other programs, then repeat the command",
        ) from None
    except FileNotFoundError:
        raise EnvironmentNotReady(
            "the command `docker` is not there", hint="`brokerstorm doctor` says how to install it"
        ) from None


def _compose(
    files: list[str],
    env_file: Path,
    profiles: list[str],
    services: list[str],
    environment: Mapping[str, str],
) -> Any:
    """testcontainers' `DockerCompose` of these files, which runs the plugin as we need it."""
    from testcontainers.compose import DockerCompose

    class Compose(DockerCompose):  # type: ignore[misc]
        def _run_command(self, cmd: list[str], context: str | None = None) -> Any:
            # A session of its own keeps Ctrl-C from reaching the plugin before we decided what to
            # do; the run id in its environment is how `clean` finds it when we are killed.
            return subprocess.run(
                cmd,
                capture_output=True,
                check=True,
                cwd=context or self.context,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                timeout=_UP_S,
            )

    return Compose(
        context=env_file.parent,
        compose_file_name=files,
        env_file=str(env_file),
        profiles=profiles or None,
        docker_command_path="docker",
        services=services or None,
        wait=False,
    )


def _refused(output: str) -> CannotCompose:
    if "unknown command: docker compose" in output or "'compose' is not a docker command" in output:
        return CannotCompose(
            "the docker command has no compose plugin (version 2)",
            hint="`brokerstorm doctor` says how to install it",
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [
        line for line in lines if re.search(r"[Ee]rror|unhealthy|exited|denied|no such", line)
    ]
    hint = next((remedy for pattern, remedy in _CAUSES if re.search(pattern, output)), "")
    said = (telling or lines or ["it said nothing"])[-1]
    return CannotCompose(f"docker compose up: {said[:300]}", hint=hint)
