"""Clusters as processes, shared by the tests that ask for the same, and faults on them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import faults
from faults.engine.ledger import Ledger
from harness import waiting
from harness.clusters.cluster import BrokerCluster
from harness.clusters.limits import node_limits
from harness.clusters.limits.groups import groups_left
from harness.clusters.limits.volumes import volumes_below
from harness.clusters.nodes.processes import run_processes
from harness.clusters.process_runtime import ProcessRuntime
from harness.contract.rig import RUN_TAG
from harness.contract.running import cluster_of
from harness.protocols.clocks import OWN_CLOCKS
from harness.protocols.cluster import TopicSettings
from harness.protocols.network import CLIENT_DETOURS, PEER_DETOURS
from harness.rundir import RunDir, read_jsonl
from harness.systems.kafka.assembly import KafkaCluster

UP_S = 180.0  # a start takes 3 to 8 s; these tests also run on machines that do other things
ORDERS = TopicSettings("orders", 12, 3, {"min.insync.replicas": "2"})
#: All that a fault may need of a cluster, as far as this machine gives it.
EVERYTHING = frozenset(
    {
        CLIENT_DETOURS,
        PEER_DETOURS,
        *(need for need in (*node_limits.GIVES, OWN_CLOCKS) if not ProcessRuntime.why_not(need)),
    }
)
#: Brokers wait for a controller that stands still; 30 s unless told otherwise.
IMPATIENT = {
    "controller.socket.timeout.ms": "3000",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
}


def new_run_id() -> str:
    return f"live-{os.getpid()}-{time.monotonic_ns()}"


@contextmanager
def up(
    system: str, folder: Path, *topics: TopicSettings, **more: Any
) -> Iterator[BrokerCluster[Any]]:
    """A cluster that works, with its topics; gone at the end. ``more``: as of `open_cluster`."""
    with cluster_of(system, new_run_id(), folder / "cluster", **more) as found:
        if topics:
            found.admin.create_topics(topics)
            found.admin.wait_ready(
                [topic.name for topic in topics], timeout_s=UP_S, run_tag=RUN_TAG
            )
        yield found


class ClusterPool:
    """One cluster at a time: that which was asked for last. The next who asks for the same is given
    it.

    Tests that mostly wait may run at the same time on it: the first one begins those that follow
    (`begin`), and each takes its own outcome (`result`).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._executor = ThreadPoolExecutor(thread_name_prefix="ahead")
        self._begun: dict[str, Future[None]] = {}
        self._asked: dict[str, Any] = {}
        self._up: BrokerCluster[Any] | None = None

    def get(self, system: str, **more: Any) -> BrokerCluster[Any]:
        """``more``: as of `open_cluster`."""
        asked = {"system": system, **more}
        if self._up is None or self._asked != asked:
            self.close()
            self._up = self._stack.enter_context(up(system, self._folder / new_run_id(), **more))
            self._asked = asked
        return self._up

    def lend(self, system: str, *, run_id: str, folder: Path, **more: Any) -> BorrowedCluster:
        """In place of `open_cluster`, for commands that run in this process."""
        del run_id, folder  # it has its own
        how = {key: value for key, value in more.items() if key not in ("offline", "on_progress")}
        return BorrowedCluster(self.get(system, **how))

    def kafka_for_faults(self) -> KafkaCluster:
        """Three brokers with topic `ORDERS` that every kind of fault can hit, all of them
        running."""
        cluster: KafkaCluster = self.get("kafka", needs=EVERYTHING, broker_config=IMPATIENT)
        if ORDERS.name not in cluster.admin.topics():
            cluster.admin.create_topics([ORDERS])
        make_whole(cluster, ORDERS.name)
        return cluster

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Run something on the cluster in a thread, unless work of this name was begun before."""
        if name not in self._begun:
            self._begun[name] = self._executor.submit(work)

    def result(self, name: str) -> None:
        """Wait until work of this name is done; raises what it raised."""
        self._begun[name].result()

    def close(self) -> None:
        """End the cluster; nothing of it may stay."""
        wait(self._begun.values())  # work of tests that were skipped meanwhile
        self._begun.clear()
        self._stack.close()
        if self._up is None:
            return
        runtime, self._up = self._up.runtime, None
        left = [
            *run_processes(runtime.run_id),
            *groups_left(runtime.run_id),
            *volumes_below(runtime.folder),
        ]
        assert left == []


class BorrowedCluster:
    """A cluster of the pool, for a command that would start and end one: it is up, and the pool
    ends it."""

    def __init__(self, cluster: BrokerCluster[Any]) -> None:
        self._cluster = cluster
        self.facts = cluster.facts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def up(self, *, timeout_s: float) -> None:
        """Nothing to do: it is started already."""

    def down(self) -> None:
        """Others use it, too."""


def make_whole(cluster: BrokerCluster[Any], *names: str) -> None:
    """Every node running and every partition of the topics in sync, whatever the test before
    did."""
    for node in cluster.runtime.nodes:
        cluster.runtime.resume(node.name)
        cluster.runtime.start(node.name)
    cluster.admin.wait_ready(names, timeout_s=UP_S, run_tag=RUN_TAG)


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    assert waiting.wait_until(condition, timeout_s, every_s=0.05), (
        f"{what}: not within {timeout_s:.0f} s"
    )


def injector_of(
    cluster: BrokerCluster[Any],
    run: RunDir,
    topics: Sequence[TopicSettings],
    *steps: dict[str, Any],
) -> faults.Injector:
    """An injector of the steps that is about to start."""
    nodes = {node.name: node.roles for node in cluster.runtime.nodes}
    known: dict[str, Any] = {"topics": list(topics), "nodes": nodes, "system": cluster.system}
    timeline = faults.compile(list(steps), faults.inventory_of(**known), seed=7, load_s=300)
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


class FaultRig:
    """Fault steps that began on a Kafka cluster; the fixture `begin` ends them whatever a test
    does."""

    def __init__(
        self,
        cluster: BrokerCluster[Any],
        run: RunDir,
        *steps: dict[str, Any],
        topics: Sequence[TopicSettings] = (ORDERS,),
    ) -> None:
        self.cluster, self.run = cluster, run
        self.injector = injector_of(cluster, run, topics, *steps)
        self.injector.start(time.monotonic_ns())

    def rows(self, event: str) -> list[dict[str, Any]]:
        """What faults.jsonl has of an event by now."""
        return [row for row in read_jsonl(self.run.faults) if row["event"] == event]

    def wait_for(self, event: str) -> dict[str, Any]:
        """The first row of an event."""
        wait_until(f"{event} among {self.run.faults}", lambda: bool(self.rows(event)))
        return self.rows(event)[0]

    def finish(self, *, now: bool = False) -> None:
        """Everything came, took effect, and is healed; ``now``: do not wait for the time to
        heal."""
        if not now:
            self.injector.join(280)
        assert self.injector.heal_all(UP_S) == [], read_jsonl(self.run.faults)
        assert self.rows("skipped") == []
        assert [row["evidence"] for row in self.rows("effect") if not row["effective"]] == []
        assert [row["evidence"] for row in self.rows("healed") if not row["ok"]] == []
        assert Ledger(self.run).entries() == []
        assert_whole(self.cluster)


def assert_whole(cluster: BrokerCluster[Any]) -> None:
    """Nothing of a fault is left on the Kafka cluster."""
    for node in cluster.runtime.nodes:
        assert cluster.runtime.is_running(node.name)
        assert not cluster.runtime.is_paused(node.name)
        assert cluster.admin.answers(node.name)
    assert {len(nodes) for nodes in cluster.admin.isr(ORDERS.name).values()} == {3}
    assert None not in cluster.admin.leaders(ORDERS.name).values()


@contextmanager
def sending(cluster: BrokerCluster[Any], topic: TopicSettings) -> Iterator[None]:
    """Some hundred messages a second to every partition of a Kafka topic: a broker that writes
    nothing meets no limit."""
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
