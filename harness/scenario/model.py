"""The model of a scenario file, checked key by key.

Fault steps stay raw here; `faults.compile` validates them and supplies its part of the JSON Schema,
so this module knows no fault kind. `harness.scenario.file` reads the file and turns every problem
into one line that names the key, the value, what is allowed and, for a misspelt key, the nearest
known one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema, model_validator

from harness.contracts.plan import FaultStep
from harness.durations import MAX_DURATION_S as MAX_DURATION_S
from harness.durations import Seconds as Seconds
from harness.durations import parse_seconds as parse_seconds
from harness.node_settings import flattened
from harness.other_words import other_word
from harness.rundir import Document, path_below, resolved
from harness.scenario.application import ApplicationSpec
from harness.scenario.bug import BugSpec
from harness.scenario.headers import Headers
from harness.scenario.keys import KeyText
from harness.scenario.part import Name as Name
from harness.scenario.part import Part as Part
from harness.scenario.part import must_match
from harness.scenario.payload import Payload
from harness.scenario.profile import Profile, Table
from harness.scenario.rate import Rate, RateLimit
from harness.scenario.threshold import CountLimit, Limit, RatioLimit, SecondsLimit
from harness.systems import DEFAULT, SYSTEMS

Option = str | int | float | bool
_TOPIC_PATTERN = r"^(\^?[A-Za-z0-9][A-Za-z0-9._*+?\[\]-]{0,99}\$?)?$"
TopicPattern = Annotated[
    str, must_match(_TOPIC_PATTERN, "an expression of topic names, such as orders-.*")
]


def native(options: Mapping[str, Option]) -> dict[str, str]:
    """Options as every client and broker reads them: text, ``true`` and ``false`` in lower case."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
    }


_TOPOLOGIES = ("", *(name for system in SYSTEMS.values() for name in system.topologies))

if TYPE_CHECKING:
    from typing import TypeAlias

    SystemName: TypeAlias = str
    TopologyName: TypeAlias = str
else:
    SystemName = Literal[tuple(SYSTEMS)]
    TopologyName = Annotated[Literal[_TOPOLOGIES], BeforeValidator(lambda name: _topology(name))]


def _topology(name: object) -> object:
    """Check the name of a topology; which ones a system has is checked later."""
    if isinstance(name, str) and name not in _TOPOLOGIES:
        owners = [system for system in SYSTEMS.values() if system.topologies]
        known = "; ".join(f"{each.name}: {', '.join(each.topologies)}" for each in owners)
        raise ValueError(f"must be a topology ({known}; other systems have one: leave it out)")
    return name


def _elsewhere(attribute: str) -> str:
    """An attribute of every system but the default one, as text for people."""
    others = [system for system in SYSTEMS.values() if not system.is_default]
    values = {system.name: getattr(system, attribute) for system in others}
    shown = {
        name: value if isinstance(value, tuple) else (value,) for name, value in values.items()
    }
    return "; ".join(
        f"{name}: {', '.join(f'`{one}`' for one in value)}"
        for name, value in shown.items()
        if value
    )


_CLIENT = f"see `brokerstorm list workers`; {_elsewhere('client')}"

_OPTIONS = (
    "the client's own option names; `{instance}` in a text is the number of the process, from 1 to `count`; "
    "`{file: producer.properties}` takes the options of a file, relative to the scenario's folder"
)

_VALUE = {"type": ["string", "integer", "number", "boolean"]}
BrokerConfig = Annotated[
    dict[str, Option],
    BeforeValidator(flattened),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    _VALUE,
                    {"type": "object", "minProperties": 1, "additionalProperties": _VALUE},
                ]
            },
        }
    ),
]


class ClusterSpec(Part):
    """The brokers: version of the system, and native broker settings laid over the template."""

    version: str = Field("", description="version of the broker; empty = the default")
    topology: TopologyName = Field("", description=f"{_elsewhere('topologies')}; empty = the first")
    config: BrokerConfig = Field(
        default_factory=dict,
        description="native broker settings; `broker.rack: {kafka-1: az-1, kafka-2: az-2}` sets one by node",
    )
    config_file: str = Field(
        "",
        description="file of the brokers (server.properties, broker.conf, nats-server's), relative to the "
        "scenario's folder: its settings, unless `config` has others",
    )


