"""Live tests use the machine alone: a second test run waits for the first. They share clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.rundir import RunDir
from harness.systems.kafka.assembly import KafkaCluster
from tests.live.cluster_rig import ClusterPool, FaultRig
from tests.machine import alone
from tests.scheduling import group_of

POOL = pytest.StashKey[ClusterPool]()


@pytest.fixture(scope="session", autouse=True)
def machine() -> Iterator[None]:
    """Held from the first live test to the last."""
    with alone():
        yield


@pytest.fixture(scope="session")
def pool(
    machine: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ClusterPool:
    """The clusters that tests share."""
    made = ClusterPool(tmp_path_factory.mktemp("pool"))
    request.config.stash[POOL] = made
    return made


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A cluster goes with the last test that may share it: an idle one takes a tenth of a core."""
    pool = item.config.stash.get(POOL, None)
    if pool and (nextitem is None or group_of(nextitem.nodeid) != group_of(item.nodeid)):
        pool.close()


@pytest.fixture
def kafka(pool: ClusterPool) -> KafkaCluster:
    """The cluster that any fault can hit, whole."""
    return pool.kafka_for_faults()


@pytest.fixture
def begin(kafka: KafkaCluster, tmp_path: Path) -> Iterator[Callable[..., FaultRig]]:
    """Begins fault steps on it, each time in a run of its own."""
    made: list[FaultRig] = []

    def one(*steps: dict[str, Any]) -> FaultRig:
        made.append(FaultRig(kafka, RunDir(tmp_path / f"run-{len(made)}").create(), *steps))
        return made[-1]

    yield one
    for rig in made:
        rig.injector.heal_all(60)
