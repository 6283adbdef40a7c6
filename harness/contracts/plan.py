"""plan.json: everything a run needs to know, decided before anything starts.

`harness.plan.build` makes a `Plan` of a scenario and a seed, a run goes by it, sealing takes
buckets from it, analysis judges by it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.contracts.rows import DropLimit, LaneGroup
from harness.systems import SYSTEMS

#: A step of ``faults:`` as it was written: only `faults.compile` knows its keys.
FaultStep = dict[str, Any]


class PlanPart(BaseModel):
    """A part of plan.json. Keys of a later version are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class TopicPlan(PlanPart):
    """One topic or queue.

    Attributes:
        replication: copies of each message: replicas (Kafka), write quorum (Pulsar), nodes (Qpid).
        address: what a client is given to name it.
        declared: its name in the scenario; several topics share one when it has a ``count``.
        grows_to: partitions that a fault may give it; 0 = it keeps those it has.
    """

    name: str
    partitions: int
    replication: int
    config: dict[str, str]
    address: str = ""
    declared: str = ""
    grows_to: int = 0

    @property
    def most_partitions(self) -> int:
        """Return the number of partitions, with those that are added during the run."""
        return max(self.partitions, self.grows_to)


class PromisePlan(PlanPart):
    """The promises that a producer's settings make, in neutral words, and the reasons.

    Attributes:
        delivery: ``durable`` (acknowledged = on every in-sync replica, at least two), ``leader``,
            ``none``, or ``unknown``: the worker.toml of the client does not say.
        order: first appearances of attempt-0 messages of a lane keep their order; None = not known.
        dedup: no message is stored twice without an application re-send; None = not known.
        synced: an acknowledged message is on the disks of all replicas in sync; None = not known.
        because: the setting that decided each of them, as text for people.
        required: the first three as the scenario demands them; None = as configured.
    """

    delivery: Literal["durable", "leader", "none", "unknown"]
    order: bool | None
    dedup: bool | None
    synced: bool | None = None
    because: dict[str, str]
    required: dict[str, str | bool | None]


class ConsumerPromise(PlanPart):
    """The promises that a consumer's settings make, in neutral words, and the reasons.

    Attributes:
        subscription: who shares the messages, and how: ``group`` (a Kafka group), ``exclusive``,
            ``failover``, ``shared``, ``key_shared`` (Pulsar), ``queue`` (JMS, AMQP).
        order: what the members of the subscription are handed in the order of the log: every
            ``stream``, the messages of a ``key``, or ``none``.
        start: where the group begins while it has no position: at the ``earliest`` message, or at
            the ``latest``: what lies before its first position is not promised.
        durable: brokers keep the position of the subscription. False: each connection begins anew
            where the client says, and acknowledgements are kept no longer than that connection.
        ack_timeout_s: a message handed over and not settled may come again after this long; 0 =
            never because of time.
        committed_only: nothing that an aborted transaction wrote is handed out.
        member_timeout_s: for so long a group without assignments to be seen may hold messages for a
            member that died.
        acks_confirmed: the client's answer to an acknowledgement is the broker's, not its own.
        batch_index_acks: an acknowledgement counts for one message of a batch, at the client and at
            the broker; without it a batch is acknowledged when all of its messages are.
        nack_delay_s: a refused message comes again after this long; None = not known.
        max_deliveries: a message is given this often at most, then it goes to the dead letters or
            is dropped; 0 = no limit, None = not known.
        may_drop: the settings that let the broker drop messages that were not given yet; empty =
            none do.
        drops: the limits that they set; empty with ``may_drop``: not known.
        because: the setting that decided each of them, as text for people.
        unknown: names in ``because`` of what the worker.toml of the client does not say; the
            strongest is assumed, and what breaks it is suspect.
    """

    subscription: Literal["group", "exclusive", "failover", "shared", "key_shared", "queue"] = (
        "group"
    )
    order: Literal["stream", "key", "none"] = "stream"
    start: Literal["earliest", "latest"] = "earliest"
    durable: bool = True
    ack_timeout_s: float = 0.0
    member_timeout_s: float = 0.0
    committed_only: bool = False
    acks_confirmed: bool = True
    batch_index_acks: bool = False
    nack_delay_s: float | None = None
    max_deliveries: int | None = None
    may_drop: str = ""
    drops: list[DropLimit] = Field(default_factory=list)
    because: dict[str, str] = Field(default_factory=dict)
    unknown: list[str] = Field(default_factory=list)


