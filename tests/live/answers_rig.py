"""Faults on answers while a test is a client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.clusters.cluster import BrokerCluster
from harness.protocols.cluster import TopicSettings
from harness.protocols.network import ANSWERS, CLIENT_DETOURS
from harness.rundir import RunDir, read_jsonl
from harness.waiting import wait_until
from tests.live.cluster_rig import UP_S, ClusterPool, injector_of

#: What a cluster of these tests is started with.
NEEDS = frozenset({CLIENT_DETOURS, ANSWERS})


def cluster_with(pool: ClusterPool, system: str, topic: TopicSettings) -> BrokerCluster[Any]:
    """The pool's cluster of a system with proxies, and a topic that is ready."""
    found = pool.get(system, needs=NEEDS)
    if topic.name not in found.admin.topics():
        found.admin.create_topics([topic])
        found.admin.wait_ready([topic.name], timeout_s=UP_S, run_tag=1)
    return found


@contextmanager
def lying(
    cluster: BrokerCluster[Any], topic: TopicSettings, run: RunDir, step: dict[str, Any]
) -> Iterator[None]:
    """A fault while the block runs; it must have met what the block did."""
    whole = {"target": "all", "together": True, "at": 0, "for": "5m", **step}
    injector = injector_of(cluster, run, [topic], whole)
    injector.start(time.monotonic_ns())

    def rows(event: str) -> list[dict[str, Any]]:
        return [row for row in read_jsonl(run.faults) if row["event"] == event]

    kind = cluster.runtime.detours
    assert wait_until(
        lambda: bool(rows("inject") and kind and kind._proxy.rules()), 20, every_s=0.02
    )
    try:
        yield
        assert wait_until(lambda: bool(rows("effect")), 20, every_s=0.02)
    finally:
        assert injector.heal_all(UP_S) == []
    (effect,) = rows("effect")[-1:]
    assert effect["effective"], effect
