"""What the user writes: a scenario file, checked key by key.

Fault steps stay raw here; `faults.compile` validates them and supplies its part of the JSON Schema, so
this module knows no fault kind. `harness.scenario_file` reads the file and turns every problem into
one line that names the key, the value, what is allowed and, for a misspelt key, the nearest known one.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from harness.durations import MAX_DURATION_S as MAX_DURATION_S
from harness.durations import Seconds as Seconds
from harness.durations import parse_seconds as parse_seconds
from harness.scenario_bug import BugSpec, bug_problems
from harness.scenario_part import Name as Name
from harness.scenario_part import Part as Part

MAX_RATE_PER_S = 2_000_000  # above what one machine's clients reach; a typo, not a wish
Option = str | int | float | bool


class ClusterSpec(Part):
    """The brokers: version of the system and native broker settings laid over our template."""

    version: str = Field("", description="version of the broker; empty = our default")
    config: dict[str, Option] = Field(default_factory=dict, description="native broker settings")


class TopicSpec(Part):
    """A topic, made afresh for every run. It keeps its whole log: the audit reads all of it."""

    partitions: int = Field(12, ge=1, le=1000, description="more spread the load over more leaders")
    replication: int = Field(3, ge=1, le=3, description="copies of each partition, one a broker")
    config: dict[str, Option] = Field(default_factory=dict, description="native topic settings")


class ProducerSpec(Part):
    """``count`` producers of one client library; each is a process and a producer instance."""

    client: str = Field("confluent-kafka", description="a worker, see `brokerstorm list workers`")
    client_version: str = Field("", description="version of the client library; empty = the locked one")
    count: int = Field(1, ge=1, le=64, description="processes")
    topics: list[Name] = Field(default_factory=list, description="empty = all topics")
    lanes: Literal["partition", "key", "routed"] = Field(
        "partition", description="unit of order: explicit partition, message key, or the client routes"
    )
    keys: int = Field(1000, ge=1, le=1_000_000, description="keys a topic, for lanes: key")
    share: float = Field(
        1.0, gt=0, le=1_000_000, description="share of the rate, against the other producers"
    )
    options: dict[str, Option] = Field(default_factory=dict, description="the client's own option names")
    when_full: Literal["wait", "fail"] = Field(
        "wait", description="the client's queue is full: wait as a patient application, or count a fail"
    )


class ConsumerSpec(Part):
    """``count`` members of one consumer group reading during the run."""

    client: str = Field("confluent-kafka", description="a worker, see `brokerstorm list workers`")
    client_version: str = Field("", description="version of the client library; empty = the locked one")
    group: Name = Field("group", description="the consumer group")
    count: int = Field(1, ge=1, le=64, description="members, a process each")
    topics: list[Name] = Field(default_factory=list, description="empty = all topics")
    commit_every: Seconds = Field(1.0, gt=0, description="commit what was processed this often")
    options: dict[str, Option] = Field(default_factory=dict, description="the client's own option names")


class LoadSpec(Part):
    """What is sent and read. Open loop: a message is due when the rate says so, not when the last is done."""

    rate: int = Field(50_000, ge=0, le=MAX_RATE_PER_S, description="messages a second in all")
    unlimited: bool = Field(False, description="as fast as the client goes; rate is then ignored")
    duration: Seconds = Field(60.0, gt=0, description="of the load, after the warm-up")
    warm_up: Seconds = Field(5.0, description="sent and checked, but not timed and without faults")
    payload: int = Field(150, ge=52, le=1_000_000, description="bytes a message, 52 of them ours")
    producers: dict[Name, ProducerSpec] = Field(
        default_factory=lambda: {"p": ProducerSpec()}, min_length=1, description="by a name of your own"
    )
    consumers: dict[Name, ConsumerSpec] = Field(default_factory=dict, description="by a name of your own")


class LimitsSpec(Part):
    """Deadlines of the phases, seconds."""

    ready: Seconds = Field(120.0, description="until the cluster works before the load")
    call: Seconds = Field(0.0, description="a send open this long hangs; 0 = the client's own timeout + 10 s")
    recovery: Seconds = Field(60.0, description="until everything is healed and works after the load")
    drain: Seconds = Field(60.0, description="until every send has an outcome and consumers caught up")
    audit: Seconds = Field(180.0, description="until the whole log is read")
    audit_stall: Seconds = Field(20.0, gt=0, description="no progress on a partition: reader gives up")
    stall: Seconds = Field(15.0, gt=0, description="consumer with undelivered messages and no delivery")


class RequireSpec(Part):
    """What the application needs, whatever its settings promise. Unset: as configured."""

    delivery: Literal["durable", "as-configured"] = Field(
        "durable", description="durable: an acknowledged message may never be lost"
    )
    order: Literal["lane", "as-configured"] = Field(
        "as-configured", description="lane: messages of a lane are stored in the order they were sent"
    )
    dedup: Literal["once", "as-configured"] = Field(
        "as-configured", description="once: no message is stored twice"
    )
    rate_ratio: float = Field(
        0.99, ge=0, le=1, description="achieved / intended outside outages; below it the run is unknown"
    )


class VariantSpec(Part):
    """A named override of the scenario and what it must show: ``clean`` or an anomaly class."""

    about: str = Field("", description="one line for people")
    expect: str = Field("clean", description="clean, or a class of `brokerstorm list classes`")
    override: dict[str, Any] = Field(default_factory=dict, description="merged over the scenario, key by key")


class Scenario(Part):
    """One scenario file."""

    name: Name = Field(description="names the run folders")
    about: str = Field("", description="one line for people")
    system: Literal["kafka"] = Field("kafka", description="the broker")
    cluster: ClusterSpec = Field(default_factory=ClusterSpec, description="version and broker settings")
    topics: dict[Name, TopicSpec] = Field(
        default_factory=lambda: {"orders": TopicSpec()}, min_length=1, description="by name"
    )
    load: LoadSpec = Field(default_factory=LoadSpec, description="producers, consumers, rate, duration")
    faults: list[dict[str, Any]] = Field(default_factory=list, description="see `brokerstorm list faults`")
    require: RequireSpec = Field(default_factory=RequireSpec, description="what the application needs")
    limits: LimitsSpec = Field(default_factory=LimitsSpec, description="deadlines of the phases")
    rounds: int = Field(1, ge=1, le=1000, description="times each variant is run, interleaved")
    variants: dict[Name, VariantSpec] = Field(
        default_factory=dict, description="named overrides, and what each must show"
    )
    bug: BugSpec | None = Field(None, description="makes it a known bug that `brokerstorm repro` compares")

    #: The file this came from (`harness.scenario_file.Source`); None when built in Python.
    _source: Any = PrivateAttr(default=None)

    @property
    def text(self) -> str:
        """The file as the user wrote it; empty when built in Python."""
        return "" if self._source is None else str(self._source.text)


#: Client options the harness sets itself; a scenario that sets one would no longer say what is run.
HARNESS_OPTIONS = frozenset(
    name.replace(".", separator)
    for separator in "._"
    for name in (
        "bootstrap.servers",
        "metadata.broker.list",
        "client.id",
        "group.id",
        "transactional.id",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
    )
)

Problem = tuple[tuple[str | int, ...], str]


def problems(
    scenario: Scenario, *, clients: Collection[str] = (), classes: Collection[str] = ()
) -> Iterator[Problem]:
    """What is wrong between keys that are each fine by themselves: (key path, what is wrong).

    ``clients`` and ``classes`` are the known workers and anomaly classes; empty = not checked.
    """
    if scenario.load.rate == 0 and not scenario.load.unlimited:
        yield ("load", "rate"), "must be at least 1, or set load.unlimited: true"
    for name, topic in scenario.topics.items():
        yield from _topic_problems(name, topic)
    if str(scenario.cluster.config.get("min.insync.replicas", "1")) not in {"1", "2", "3"}:
        yield ("cluster", "config", "min.insync.replicas"), "must be 1, 2 or 3"
    yield from _client_problems(scenario, clients)
    yield from _lane_problems(scenario)
    for name, variant in scenario.variants.items():
        if classes and variant.expect not in {"clean", *classes}:
            yield (
                ("variants", name, "expect"),
                f"is no class; {_known(variant.expect, ['clean', *classes])}",
            )
    if scenario.bug is not None:
        yield from bug_problems(scenario.bug, scenario.variants)


def _known(wrong: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(wrong, names, n=1)
    return f"{f'did you mean {near[0]}? ' if near else ''}known: {', '.join(names)}"


def _topic_problems(name: str, topic: TopicSpec) -> Iterator[Problem]:
    """The audit reads a topic's whole log, and every write must be possible with all brokers up."""
    at = ("topics", name, "config")
    config = {key: str(value) for key, value in topic.config.items()}
    for key in ("retention.ms", "retention.bytes"):
        if config.get(key, "-1") != "-1":
            yield (*at, key), "must be -1: the audit needs the whole log"
    if config.get("cleanup.policy", "delete") != "delete":
        yield (*at, "cleanup.policy"), "must be delete: the audit needs the whole log"
    wanted = config.get("min.insync.replicas", "1")
    if not wanted.isdigit() or not 1 <= int(wanted) <= topic.replication:
        yield (*at, "min.insync.replicas"), f"must be a number from 1 to replication ({topic.replication})"