#: What is not known of a consumer of which a plan of before says no promise.
UNSTATED = ("order", "ack", "ack_timeout", "batch_index_acks")


class LifePlan(PlanPart):
    """A later life of a producer that comes and goes; times from the start of load.

    Attributes:
        instance: its own.
        leaves_s: when the life before it closes.
        returns_s: when its process is started; it sends as soon as it is ready.
    """

    instance: int
    leaves_s: float
    returns_s: float


class TransactionsPlan(PlanPart):
    """How a producer uses transactions, one after the other in each of its sending threads.

    Attributes:
        messages, every_s: a transaction ends after so many, or after that time; 0 = not by this.
        abort_every: every n-th of a thread is aborted; 0 = none.
    """

    messages: int = 0
    every_s: float = 0.0
    abort_every: int = 0


class ProducerPlan(PlanPart):
    """A producer of the plan, with everything that is needed to start and to judge it."""

    name: str
    instance: int
    client: str
    client_version: str
    groups: list[int] = Field(description="indexes into Plan.lane_groups")
    rate_per_s: float = Field(description="0 = unlimited; of a pipeline: as its input comes")
    profile: list[tuple[float, float]] = Field(
        default_factory=list,
        description="(seconds, share of its rate) over the load; none = the plan's",
    )
    skew: float = Field(0.0, description="exponent of Zipf's law over keys; 0 = all as often")
    topic_shares: dict[str, float] = Field(
        default_factory=dict, description="by topic; none = every lane as often as any other"
    )
    headers: dict[str, str] = Field(default_factory=dict, description="of every message, by name")
    header_templates: dict[str, str] = Field(
        default_factory=dict, description="texts of headers that differ by message, by name"
    )
    codec: str = Field("", description="how it compresses, and what says so; empty = not known")
    options: dict[str, str]
    when_full: Literal["wait", "fail"]
    call_deadline_s: float
    limits_calls: bool = Field(
        True, description="an answer by then is promised; if not, calls may wait for earlier ones"
    )
    promise: PromisePlan
    results: Literal["checked", "ignored", "resent"] = "checked"
    calls: Literal["async", "sync", "batch"] = "async"
    batch: int = Field(1, description="messages a call; 1 unless calls = batch")
    deliver_after_s: float = Field(0.0, description="delay that messages ask for; 0 = none")
    threads: int = Field(1, description="that send, in one process; a lane has one of them")
    transactions: TransactionsPlan | None = Field(
        None, description="each thread with a client and a transactional id of its own; None = none"
    )
    says_died: bool = Field(False, description="its worker says when the client gave itself up")
    lives: list[LifePlan] = Field(default_factory=list, description="later ones; none = it stays")


class PausesPlan(PlanPart):
    """A consumer that pauses its partitions; times from the start of its process's load."""

    every_s: float
    for_s: float


class SeeksPlan(PlanPart):
    """A consumer that seeks ``back`` messages back in each partition."""

    every_s: float
    back: int


