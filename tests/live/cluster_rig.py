"""Clusters as processes for as long as a test needs them, and a fault on one of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import faults
from harness import waiting
from harness.clusters import open_cluster
from harness.clusters.cluster import BrokerCluster
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir, read_jsonl

UP_S = 180.0  # a start takes 3 to 8 s; these tests also run on machines that do other things


def new_run_id() -> str:
    return f"live-{os.getpid()}-{time.monotonic_ns()}"


@contextmanager
def up(system: str, folder: Path, *topics: TopicSettings, **more: Any) -> Iterator[BrokerCluster[Any]]:
    """A cluster that works, with its topics; gone at the end. ``more``: as of `open_cluster`."""
    found = open_cluster(system, run_id=new_run_id(), folder=folder / "cluster", **more)
    try:
        found.up(timeout_s=UP_S)
        if system == "pulsar":
            found.admin.enter_namespace(f"public/bs-{os.getpid():08x}")
        if topics:
            found.admin.create_topics(topics)
            found.admin.wait_ready([topic.name for topic in topics], timeout_s=UP_S, run_tag=1)
        yield found
    finally:
        found.down()


def make_whole(cluster: BrokerCluster[Any], *names: str) -> None:
    """Every node running and every partition of the topics in sync, whatever the test before did."""
    for node in cluster.runtime.nodes:
        cluster.runtime.resume(node.name)
        cluster.runtime.start(node.name)
    cluster.admin.wait_ready(names, timeout_s=UP_S, run_tag=1)


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    assert waiting.wait_until(condition, timeout_s, every_s=0.05), f"{what}: not within {timeout_s:.0f} s"


def injector_of(
    cluster: BrokerCluster[Any], run: RunDir, topics: Sequence[TopicSettings], *steps: dict[str, Any]
) -> faults.Injector:
    """An injector of the steps that is about to start."""
    nodes = {node.name: node.roles for node in cluster.runtime.nodes}
    timeline = faults.compile(list(steps), seed=7, load_s=300, topics=list(topics), nodes=nodes)
    faults.refuse_unsupported(timeline, cluster)
    return faults.Injector(timeline, cluster, run)


def fire(
    cluster: BrokerCluster[Any], run: RunDir, topics: Sequence[TopicSettings], step: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """One fault from injected to healed; the last row of each event."""
    injector = injector_of(cluster, run, topics, {"at": 0, **step})
    injector.start(time.monotonic_ns())
    injector.join(UP_S)
    assert injector.heal_all(UP_S) == []
    rows = {row["event"]: row for row in read_jsonl(run.faults)}
    assert rows.get("healed", {}).get("ok"), rows
    return rows


@contextmanager
def sending(cluster: BrokerCluster[Any], topic: TopicSettings) -> Iterator[None]:
    """Some hundred messages a second to every partition of a Kafka topic: a broker that writes nothing meets
    no limit."""
    over = threading.Event()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})

    def send() -> None:
        while not over.wait(0.01):
            for partition in range(topic.partitions):
                producer.produce(topic.name, bytes(500), partition=partition)
            producer.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        producer.purge()