class TopicSpec(Part):
    """A topic, created for every run. It keeps its whole log: the audit reads all of it."""

    count: int = Field(
        1,
        ge=1,
        le=1000,
        description="number of such topics: `orders` means `orders-000`, `orders-001` ...",
    )
    partitions: int = Field(
        DEFAULT.partitions,
        ge=1,
        le=1000,
        description=f"more partitions spread the load over more leaders; {_elsewhere('partitions')}",
    )
    grows_to: int | None = Field(
        None,
        ge=2,
        le=1000,
        description="kafka: partitions that it may have in the end, by the fault grow-partitions",
    )
    replication: int = Field(
        3,
        ge=1,
        le=3,
        description="kafka, nats, rabbitmq: copies of each partition or queue; not set by topic elsewhere",
    )
    config: dict[str, Option] = Field(default_factory=dict, description="native topic settings")
    share: float | None = Field(
        None,
        gt=0,
        le=1_000_000,
        description="share of the messages, relative to other topics; unset: by lanes",
    )

    def names(self, declared: str) -> list[str]:
        """The topics that this entry, called ``declared``, declares."""
        return [declared] if self.count == 1 else [f"{declared}-{i:03d}" for i in range(self.count)]


class ComesAndGoes(Part):
    """A producer that closes and comes back, again and again, as a new producer."""

    every: Seconds = Field(gt=0, description="from one time that it closes to the next")
    away: Seconds = Field(
        gt=0, description="from there until it is started again; to be ready takes longer"
    )


class TransactionEnds(Part):
    """Each output is in one transaction with the position after its input. One ends by number or by
    time, whichever comes first."""

    messages: int = Field(
        0, ge=0, le=1_000_000, description="ends after so many messages; 0 = not by their number"
    )
    every: Seconds = Field(0.0, ge=0, description="ends this long after it began; 0 = not by time")
    abort_every: int = Field(
        0, ge=0, description="every n-th transaction of an id is aborted; 0 = none"
    )


class TransactionsSpec(TransactionEnds):
    """Every message is sent in a transaction. One ends by number or by time, whichever comes
    first."""

    ids: int = Field(
        1,
        ge=1,
        le=64,
        description="transactional ids, each with a client, a sending thread and lanes of its own",
    )


class ProducerSpec(Part):
    """``count`` producers of one client library; each is a process and a producer instance."""

    client: str = Field(DEFAULT.client, description=_CLIENT)
    client_version: str = Field(
        "", description="version of the client library; empty = the installed one"
    )
    count: int = Field(1, ge=1, le=64, description="processes")
    topics: list[Name] = Field(default_factory=list, description="empty = all topics")
    lanes: Literal["partition", "key", "routed"] = Field(
        "partition",
        description="unit of order: explicit partition, message key, or the client routes",
    )
    keys: int = Field(1000, ge=1, le=1_000_000, description="keys per topic, for lanes: key")
    key: KeyText = Field(
        "",
        description="text of the keys, such as `customer-{number}`, for lanes: key; `{number}` is the number "
        "of the key from 0, and `{key}` the text that it has otherwise, such as `k000017`",
    )
    skew: float = Field(
        0.0,
        ge=0,
        le=5,
        description="key n comes n to the power -skew as often as the first (Zipf), for lanes: key",
    )
    share: float = Field(
        1.0, gt=0, le=1_000_000, description="share of the rate, relative to the other producers"
    )
    profile: Profile | None = Field(
        None, description="share of its rate over time; default: the profile of the load"
    )
    options: dict[str, Option] = Field(default_factory=dict, description=_OPTIONS)
    headers: Headers = Field(
        default_factory=dict,
        description="headers (pulsar: properties, qpid: application properties) of every message: a text, or "
        "`{bytes: 32}`, or `{bytes: 20, count: 5}`, or `{template: 't-{id}'}` with a payload from a template",
    )
    comes_and_goes: ComesAndGoes | None = Field(
        None,
        description="it closes and comes back as a new producer, such as `{every: 10s, away: 2s}`",
    )
    when_full: Literal["wait", "fail"] = Field(
        "wait",
        description="when the client's queue is full: wait and try again, or count the send as failed",
    )
    results: Literal["checked", "ignored", "resent"] = Field(
        "checked", description="what the application does about a send that failed or timed out"
    )
    calls: Literal["async", "sync", "batch"] = Field(
        "async", description="`sync` = one send at a time; `batch` = one call for many messages"
    )
    batch: int = Field(100, ge=1, le=100_000, description="messages per call, for calls: batch")
    deliver_after: Seconds = Field(
        0.0,
        ge=0,
        le=3600,
        description="pulsar: delay after which a shared subscription is given a message; 0 = at once",
    )
    threads: int = Field(
        1,
        ge=1,
        le=64,
        description="threads, goroutines or tasks of the process that send; each has lanes of its own",
    )
    transactions: TransactionsSpec | None = Field(
        None, description="send in transactions, such as `{messages: 500, abort_every: 20, ids: 4}`"
    )

    @property
    def senders(self) -> tuple[str, int]:
        """The key that says how many threads send, and how many."""
        return (
            ("transactions.ids", self.transactions.ids)
            if self.transactions
            else ("threads", self.threads)
        )