class ConsumerPlan(PlanPart):
    """A consumer of the plan, with everything that is needed to start and to judge it."""

    name: str
    session: int
    client: str
    client_version: str
    group: str
    topics: list[str]
    pattern: str = Field(
        "", description="that its client subscribes to; empty = to the topics by name"
    )
    commit_every_s: float
    options: dict[str, str]
    receive: Literal["loop", "listener", "batch"] = "loop"
    joins_s: float = Field(
        0.0, description="started this long into the load; 0 = before the warm-up"
    )
    work_s: float = Field(0.0, description="between a message's hand-over and its acknowledgement")
    settle: Literal["auto", "ack", "cumulative", "transacted", "none"] = "auto"
    nack_every: int = 0
    per_transaction: int = 0
    rollback_every: int = 0
    reader: bool = Field(False, description="in no group: it assigns itself all partitions")
    pauses: PausesPlan | None = None
    seeks: SeeksPlan | None = None
    says_died: bool = Field(False, description="its worker says when the client gave itself up")
    watches_commits: bool = Field(
        False, description="its worker says when the client confirms a commit that it never sent"
    )
    promise: ConsumerPromise = Field(
        default_factory=lambda: ConsumerPromise(unknown=list(UNSTATED))
    )


class PipelinePlan(PlanPart):
    """A member of a pipeline: a process that reads one topic and writes another. `Plan.producers`
    and `Plan.consumers` have its halves, under the same name.

    Attributes:
        instance, session: of its halves.
        source, to: topics read and written.
        transactional: outputs and positions are in one transaction.
    """

    name: str
    instance: int
    session: int
    source: str
    to: str
    transactional: bool


#: Instances that an application can have at once, those that a fault adds included.
MOST_INSTANCES: Final = 64


class DatabasePlan(PlanPart):
    """Outputs of an application that are rows of a database; as the scenario says them.

    Attributes:
        url: without a password; it may have the place ``{shared}``.
        password: ``{"env": NAME}`` or ``{"file": PATH}``; none = none is needed.
        time, position: columns of the query; empty = it has none.
    """

    url: str
    query: str
    password: dict[str, str] = Field(default_factory=dict)
    time: str = ""
    position: str = ""

    @property
    def system(self) -> str:
        """The database system, for people: ``postgresql``."""
        return self.url.partition(":")[0].partition("+")[0]


class ApplicationPlan(PlanPart):
    """A program of the user that reads one topic and writes another: a black box.

    Attributes:
        run, env: as the scenario has them, with places; ``jars``: Maven coordinates; ``packages``:
            Python packages as pip takes them.
        image: the Docker image that has the program; ``run`` is then what comes after the image.
            Both are empty for an application that the user starts.
        folder: absolute path of the folder where it is started.
        ready: way to see that an instance is ready (log, tcp, http) -> its value; none = when it
            runs.
        cpu_cores, memory_bytes: limits of each instance; None = no limit.
        source: topic that it reads.
        to: topic that it writes; empty = its outputs are elsewhere: in files that match ``to_file``
            below the folders of its instances, in the rows of ``to_sql``, or in requests to an
            endpoint of the run.
        group: its consumer group; `harness.run.worker_specs.group_id` has the name at the brokers.
        session: number of its outputs in the capture.
        identity: way in which an output names its input (header, json, key, regex, column) -> its
            value; none = its value begins with the input's.
        makes, promise, order: as the scenario says them.
    """

    name: str
    run: list[str]
    image: str = ""
    jars: list[str] = Field(default_factory=list)
    packages: list[str] = Field(default_factory=list)
    env: dict[str, str]
    folder: str
    instances: int
    ready: dict[str, str | int] = Field(default_factory=dict)
    ready_within_s: float = 60.0
    stop_signal: int
    stop_within_s: float
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    restarts: Literal["always", "never"]
    source: str
    to: str
    to_file: str = ""
    to_sql: DatabasePlan | None = None
    group: str
    session: int
    identity: dict[str, str | bool] = Field(default_factory=dict)
    makes: Literal["one", "at-most-one", "any"]
    promise: Literal["exactly-once", "at-least-once", "at-most-once"]
    order: Literal["partition", "key", "none"]

    @property
    def runs_elsewhere(self) -> bool:
        """Whether the user starts it, and not the run."""
        return not (self.run or self.image)

    @property
    def takes_requests(self) -> bool:
        """Whether its outputs are requests to an endpoint of the run."""
        return not (self.to or self.to_file or self.to_sql)

    @property
    def output_text(self) -> str:
        """Where its outputs are, for people."""
        if self.to_sql:
            return f"rows in {self.to_sql.system}"
        return self.to or (f"files {self.to_file}" if self.to_file else "HTTP requests")

    @property
    def instance_names(self) -> list[str]:
        """Names of its processes: ``application-billing-1``, or without the number where there is
        one. None if the run does not start them."""
        if self.runs_elsewhere:
            return []
        return [self.instance_name(number) for number in range(1, self.instances + 1)]

    def instance_name(self, number: int) -> str:
        """Name of the instance with a number from 1; faults start more of them than
        ``instances``."""
        own = f"application-{self.name.replace('.', '_')}"
        return own if self.instances == 1 == number else f"{own}-{number}"

    def number_of(self, name: str) -> int | None:
        """Number of the instance with a name; None = it is not an instance of this application."""
        number = name.rpartition("-")[2]
        if name == self.instance_name(1):
            return 1
        if number.isdecimal() and name == self.instance_name(int(number)):
            return int(number)
        return None


