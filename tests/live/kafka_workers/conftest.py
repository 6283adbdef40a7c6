"""One cluster for all contract tests of Kafka's workers, and a rig a test."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clusters.cluster import open_cluster
from harness.clusters.kafka import KafkaCluster
from tests.live.worker_rig import Rig


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    root = tmp_path_factory.mktemp("workers")
    found = open_cluster("kafka", run_id=f"test-{root.name}-{time.monotonic_ns()}", folder=root / "cluster")
    try:
        found.up(timeout_s=120)
        yield found
    finally:
        found.down()
        with warnings.catch_warnings():  # kafka-python leaves sockets of refused connections to the collector
            warnings.simplefilter("ignore", ResourceWarning)
            del found
            gc.collect()


@pytest.fixture
def rig(cluster: KafkaCluster, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(cluster, tmp_path)
    yield made
    made.close()