class Pauses(Part):
    """The application repeatedly pauses all its partitions and resumes them, while the load
    lasts."""

    every: Seconds = Field(
        gt=0, description="from one pause to the next; the first begins after this time"
    )
    for_: Seconds = Field(alias="for", gt=0, description="until it resumes")


class Seeks(Part):
    """The application repeatedly goes back and reads again, while the load lasts."""

    every: Seconds = Field(
        gt=0, description="from one seek to the next; the first comes after this time"
    )
    back: int = Field(
        ge=1, le=1_000_000, description="messages of each partition that are read again"
    )


class ConsumerSpec(Part):
    """``count`` members of one consumer group reading during the run."""

    client: str = Field(DEFAULT.client, description=_CLIENT)
    client_version: str = Field(
        "", description="version of the client library; empty = the installed one"
    )
    group: Name = Field("group", description="the consumer group")
    count: int = Field(1, ge=1, le=64, description="members, one process each")
    joins_after: Seconds = Field(
        0.0,
        ge=0,
        description="starts this long into the load, so that the group rebalances; 0 = before it",
    )
    topics: list[Name] = Field(default_factory=list, description="empty = all topics")
    pattern: TopicPattern = Field(
        "",
        pattern=_TOPIC_PATTERN,
        description="regular expression instead of `topics`, such as `orders-.*`: the client subscribes to "
        "what matches its whole name",
    )
    receive: Literal["loop", "listener", "batch"] = Field(
        "loop", description="the application polls, is called back, or polls for many at once"
    )
    work: Seconds = Field(
        0.0, description="time the application needs per message before it acknowledges"
    )
    settle: Literal["auto", "ack", "cumulative", "transacted", "none"] = Field(
        "auto",
        description="`auto`: kafka commits every `commit_every`, pulsar acknowledges each message",
    )
    commit_every: Seconds = Field(
        1.0,
        gt=0,
        description="commit what was processed this often (kafka), or acknowledge it with settle: cumulative "
        "(pulsar)",
    )
    commit: Literal["explicit", "auto"] = Field(
        "explicit",
        description="kafka: who commits: the application, or the client by itself (`enable.auto.commit`), "
        "each `commit_every`",
    )
    start: Literal["earliest", "latest", "none"] = Field(
        "earliest",
        description="kafka: where a group without a position begins (`auto.offset.reset`). latest: what was "
        "stored before its first position is not promised",
    )
    reader: bool = Field(
        False,
        description="kafka, pulsar: it has no group and no subscription: its client reads all partitions "
        "from the first message on (kafka: `start`) and commits nothing; `group` is only its name in reports",
    )
    pauses: Pauses | None = Field(
        None,
        description="kafka: it pauses its partitions and polls on, such as `{every: 5s, for: 2s}` "
        "(backpressure)",
    )
    seeks: Seeks | None = Field(
        None,
        description="kafka, pulsar: it seeks back in each partition, such as `{every: 10s, back: 500}` "
        "(replay); what it reads again is not a violation. On pulsar, of one topic with `partitions: 1`",
    )
    nack_every: int = Field(
        0, ge=0, description="every n-th message is refused (nack, recover); 0 = none"
    )
    per_transaction: int = Field(
        0, ge=0, description="messages per transaction, for settle: transacted"
    )
    rollback_every: int = Field(
        0, ge=0, description="every n-th transaction is rolled back; 0 = none"
    )
    options: dict[str, Option] = Field(default_factory=dict, description=_OPTIONS)

    @property
    def bare_pattern(self) -> str:
        """`pattern` without the marks of begin and end: it is of whole names in any case."""
        return self.pattern.removeprefix("^").removesuffix("$")

    def reads(self, topic: str, declared: str) -> bool:
        """Whether it reads this topic, which the entry ``declared`` declares."""
        if self.pattern:
            return re.fullmatch(self.bare_pattern, topic) is not None
        return not self.topics or declared in self.topics