ClientPlan = ProducerPlan | ConsumerPlan | PipelinePlan


class RateStep(PlanPart):
    """One measurement of what the machine keeps.

    Attributes:
        variant: whose clients sent; empty = of a scenario without variants.
        rate_per_s: asked about.
        tried_per_s: sent, more than was asked about: what is left over is for outages to be made up
            for.
        acked_per_s: acknowledged.
        late_s: how late the generator was in the last second, without the time the client blocked.
        open: sends without an outcome at the end.
        held: tried was acknowledged, neither late nor piling up.
    """

    variant: str
    rate_per_s: int
    tried_per_s: int
    acked_per_s: int
    late_s: float
    open: int
    held: bool


class RateChoice(PlanPart):
    """A rate that the machine decides (``load.rate: {at_most: N}``); no steps = not measured
    yet."""

    at_most_per_s: int
    at_least_per_s: int
    steps: list[RateStep] = Field(default_factory=list)


class ThresholdPlan(PlanPart):
    """The most that a figure may be: seconds, of ``error_ratio`` a share, of
    ``redeliveries`` and ``moved_partitions`` a number.

    Attributes:
        name: key of ``require``.
        outside_faults: of the load without the time of faults.
    """

    name: str
    outside_faults: bool
    at_most: float


class ExternalPlan(PlanPart):
    """The cluster of somebody else that a run is made on.

    Attributes:
        file: its connection file.
        cluster_id: what it must say of itself.
        prefix: what the names of our topics and groups there begin with.
        nodes: its brokers, and what each is.
    """

    file: str
    cluster_id: str
    prefix: str
    nodes: dict[str, list[str]]

    @property
    def words(self) -> str:
        """Which one it is, for people."""
        return f"of {Path(self.file).name}: {', '.join(self.nodes)}"


