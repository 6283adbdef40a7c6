"""Topics and workers on a live cluster, for one check."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from harness.clusters import BrokerCluster
from harness.connections.security import Security
from harness.contract.driving import READY_S, DrivenWorker, Rows, equal, expect
from harness.contracts.worker import (
    AuditPart,
    ClientPart,
    ConsumerPart,
    LanePart,
    PipelinePart,
    ProcessSpec,
    ProducerPart,
    SpecPart,
    TopicPart,
    TransactionsPart,
)
from harness.protocols.cluster import HasHighWatermark, TopicSettings
from harness.records import Kind, TableId
from harness.systems import SYSTEMS
from harness.workers import load_worker
from harness.workers.spec import WorkerSpec

RUN_TAG: Final = 0xB0B5
#: Messages per second; a queue is slower for its transactions.
LOG_RATE, QUEUE_RATE = 1000.0, 200.0
#: Of a producer that is asked for nothing else: a second's messages.
WARM_UP_S, LOAD_S = 0.25, 0.75
LOG_PARTITIONS: Final = 6
#: A broker of Pulsar that cannot recover the transactions of a topic says nothing about its last
#: message for 30 s, and then loads the topic again.
AUDIT_STALL_S: Final = 45.0
KEYS: Final = 50


@dataclass(frozen=True, slots=True)
class CheckPlace:
    """Where workers are checked, and how.

    Attributes:
        folder: takes what they capture.
        version: of the client under test; empty = the default of its worker.
        offline: nothing is fetched or built.
    """

    cluster: BrokerCluster[Any]
    folder: Path
    version: str = ""
    offline: bool = False


class Rig:
    """Topics and workers on one cluster; `close` ends every worker it made.

    Attributes:
        worker: the one under test.
    """

    def __init__(self, place: CheckPlace, worker: WorkerSpec) -> None:
        self.place = place
        self.cluster = place.cluster
        self.folder = place.folder
        self.worker = worker
        self.version = place.version
        self.system = SYSTEMS[place.cluster.system]
        self.partitions: dict[str, int] = {}
        self.started: list[DrivenWorker] = []

    # -- topics

    def topic(
        self, *, partitions: int = 0, replication: int = 3, config: Mapping[str, str] | None = None
    ) -> str:
        """A new topic that every node knows, with one probe in each partition of a log."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        count = partitions or (1 if self.system.is_queue else LOG_PARTITIONS)
        copies = self.system.replication(replication, "", {})
        settings = self.system.topic_config(
            {**self.worker.contract.topic, **(config or {})}, copies, {}
        )
        self.cluster.admin.create_topics([TopicSettings(name, count, copies, settings)])
        self.partitions[name] = count
        self.wait_ready(name)
        return name

    def wait_ready(self, topic: str) -> None:
        """Until the topic works at every node."""
        self.cluster.admin.wait_ready([topic], timeout_s=60, run_tag=RUN_TAG)

    @contextmanager
    def frozen_brokers(self, topic: str) -> Iterator[None]:
        """Stop every broker, and make the cluster whole afterwards. The check states
        ``freezes_brokers``."""
        runtime = self.cluster.runtime
        nodes = [node.name for node in runtime.nodes if "broker" in node.roles]
        try:
            for node in nodes:
                runtime.pause(node)
            yield
        finally:
            for node in nodes:
                runtime.resume(node)
            self.wait_ready(topic)

    # -- workers

    def start(
        self,
        role: str,
        topic: str,
        part: SpecPart,
        *,
        worker: WorkerSpec | None = None,
        version: str | None = None,
        name: str = "",
        options: Mapping[str, str] | None = None,
        folder: Path | None = None,
        bootstrap: str = "",
        security: Security | None = None,
        beside: Mapping[str, SpecPart] = MappingProxyType({}),
        to: str = "",
        also: Sequence[str] = (),
    ) -> DrivenWorker:
        """A worker of a role; the one under test unless another is named.

        ``security``: the credentials that it receives instead of the cluster's. ``beside``, ``to``:
        of a pipeline, its halves and the topic that it writes. ``also``: further topics of a
        consumer.
        """
        name = name or f"{role}-{len(self.started) + 1}"
        counts = {each: self.partitions.get(each, 1) for each in (topic, to, *also) if each}
        streams = [f"{each}-{p}" for each, count in counts.items() for p in range(count)]
        wanted = (self.version if worker is None else "") if version is None else version
        tested = worker or self.worker
        spec = ProcessSpec(
            run_id="contract",
            run_tag=RUN_TAG,
            system=self.system.name,
            name=name,
            capture_dir=str(folder or self.folder / name),
            bootstrap=bootstrap or self.cluster.bootstrap,
            admin_url=self.cluster.admin_url,
            topics={
                each: TopicPart(address=self.system.address(each, RUN_TAG), partitions=count)
                for each, count in counts.items()
            },
            streams={stream: number for number, stream in enumerate(streams, start=1)},
            client=ClientPart(library=tested.library, version=wanted, options=dict(options or {})),
            **{role: part, **beside},
        )
        made = DrivenWorker(tested, spec, self.place.offline, security or self.cluster.security)
        self.started.append(made)
        return made

    def producer(
        self,
        topic: str,
        *,
        mode: str = "partition",
        rate: float | None = None,
        warm_up_s: float = WARM_UP_S,
        load_s: float = LOAD_S,
        payload: int = 150,
        options: Mapping[str, str] | None = None,
        worker: WorkerSpec | None = None,
        asked: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> DrivenWorker:
        """``asked``: further keys of a producer (when_full, results, calls, threads ...); ``more``:
        of `start`."""
        # a broker answers a connection's requests one by one: many tiny ones take long on a busy
        # machine
        words = (worker or self.worker).contract
        always = {**words.words("producer"), **words.words("linger", ms=50)}
        count = self.partitions.get(topic, 1)
        lanes = {"partition": count, "key": KEYS, "routed": 1}[mode]
        usual = {
            "instance": len(self.started) + 1,
            "lane_groups": [
                LanePart(topic=topic, mode=mode, first=0, count=lanes, partitions=count)
            ],
            "rate_per_s": self.rate if rate is None else rate,
            "payload_bytes": payload,
            "payload_max_bytes": payload,
            "warm_up_s": warm_up_s,
            "load_s": load_s,
            "call_deadline_s": 60,
        }
        part = ProducerPart.model_validate({**usual, **(asked or {})})
        return self.start(
            "producer", topic, part, worker=worker, options={**always, **(options or {})}, **more
        )

    @property
    def rate(self) -> float:
        """Messages per second that every client manages."""
        return QUEUE_RATE if self.system.is_queue else LOG_RATE

    @property
    def reference(self) -> WorkerSpec:
        """The worker that audits the system: what is not under test is done by it."""
        return load_worker(self.system.audit[0], system=self.system.name)

    def feed(self, topic: str, **how: Any) -> DrivenWorker:
        """The reference producer fills a topic; ``how`` as of `producer`."""
        return self.producer(
            topic, worker=self.reference, version=self.system.audit[1], **how
        ).send_all()

    def consumer(
        self,
        topic: str,
        *,
        options: Mapping[str, str] | None = None,
        also: Sequence[str] = (),
        **how: Any,
    ) -> DrivenWorker:
        """``also``: further topics; ``how``: further keys of a consumer (receive, settle, work_s
        ...)."""
        usual = {
            "session": len(self.started) + 1,
            "group": f"g-{topic}",
            "topics": [topic, *also],
            "commit_every_s": 0.3,
            "settle": self._settles,
        }
        part = ConsumerPart.model_validate({**usual, **how})
        always = self.worker.contract.words("consumer")
        made = self.start("consumer", topic, part, options={**always, **(options or {})}, also=also)
        made.wait_ready(READY_S)
        return made

    @property
    def _settles(self) -> str:
        """Return how consumers settle: as is usual for the system, if the worker can do it."""
        usual, able = self.system.auto_settle, self.worker.supports.get("settle", [])
        return able[0] if able and usual not in able else usual

    def pipeline(
        self, topic: str, to: str, transactions: TransactionsPart | None = None
    ) -> DrivenWorker:
        """A member that reads one topic and writes another; without ``transactions`` it commits
        apart."""
        number, count = len(self.started) + 1, self.partitions[to]
        writing = ProducerPart(
            instance=number,
            lane_groups=[
                LanePart(topic=to, mode="partition", first=0, count=count, partitions=count)
            ],
            rate_per_s=0.0,
            payload_bytes=150,
            payload_max_bytes=150,
            warm_up_s=0.0,
            load_s=LOAD_S,
            call_deadline_s=60,
            transactions=transactions,
        )
        reading = ConsumerPart(
            session=number, group=f"g-{topic}", topics=[topic], commit_every_s=0.3
        )
        words = self.worker.contract
        part = PipelinePart(consumer_options=words.words("consumer"))
        halves: dict[str, SpecPart] = {"producer": writing, "consumer": reading}
        options = {**words.durable, **words.words("linger", ms=5)}
        made = self.start("pipeline", topic, part, options=options, beside=halves, to=to)
        made.wait_ready(READY_S)
        return made

    def audit(self, topic: str, *, worker: WorkerSpec | None = None, **asked: Any) -> DrivenWorker:
        """A whole audit, from start to done, by the reference reader unless another is named."""
        made = self.auditor(topic, worker=worker, **asked)
        made.wait_ready(READY_S)
        made.tell("start 1")
        expect(
            made.wait_done(2 * AUDIT_STALL_S), f"the audit is not done; it said {made.said[-2:]}"
        )
        equal("exit code of the audit", made.wait_end(), 0)
        return made

    def auditor(
        self, topic: str, *, worker: WorkerSpec | None = None, options: Mapping[str, str] | None = None,
        isolation: str = "", stall_s: float = AUDIT_STALL_S,
    ) -> DrivenWorker:  # fmt: skip
        """A reader of the whole topic that was not started yet."""
        settings = self.worker.contract.topic
        is_removed = self.system.is_queue and self.system.removes_settled(settings)
        usual = "remaining" if is_removed else "read_uncommitted"
        part = AuditPart(
            reader=1,
            streams=[f"{topic}-{p}" for p in range(self.partitions[topic])],
            isolation=isolation or usual,
            stall_s=stall_s,
        )
        reader = worker or self.reference
        version = self.version if worker is self.worker else self.system.audit[1]
        return self.start("audit", topic, part, worker=reader, version=version, options=options)

    def stored(self, topic: str) -> Rows:
        """Return what the log holds, or the queue still has, without probes."""
        admin = self.cluster.admin
        if isinstance(admin, HasHighWatermark):
            admin.pass_high_watermark([topic], timeout_s=READY_S, run_tag=RUN_TAG)
        log = self.audit(topic).rows(TableId.LOG)
        ours: Rows = log[log["header"]["kind"] != Kind.PROBE]
        return ours

    def close(self) -> None:
        for worker in self.started:
            worker.kill()
