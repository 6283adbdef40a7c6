"""The docker driver on brokers: containers that our runtime started count as somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.engine.ledger import Ledger
from harness.clusters import open_cluster
from harness.clusters.docker import engine as docker_engine
from harness.rundir import RunDir
from harness.systems.kafka.assembly import KafkaCluster
from tests.driver_rig.external import (
    ORDERS,
    clean_heals,
    connection_file,
    external,
    killed_amid_a_kill,
)
from tests.live.cluster_rig import UP_S, fire, make_whole, new_run_id

#: A cluster of its own in containers, for what `tests/live/test_drivers.py` shows by day with
#: processes.
pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.usefixtures("plugin")]


@pytest.fixture(scope="module")
def ours(
    image: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    image("kafka")
    found = open_cluster(
        "kafka", run_id=new_run_id(), folder=tmp_path_factory.mktemp("cluster"), runtime="docker"
    )
    try:
        found.up(timeout_s=UP_S)
        yield found
    finally:
        found.down()


@pytest.fixture
def file(ours: KafkaCluster, tmp_path: Path) -> Path:
    make_whole(ours)
    label = f"{docker_engine.LABEL}={ours.runtime.run_id},com.docker.compose.service={{node}}"
    return connection_file(ours, tmp_path, {"docker": {"label": label, "timeout": "60s"}})


def test_containers_are_killed_stopped_and_paused_by_label(
    file: Path, ours: KafkaCluster, tmp_path: Path
) -> None:
    run = RunDir(tmp_path / new_run_id()).create()
    found = external(file, run)
    try:
        for step, done in (
            ({"fault": "kill", "target": "kafka-1", "for": "1s"}, "kafka-1: no longer answers"),
            ({"fault": "restart", "target": "kafka-2"}, "kafka-2: stopped in"),
            (
                {"fault": "pause", "target": "kafka-3", "for": "2s"},
                "kafka-3: answers nothing, its driver",
            ),
        ):
            rows = fire(found, run, [ORDERS], step)  # type: ignore[arg-type]
            assert rows["effect"]["effective"], rows
            assert done in rows["effect"]["evidence"]
        assert Ledger(run).entries() == []
    finally:
        found.down()


def test_clean_starts_a_container_that_a_killed_run_left_dead(
    file: Path, ours: KafkaCluster, tmp_path: Path
) -> None:
    run = RunDir(tmp_path / new_run_id())
    killed_amid_a_kill(file, run, "kafka-3")
    assert not ours.admin.answers("kafka-3")
    clean_heals(file, run, ours, "kafka-3")