class Plan(PlanPart):
    """The resolved scenario. Times in seconds relative to the start of load unless named
    otherwise."""

    schema_version: Literal[1] = 1
    scenario: str
    variant: str
    expect: str
    about: str
    seed: int
    run_tag: int = Field(
        description="32 bits in every header; tells this run's messages from leftovers"
    )
    system: str
    version: str
    topology: str = ""
    broker_config: dict[str, str]
    topics: list[TopicPlan]
    lane_groups: list[LaneGroup]
    buckets: int
    producers: list[ProducerPlan]
    consumers: list[ConsumerPlan]
    pipelines: list[PipelinePlan] = Field(
        default_factory=list,
        description="each member; the last of producers and consumers are their halves",
    )
    applications: list[ApplicationPlan] = Field(
        default_factory=list, description="programs of the user under test"
    )
    workers: list[str] = Field(
        default_factory=list,
        description="folders of the clients' workers that do not come with brokerstorm",
    )
    payload_bytes: int = Field(description="the smallest, where sizes differ by message")
    payload_max_bytes: int = Field(0, description="the largest; 0 = all are payload_bytes")
    payload_sizes: list[int] = Field(
        default_factory=list,
        description="each as frequent as any other; none = all from the smallest on",
    )
    payload_compressible: int | None = Field(
        None,
        description="thousandths of each that are zeros; the rest differs by message. None = filled alike",
    )
    payload_template: str = Field(
        "",
        description="text that each body is made of, with the identity in a header; empty = there is none",
    )
    payload_charset: str = Field(
        "", description="makes bytes of that text; latin-1: a character is one byte; empty = UTF-8"
    )
    rate_per_s: float = Field(
        description="all producers; 0 = unlimited; with a profile the whole of it"
    )
    profile: list[tuple[float, float]] = Field(
        default_factory=list,
        description="(seconds, share of the rate) over the load; none = all of it",
    )
    rate_choice: RateChoice | None = Field(None, description="None = the scenario claims its rate")
    warm_up_s: float
    load_s: float
    faults: list[FaultStep] = Field(description="raw steps; faults.compile makes the timeline")
    limits: dict[str, float]
    rate_ratio: float
    thresholds: list[ThresholdPlan] = Field(default_factory=list)
    notes: list[str] = Field(
        default_factory=list, description="what was left aside of files that the scenario names"
    )
    audit: str = Field("leader", description="leader or every-replica")
    external: ExternalPlan | None = Field(None, description="None = a cluster that we start")

    @property
    def scheduled(self) -> list[ProducerPlan]:
        """Producers that share the rate: all but the halves of pipelines, which send what they
        read."""
        halves = {member.instance for member in self.pipelines}
        return [producer for producer in self.producers if producer.instance not in halves]

    @property
    def readers(self) -> list[ConsumerPlan]:
        """Consumers that only read: all but the halves of pipelines."""
        halves = {member.session for member in self.pipelines}
        return [consumer for consumer in self.consumers if consumer.session not in halves]

    @property
    def clients(self) -> list[ClientPlan]:
        """One for each process that is started at first."""
        return [*self.scheduled, *self.readers, *self.pipelines]

    @property
    def prefix(self) -> str:
        """Return the prefix of topic and group names; empty on a cluster of our own."""
        return self.external.prefix if self.external else ""

    @property
    def worker_topics(self) -> dict[str, str]:
        """Topic -> its name in what a worker receives and writes: where topics have no namespace to
        themselves, the one that brokers know it by."""
        return {t.name: t.name if self.namespace else t.address or t.name for t in self.topics}

    @property
    def worker_streams(self) -> dict[str, str]:
        """Name of a stream in what a worker receives and writes -> the stream, in the order of
        their ids."""
        told = self.worker_topics
        return {
            f"{told[t.name]}-{p}": f"{t.name}-{p}"
            for t in self.topics
            for p in range(t.most_partitions)
        }

    @property
    def namespace(self) -> str:
        """The namespace of this run alone, as ``public/bs-1a2b3c4d`` of Pulsar; empty where there
        is none."""
        return SYSTEMS[self.system].namespace(self.run_tag, self.prefix)

    def streams(self) -> list[str]:
        """Every topic-partition, also those to come, in the order of their name ids (1, 2, 3
        ...)."""
        return [f"{t.name}-{p}" for t in self.topics for p in range(t.most_partitions)]

    def stream_bucket(self, stream: str) -> int:
        """Bucket of a row whose lane cannot be read (foreign or corrupt payload)."""
        topic, _, partition = stream.rpartition("-")
        group = next((g for g in self.lane_groups if g.topic == topic), None)
        if group is None:
            return 0
        return group.buckets[int(partition) % len(group.buckets)]