def _client_problems(scenario: Scenario, clients: Collection[str]) -> Iterator[Problem]:
    sides: tuple[tuple[str, dict[str, Any]], ...] = (
        ("producers", dict(scenario.load.producers)),
        ("consumers", dict(scenario.load.consumers)),
    )
    for side, specs in sides:
        for name, spec in specs.items():
            at = ("load", side, name)
            if clients and spec.client not in clients:
                yield (*at, "client"), f"is no known client; {_known(spec.client, clients)}"
            for index, topic in enumerate(spec.topics):
                if topic not in scenario.topics:
                    sentence = f"is not declared under topics; {_known(topic, scenario.topics)}"
                    yield (*at, "topics", index), sentence
            for option in spec.options:
                if option in HARNESS_OPTIONS:
                    yield (*at, "options", option), "is set by brokerstorm itself: leave it out"


def _lane_problems(scenario: Scenario) -> Iterator[Problem]:
    """Producers that share a topic's keyed lanes must mean the same keys."""
    keys: dict[str, tuple[str, int]] = {}
    for name, spec in scenario.load.producers.items():
        if spec.lanes != "key":
            continue
        for topic in spec.topics or scenario.topics:
            other, count = keys.setdefault(topic, (name, spec.keys))
            if count != spec.keys:
                yield (
                    ("load", "producers", name, "keys"),
                    f"must be {count}, as producer {other} has on {topic}",
                )