class PipelineSpec(Part):
    """``count`` members that read one topic and write another: of each message one is made."""

    client: str = Field(DEFAULT.client, description=_CLIENT)
    client_version: str = Field(
        "", description="version of the client library; empty = the installed one"
    )
    from_: Name = Field(alias="from", description="topic that is read")
    to: Name = Field(description="topic that is written; no other producer may write it")
    group: Name | None = Field(None, description="the consumer group; unset: named as the pipeline")
    count: int = Field(1, ge=1, le=64, description="members, one process each")
    transactions: TransactionEnds | None = Field(
        None,
        description="outputs and positions in one transaction, such as `{messages: 200, every: 100ms}`; "
        "unset: positions are committed apart from what was written, so that a message may be made twice",
    )
    commit_every: Seconds = Field(
        1.0,
        gt=0,
        description="without transactions: commit what was written and acknowledged this often",
    )
    options: dict[str, Option] = Field(
        default_factory=dict, description="of the client that writes"
    )
    consumer_options: dict[str, Option] = Field(
        default_factory=dict, description="of the client that reads"
    )

    @property
    def writing(self) -> ProducerSpec:
        """The half that writes, as a producer."""
        own = self.transactions
        return ProducerSpec(
            client=self.client,
            client_version=self.client_version,
            count=self.count,
            topics=[self.to],
            options=self.options,
            transactions=TransactionsSpec.model_validate(own.model_dump()) if own else None,
        )

    def reading(self, name: str) -> ConsumerSpec:
        """The half that reads, as a consumer; ``name``: of the pipeline."""
        return ConsumerSpec(
            client=self.client,
            client_version=self.client_version,
            group=self.group or name,
            count=self.count,
            topics=[self.from_],
            commit_every=self.commit_every,
            options=self.consumer_options,
        )


class LoadSpec(Part):
    """The load, open loop: a message is due when the rate says so, not when the one before it is
    done."""

    rate: Rate = Field(
        50_000,
        description="messages per second in all. `{at_most: 50000}` claims no rate: the run goes at what "
        "this machine keeps of it, measured before the first round; with less than `at_least` (a fiftieth, "
        "unless it is written) it is unknown",
    )
    profile: Profile | None = Field(
        None,
        description="when which share of `rate` is asked for; without one all of it, all the time",
    )
    unlimited: bool = Field(False, description="as fast as the client goes; rate is then ignored")
    duration: Seconds = Field(60.0, gt=0, description="of the load, after the warm-up")
    warm_up: Seconds = Field(5.0, description="sent and checked, but not timed and without faults")
    payload: Payload = Field(
        150,
        description="bytes per message, 52 of them a header; sizes that differ by message: `100..10000`, "
        "`{p50: 300, p99: 4000}` (log-normal) or `{sizes: {200: 70%, 1000: 30%}}`. Of "
        "`{bytes: 1000, compressible: 60%}` a codec saves about so much. "
        '`{template: \'{"id": "{id}"}\'}`: a body of your own, with the identity in a header; '
        "`{template: {id: '{id}'}, avro: order.avsc}`: encoded by a schema file",
    )
    producers: dict[Name, ProducerSpec] = Field(
        default_factory=lambda: {"p": ProducerSpec()},
        min_length=1,
        description="by a name of your own",
    )
    consumers: dict[Name, ConsumerSpec] = Field(
        default_factory=dict, description="by a name of your own"
    )
    pipelines: dict[Name, PipelineSpec] = Field(
        default_factory=dict, description="by a name of your own"
    )

    @property
    def writers(self) -> list[ProducerSpec]:
        """Whatever sends: producers, and the halves of pipelines that write."""
        return [*self.producers.values(), *(each.writing for each in self.pipelines.values())]

    @property
    def highest_rate(self) -> int:
        """Messages per second in all: the rate, or the most that it may be."""
        return self.rate.at_most if isinstance(self.rate, RateLimit) else self.rate


