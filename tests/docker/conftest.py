"""Docker tests use the engine that answers, or start one. On a machine that can have neither they
are skipped with the reason; in continuous integration they fail."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from filelock import FileLock

from harness.clusters import spec_of
from harness.clusters.docker import engine as docker_engine
from harness.clusters.images import compose_plugin, standin
from harness.errors import EnvironmentNotReady
from tests.docker import engine_rig
from tests.machine import alone

#: Two processes with Docker tests do not build the same thing at the same time.
BUILDS = FileLock(Path(tempfile.gettempdir()) / "brokerstorm-image-builds.lock", timeout=1800)
COMMAND_S = 180  # a command in a container may say nothing for as long as a JVM takes to start


@pytest.fixture(scope="session", autouse=True)
def machine() -> Iterator[None]:
    """The same lock as the live tests hold: one set of real brokers at a time."""
    with alone():
        yield


@pytest.fixture(scope="session", autouse=True)
def engine(machine: None) -> Iterator[Any]:
    """A client of the engine (`docker.DockerClient`)."""
    with ExitStack() as stack:
        if engine_rig.why_none():
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(
                    prefix="brokerstorm-dockerd-", ignore_cleanup_errors=True
                )
            )
            try:
                host = stack.enter_context(engine_rig.own_engine(Path(folder)))
            except EnvironmentNotReady as error:
                _refuse(f"no Docker engine answers, and none can be started: {error}")
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("DOCKER_HOST", host)
        client = stack.enter_context(closing(docker_engine.connect()))
        client.api.timeout = COMMAND_S
        yield client


def _refuse(reason: str) -> NoReturn:
    if engine_rig.is_required():
        pytest.fail(f"{reason} ({engine_rig.REQUIRED} is set)", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def plugin(engine: Any) -> compose_plugin.Plugin:
    """The compose plugin; built once where the machine has none."""
    try:
        with BUILDS:
            return compose_plugin.ensure()
    except EnvironmentNotReady as error:
        _refuse(f"no compose plugin: {error}")


@pytest.fixture(scope="session")
def image(engine: Any) -> Callable[..., standin.Image]:
    """`image(system, version="")`: the official image if the engine has it, else a stand-in, built
    once."""

    @cache
    def provide(system: str, version: str = "") -> standin.Image:
        try:
            with BUILDS:
                return standin.provide(engine, spec_of(system, version))
        except EnvironmentNotReady as error:
            _refuse(f"no image of {system}: {error}; {error.hint}")

    return provide
