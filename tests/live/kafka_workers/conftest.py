"""One cluster for all contract tests of Kafka's workers, and a rig a test."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clusters.kafka import KafkaCluster
from tests.live.cluster_rig import up
from tests.live.worker_rig import Rig


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with up("kafka", tmp_path_factory.mktemp("workers")) as found:
        yield found
    with warnings.catch_warnings():  # kafka-python leaves sockets of refused connections to the collector
        warnings.simplefilter("ignore", ResourceWarning)
        del found
        gc.collect()


@pytest.fixture
def rig(cluster: KafkaCluster, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(cluster, tmp_path)
    yield made
    made.close()