class LimitsSpec(Part):
    """Deadlines of the phases, seconds."""

    ready: Seconds = Field(120.0, description="until the cluster works before the load")
    call: Seconds = Field(
        0.0, description="a send open for longer hangs; 0 = the client's own timeout + 10 s"
    )
    unbounded_call: Seconds = Field(
        0.0,
        description="timeout assumed for a client that never gives up; 0 = load + recovery + drain",
    )
    recovery: Seconds = Field(60.0, description="time limit for the recovery after the load")
    drain: Seconds = Field(
        60.0, description="until every send has an outcome and consumers caught up"
    )
    audit: Seconds = Field(
        0.0,
        description="until the whole log is read; 0 = 180 s, and 1 s for each 20,000 messages of the load",
    )
    audit_stall: Seconds = Field(
        20.0, gt=0, description="no progress on a partition for this long: the reader gives it up"
    )
    stall: Seconds = Field(
        15.0, gt=0, description="messages wait and the consumer is given none for this long"
    )


class RequireSpec(Part):
    """The needs of the application, whatever its settings promise. Unset: as configured."""

    delivery: Literal["durable", "as-configured"] = Field(
        "durable", description="durable: an acknowledged message may never be lost"
    )
    order: Literal["lane", "as-configured"] = Field(
        "as-configured",
        description="lane: messages of a lane are stored in the order they were sent",
    )
    dedup: Literal["once", "as-configured"] = Field(
        "as-configured", description="once: no message is stored twice"
    )
    keys: Literal["shared", "as-configured"] = Field(
        "as-configured",
        description="shared: a key's messages are in one partition, whichever producer sent them (`lanes: "
        "key`). Partitioners of client libraries differ",
    )
    rate_ratio: float = Field(
        0.99,
        ge=0,
        le=1,
        description="achieved / intended rate outside outages; below it the run is unknown. For a load that "
        "claims its rate: not with `load.rate.at_most`",
    )
    latency_p50: SecondsLimit = Field(
        None, description="threshold, as all that follow: more is *fail*, not measured is *unknown*"
    )
    latency_p90: SecondsLimit = Field(
        None, description="from the intended time, of acknowledged messages"
    )
    latency_p99: SecondsLimit = Field(
        None,
        description="`500ms`, or `{overall: 5s, outside_faults: 100ms}`: without the time of faults",
    )
    latency_p999: SecondsLimit = Field(
        None, description="needs a thousand messages, as p99 a hundred"
    )
    latency_max: SecondsLimit = Field(None, description="of the slowest acknowledged message")
    outage: SecondsLimit = Field(
        None,
        description="the longest time that a partition, topic or queue goes without an acknowledgement",
    )
    recovery: SecondsLimit = Field(
        None, description="from the end of a fault until every stream that was out is back"
    )
    error_ratio: RatioLimit = Field(
        None, description="sends that were not acknowledged, of all: `0.1%` or `0.001`"
    )

    redeliveries: CountLimit = Field(
        None, description="times that a group is handed one message again, at most: `3`; 0 = never"
    )

    moved_partitions: CountLimit = Field(
        None,
        description="kafka: times that a partition moves to another member of its group during the load, at "
        "most; `0` with static members (`group.instance.id`) that restart",
    )

    def limits(self) -> Iterator[tuple[str, Limit]]:
        """The thresholds that are set, by key."""
        for name in type(self).model_fields:
            if isinstance(limit := getattr(self, name), Limit):
                yield name, limit


class VariantSpec(Part):
    """A named override of the scenario and what it must show: ``clean`` or an anomaly class."""

    about: str = Field("", description="description in one line")
    expect: str = Field("clean", description="clean, or a class of `brokerstorm list classes`")
    override: Document = Field(
        default_factory=dict, description="merged over the scenario, key by key"
    )


