"""Drives one Pulsar worker by the protocol: topics in a namespace of the test's own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.clusters.pulsar import PulsarCluster
from harness.protocols.cluster import TopicSettings
from tests.live.worker_rig import RUN_TAG, Rig, Worker

#: Options that mean the same, in each client's words.
WORDS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "pulsar-client-java": {
        "send timeout of 1 s": {"sendTimeoutMs": "1000", "batchingMaxPublishDelayMicros": "1000"},
        "queue of 20": {"maxPendingMessages": "20", "blockIfQueueFull": "false"},
        "gives up after 3 s": {"operationTimeoutMs": "3000", "lookupTimeoutMs": "3000"},
        "shared": {"subscriptionType": "Shared", "negativeAckRedeliveryDelayMicros": "200000"},
    },
    "pulsar-client": {
        "send timeout of 1 s": {"send_timeout_millis": "1000"},
        "queue of 20": {"max_pending_messages": "20", "block_if_queue_full": "false"},
        "gives up after 3 s": {"operation_timeout_seconds": "3"},
        "shared": {"consumer_type": "Shared", "negative_ack_redelivery_delay_ms": "200"},
    },
}


class PulsarRig(Rig):
    """A rig on one Pulsar cluster, whose admin has entered a namespace."""

    def __init__(self, cluster: PulsarCluster, folder: Path) -> None:
        super().__init__(cluster, folder)  # type: ignore[arg-type]
        self.pulsar = cluster
        self.partitions: dict[str, int] = {}

    def topic(self, *, partitions: int = 3, probed: bool = True, **_: Any) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        self.pulsar.admin.create_topics([TopicSettings(name, partitions, 1)])
        if probed:
            self.pulsar.admin.wait_ready([name], timeout_s=60, run_tag=RUN_TAG)
        self.partitions[name] = partitions
        return name

    def describe(self, topic: str) -> dict[str, Any]:
        count = self.partitions.get(topic, 1)
        address = f"persistent://{self.pulsar.admin.namespace}/{topic}"
        return {
            "system": "pulsar",
            "admin_url": "",
            "topics": {topic: {"address": address, "partitions": count}},
            "streams": {f"{topic}-{p}": p + 1 for p in range(count)},
        }

    def sender(self, library: str, topic: str, *, mode: str = "partition", **more: Any) -> Worker:
        lanes = {"partition": self.partitions.get(topic, 1), "key": 50, "routed": 1}[mode]
        return self.producer(library, topic, mode=mode, count=lanes, **more)

    def reader(self, library: str, topic: str, *, name: str = "") -> Worker:
        """A whole audit, from start to done."""
        streams = [f"{topic}-{p}" for p in range(self.partitions[topic])]
        part = {"reader": 1, "streams": streams, "isolation": "read_uncommitted", "stall_s": 5}
        worker = self.start("audit", library, topic, part, name=name)
        worker.wait_ready(30)
        worker.tell("start 1")
        assert worker.wait_done(60), worker.said[-3:]
        assert worker.wait_end() == 0
        return worker