class Scenario(Part):
    """One scenario file."""

    #: What a key of another tool is called here (`harness.validation`).
    hint_of: ClassVar = staticmethod(other_word)

    name: Name = Field(description="run folders are named after it")
    about: str = Field("", description="description in one line")
    system: SystemName = Field(DEFAULT.name, description="the broker")
    workers: list[str] = Field(
        default_factory=list,
        description="folders of workers of your own, relative to this file; `docs/howto/add-a-worker.md`",
    )
    cluster: ClusterSpec = Field(
        default_factory=ClusterSpec, description="version and broker settings"
    )
    topics: dict[Name, TopicSpec] = Field(
        default_factory=lambda: {"orders": TopicSpec()}, min_length=1, description="by name"
    )
    load: LoadSpec = Field(
        default_factory=LoadSpec, description="producers, consumers, rate, duration"
    )
    applications: dict[Name, ApplicationSpec] = Field(
        default_factory=dict,
        description="programs of your own that read one topic and write another; "
        "`docs/howto/test-an-application.md`",
    )
    faults: list[FaultStep] = Field(
        default_factory=list, description="steps, or a `mix` of them: faults.md"
    )
    require: RequireSpec = Field(
        default_factory=RequireSpec, description="what the application needs"
    )
    limits: LimitsSpec = Field(default_factory=LimitsSpec, description="deadlines of the phases")
    audit: Literal["leader", "every-replica"] = Field(
        "leader",
        description="log that is read at the end: the leader's, or those of all replicas, compared",
    )
    rounds: int = Field(1, ge=1, le=1000, description="times each variant is run, interleaved")
    variants: dict[Name, VariantSpec] = Field(
        default_factory=dict, description="named overrides, and what each must show"
    )
    bug: BugSpec | None = Field(
        None, description="makes it a known bug that `brokerstorm repro` compares"
    )

    #: The file this came from (`harness.scenario.file.Source`); None when built in Python.
    _source: Any = PrivateAttr(default=None)

    #: What was left aside of files that the scenario names, a sentence each.
    _notes: list[str] = PrivateAttr(default_factory=list)
    #: The scenario as text without the files that it names; empty = it names none.
    _written_out: str = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _with_defaults_of_the_system(cls, data: Any) -> Any:
        return with_system_defaults(data)

    @property
    def folder(self) -> Path:
        """Return the folder to which paths in the scenario are relative."""
        return Path() if self._source is None else Path(self._source.path.parent)

    @property
    def worker_folders(self) -> list[str]:
        """The folders of ``workers``, absolute."""
        return [str(resolved(path_below(self.folder, folder))) for folder in self.workers]

    def profile_table(self, producer: str = "") -> Table:
        """The rows of a producer's own profile, or else of ``load.profile``; none without either.
        Raises as `Profile.table`."""
        own = self.load.producers[producer].profile if producer else None
        profile = own or self.load.profile
        return profile.table(self.load.duration, self.folder) if profile is not None else []

    @property
    def notes(self) -> list[str]:
        """Return what was ignored in files that the scenario names, one sentence for each."""
        return list(self._notes)

    @property
    def text(self) -> str:
        """The file as the user wrote it, with the values of the files that it names for options
        instead of their names; empty when built in Python."""
        return self._written_out or ("" if self._source is None else str(self._source.text))


def with_system_defaults(data: Any) -> Any:
    """A scenario's data with what its system takes where nothing is written: client and
    partitions."""
    named = data.get("system", DEFAULT.name) if isinstance(data, dict) else None
    facts = SYSTEMS.get(named) if isinstance(named, str) else None
    if facts is None or facts.is_default:
        return data
    topics = _filled(data.get("topics", {"orders": {}}), partitions=facts.partitions)
    load = data.get("load", {})
    if isinstance(load, dict):
        producers = _filled(load.get("producers", {"p": {}}), client=facts.client)
        load = {**load, "producers": producers}
        if "consumers" in load:
            load["consumers"] = _filled(load["consumers"], client=facts.client)
        if "pipelines" in load:
            load["pipelines"] = _filled(load["pipelines"], client=facts.client)
    return {**data, "topics": topics, "load": load}


def _filled(entries: Any, **defaults: Any) -> Any:
    if not isinstance(entries, dict):
        return entries
    return {key: {**defaults, **e} if isinstance(e, dict) else e for key, e in entries.items()}
