"""Checks across the keys of a scenario: combinations that are wrong though each key is valid by
itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from harness.errors import did_you_mean
from harness.exposure import CAPTURED
from harness.node_settings import node_configs, setting_name
from harness.scenario.application_checks import application_problems
from harness.scenario.bug import bug_problems
from harness.scenario.headers import header_names, header_templates
from harness.scenario.members import own_name_problems
from harness.scenario.model import (
    ConsumerSpec,
    PipelineSpec,
    ProducerSpec,
    Scenario,
    TopicSpec,
    native,
)
from harness.scenario.payload import (
    payload_charset,
    payload_compressible,
    payload_sizes,
    payload_table,
    payload_template,
)
from harness.scenario.pipeline import pipeline_problems
from harness.scenario.rate import RateLimit
from harness.systems import DEFAULT, SYSTEMS, System
from harness.validation import is_one_line

#: The name of a broker setting.
_SETTING = re.compile(r"[A-Za-z0-9_.-]+")
#: Streams of a scenario in all: each is a file handle, a line of the audit and a row of the report.
MAX_STREAMS = 10_000

Problem = tuple[tuple[str | int, ...], str]


class Client(Protocol):
    """The part of a worker that a scenario is checked against (`harness.workers.WorkerSpec`)."""

    @property
    def systems(self) -> Sequence[str]:
        """Every message system that it talks to."""

    def on_system(self, system: str) -> Client:
        """The client as it is on one of its systems."""

    @property
    def roles(self) -> Sequence[str]: ...
    @property
    def supports(self) -> Mapping[Any, Sequence[str]]:
        """By key of a producer or consumer, the values this worker can do."""

    def first_able(self, key: Any, client_version: str) -> str:
        """The first version with more by this key than every worker has; empty = this one has
        it."""

    def first_taking(self, option: str, value: Any, client_version: str) -> str:
        """The first version whose option takes this value; empty = this one does, as far as is
        stated."""

    def first_brokers(self, option: str, value: Any, version: str) -> str:
        """The first brokers that can do what this asks for; empty = this version can, or it is not
        known."""

    def oldest_brokers(self, version: str) -> str:
        """The first brokers that it can talk to; empty = this version is one of them, or it is not
        known."""

    @property
    def reserved(self) -> Collection[str]:
        """Options that the harness sets itself; a scenario that sets one would no longer say what
        is run."""

    @property
    def options(self) -> Mapping[Any, Mapping[str, str]]:
        """By role, options that the worker sets unless the scenario does."""

    @property
    def instead(self) -> Mapping[str, str]:
        """Reserved option -> which key of a scenario has its effect, or what is always so."""

    @property
    def security_options(self) -> Collection[str]:
        """Options that are set from what a cluster asks of clients."""

    @property
    def left_aside(self) -> Collection[str]:
        """Options that every application's file has and that a run decides itself."""

    @property
    def own_names(self) -> Mapping[Any, str]:
        """By role, the option that gives a client a name which no other client may have."""

    @property
    def exposure(self) -> Collection[str]:
        """Exposure counters that it reports."""


#: What a worker can do that says nothing. `_asked` has those that are not keys of a producer in
#: words.
SUPPORTED = {
    "calls": ("async",),
    "results": ("checked", "ignored"),
    "receive": ("loop",),
    "settle": ("auto",),
    "threads": ("one",),
    "payload": ("fixed",),
    "filling": ("alike",),
    "headers": ("none",),
    "header_values": ("fixed",),
    "key": ("numbered",),
    "rate": ("constant",),
    "turns": ("equal",),
    "transactions": ("none",),
    "deliver_after": ("none",),
    "commit": ("explicit",),
    "start": ("earliest",),
    "pattern": ("none",),
    "reader": ("none",),
    "pauses": ("none",),
    "seeks": ("none",),
}
#: Why few workers can do a thing.
_WHY_FEW = {
    "commit": "its client does not say which positions it commits by itself",
    "start": "its client always begins at the first message here",
    "deliver_after": "messages of this system are not delayed",
    "pattern": "it subscribes to topics by name",
    "reader": "it reads in a group",
    "pauses": "it pauses no partition",
    "seeks": "it seeks no position",
}


def problems(
    scenario: Scenario,
    *,
    clients: Mapping[str, Client] | None = None,
    classes: Collection[str] = (),
) -> Iterator[Problem]:
    """Each problem as (key path, what is wrong; what is allowed).

    ``clients`` and ``classes`` are the known workers and anomaly classes; none = not checked.
    """
    system = SYSTEMS[scenario.system]
    yield from _rate_problems(scenario)
    yield from _profile_problems(scenario)
    yield from _threshold_problems(scenario)
    yield from _cluster_problems(scenario, system)
    yield from _topics_problems(scenario, system)
    yield from pipeline_problems(scenario)
    yield from application_problems(scenario)
    if scenario.audit != "leader" and not system.reads_replicas:
        able = ", ".join(name for name, each in SYSTEMS.items() if each.reads_replicas)
        yield (
            ("audit",),
            f"is not possible on {system.name}; write leader: replicas can be read on {able}",
        )
    yield from _application_problems(scenario)
    yield from _client_problems(scenario, clients)
    yield from own_name_problems(scenario, clients or {})
    for name, consumer in scenario.load.consumers.items():
        yield from _consumer_problems(("load", "consumers", name), consumer, system)
    for name, producer in scenario.load.producers.items():
        yield from _producer_problems(("load", "producers", name), producer, system)
    yield from _lane_problems(scenario)
    yield from _joining_problems(scenario)
    for name, variant in scenario.variants.items():
        if classes and variant.expect not in {"clean", *classes}:
            known = did_you_mean(variant.expect, ["clean", *classes])
            yield ("variants", name, "expect"), f"is not a class; {known}"
    if scenario.bug is not None:
        reported = {name for client in (clients or {}).values() for name in client.exposure}
        counters = None if clients is None else [*CAPTURED, *sorted(reported)]
        yield from bug_problems(
            scenario.bug, scenario.variants, counters, has_faults=bool(scenario.faults)
        )


def _profile_problems(scenario: Scenario) -> Iterator[Problem]:
    profiles = [scenario.load.profile, *(each.profile for each in scenario.load.producers.values())]
    if scenario.load.unlimited and any(profiles):
        yield ("load", "unlimited"), "has no meaning with a profile; leave one of them out"
    own = [(("load", "producers", name, "profile"), name) for name in scenario.load.producers]
    places: list[tuple[tuple[str, ...], str]] = [(("load", "profile"), ""), *own]
    for at, producer in places:
        try:
            scenario.profile_table(producer)
        except ValueError as error:
            yield at, str(error)


def _rate_problems(scenario: Scenario) -> Iterator[Problem]:
    load = scenario.load
    if load.rate == 0 and not load.unlimited:
        yield ("load", "rate"), "must be at least 1, or set load.unlimited: true"
    if not isinstance(load.rate, RateLimit):
        return
    if load.unlimited:
        yield ("load", "rate"), "has no meaning with load.unlimited: true; leave one of them out"
    if "rate_ratio" in scenario.require.model_fields_set:
        sentence = (
            "has no meaning with load.rate.at_most, which claims no rate; leave one of them out"
        )
        yield ("require", "rate_ratio"), sentence


def _threshold_problems(scenario: Scenario) -> Iterator[Problem]:
    recovery = scenario.require.recovery
    if recovery is not None and recovery.outside_faults is not None:
        sentence = "has no meaning without faults, which recoveries belong to; leave it out"
        yield ("require", "recovery", "outside_faults"), sentence


# ----- cluster and topics -------------------------------------------------------------------------


def _cluster_problems(scenario: Scenario, system: System) -> Iterator[Problem]:
    cluster = scenario.cluster
    if cluster.topology and cluster.topology not in system.topologies:
        allowed = (
            ", ".join(system.topologies) or f"{system.name} has one topology only: leave it out"
        )
        yield ("cluster", "topology"), f"is not a topology of {system.name}; {allowed}"
    yield from _config_problems(scenario, system)


def _config_problems(scenario: Scenario, system: System) -> Iterator[Problem]:
    cluster = scenario.cluster
    names = {setting_name(key) for key in cluster.config}
    for option, why in system.broker_config.items():
        if option in names:
            yield (
                ("cluster", "config", option),
                f"is set by brokerstorm itself; {why}: leave it out",
            )
    if any(producer.transactions for producer in scenario.load.producers.values()):
        for key, value in cluster.config.items():
            option = setting_name(key)
            needed = system.transactional_config.get(option, "")
            if needed and str(value).lower() != needed:
                yield (
                    ("cluster", "config", option),
                    f"must be {needed} with transactions: leave it out",
                )
    for key, value in cluster.config.items():
        option = setting_name(key)
        if not _SETTING.fullmatch(option):
            yield (
                ("cluster", "config", option),
                "is not a name of a setting: letters, digits, . _ and -",
            )
        elif not is_one_line(f"{option}={value}"):
            yield (
                ("cluster", "config", option),
                "is not a setting of one line; a broker reads a second one",
            )
    for settings in node_configs(native(cluster.config)):
        for option, problem in system.cluster_problems(cluster.topology, settings):
            yield ("cluster", "config", option), problem


def _topics_problems(scenario: Scenario, system: System) -> Iterator[Problem]:
    seen: dict[str, tuple[str, str]] = {}
    streams = 0
    for name, topic in scenario.topics.items():
        yield from _foreign(("topics", name), "topic", topic, system)
        config, version = native(topic.config), scenario.cluster.version or system.version
        for option, problem in (
            *system.topic_problems(topic.replication, config),
            *system.version_problems(version, topic.replication, config),
        ):
            yield ("topics", name, "config", option), problem
        if system.is_queue and topic.partitions != 1:
            yield (
                ("topics", name, "partitions"),
                "must be 1: a queue has no partitions; count makes several",
            )
        if system.keeps_last_of_key(native(topic.config)):
            yield from _compaction_problems(name, scenario)
        if system.is_queue and not system.removes_settled(native(topic.config)):
            yield from _mixed_problems(name, scenario, system)
        if moved := system.moves_to(config):
            yield from _moved_problems(name, moved, scenario, system)
        if not system.is_queue and system.removes_settled(native(topic.config)):
            yield from _work_queue_problems(name, topic, scenario, system)
        if topic.grows_to is not None:
            yield from _growth_problems(name, topic, scenario, system)
        for each in topic.names(name):
            first, other = seen.setdefault(system.name_key(each), (each, name))
            if first != each:
                yield (
                    ("topics", name),
                    f"collides with {first}; {system.name} cannot tell these names apart",
                )
            elif other != name:
                yield (
                    ("topics", name, "count"),
                    f"is the second {each}; the first is of topic {other}",
                )
        streams += topic.count * max(topic.partitions, topic.grows_to or 0)
        if streams > MAX_STREAMS:
            yield (
                ("topics", name, "count"),
                f"makes {streams} partitions in all; at most {MAX_STREAMS}",
            )


def _mixed_problems(name: str, scenario: Scenario, system: System) -> Iterator[Problem]:
    """A topic that keeps its messages is read as a log, and a queue by what remains in it."""
    for other, each in scenario.topics.items():
        if system.removes_settled(native(each.config)):
            yield (
                ("topics", name, "config"),
                f"keeps messages that were read, and topic {other} does not; put them into two scenarios",
            )
            return


def _moved_problems(name: str, moved: str, scenario: Scenario, system: System) -> Iterator[Problem]:
    """Messages that a topic gives up must come to a stream of another topic, which is read, too."""
    option = next(
        key for key, value in native(scenario.topics[name].config).items() if value == moved
    )
    at = ("topics", name, "config", option)
    streams = {
        f"{each}-{partition}": other
        for other, topic in scenario.topics.items()
        for each in topic.names(other)
        for partition in range(topic.partitions)
        if other != name
    }
    other = streams.get(moved)
    if other is None:
        yield at, f"{moved} is not a queue of another topic; {did_you_mean(moved, streams)}"
    elif system.moves_to(native(scenario.topics[other].config)):
        yield at, f"{moved} moves its messages, too; loss could not be detected"


def _compaction_problems(name: str, scenario: Scenario) -> Iterator[Problem]:
    """A compacted topic is judged by the keys of its messages."""
    at = ("topics", name, "config", "cleanup.policy")
    load = scenario.load
    for producer, spec in load.producers.items():
        if spec.topics and name not in spec.topics:
            continue
        if spec.lanes != "key":
            yield (
                ("load", "producers", producer, "lanes"),
                f"must be key: topic {name} is compacted, and takes no message without a key",
            )
        if spec.transactions:
            yield at, "cannot be combined with transactions; leave one of them out"
    if any(name in (each.from_, each.to) for each in load.pipelines.values()):
        yield (
            at,
            "cannot be combined with a pipeline that reads or writes the topic; leave one of them out",
        )
    if scenario.audit != "leader":
        yield (
            at,
            "cannot be combined with audit: every-replica: each replica is compacted by itself",
        )


def _work_queue_problems(
    name: str, topic: TopicSpec, scenario: Scenario, system: System
) -> Iterator[Problem]:
    """A stream that removes acknowledged messages is judged as a queue, and by one group."""
    at = ("topics", name, "config", "retention")
    kept = [
        other
        for other, each in scenario.topics.items()
        if not system.removes_settled(native(each.config))
    ]
    if kept:
        yield (
            at,
            f"topic {kept[0]} keeps acknowledged messages, and {name} does not; put them into two scenarios",
        )
    readers = {
        consumer: spec
        for consumer, spec in scenario.load.consumers.items()
        if spec.reads(name, name)
    }
    groups = sorted({spec.group for spec in readers.values()})
    if len(groups) != 1:
        found = f"groups {', '.join(groups)} read it" if groups else "no consumer reads it"
        yield (
            at,
            f"one group must read the topic, which removes what the group acknowledged; {found}",
        )
    elif system.forgets_unread(native(topic.config)) and all(
        spec.joins_after for spec in readers.values()
    ):
        yield (
            at,
            "removes what comes before its first consumer; leave joins_after out of one of them",
        )
    for consumer, spec in readers.items():
        if spec.settle == "none":
            yield (
                ("load", "consumers", consumer, "settle"),
                f"must be ack: topic {name} keeps a message until it is acknowledged",
            )
    if scenario.audit != "leader":
        yield (
            at,
            "cannot be combined with audit: every-replica: a copy removes what was acknowledged",
        )


def _growth_problems(
    name: str, topic: TopicSpec, scenario: Scenario, system: System
) -> Iterator[Problem]:
    at, piped = ("topics", name, "grows_to"), scenario.load.pipelines.values()
    if not system.grows_topics:
        yield at, f"topics of {system.name} are not made to grow here; leave it out"
    elif (topic.grows_to or 0) <= topic.partitions:
        yield at, f"must be above its {topic.partitions} partitions"
    elif any(name in (each.from_, each.to) for each in piped):
        yield at, "a pipeline makes its outputs by the number of partitions: leave it out"


def _foreign(at: tuple[str, ...], part: str, spec: Any, system: System) -> Iterator[Problem]:
    """Keys that were written and mean nothing on this system."""
    for (where, key), instead in system.foreign.items():
        if where == part and key in spec.model_fields_set:
            yield (*at, key), f"has no meaning on {system.name}; {instead}"


def _template_problems(scenario: Scenario) -> Iterator[Problem]:
    """What is read back without the headers of messages."""
    at, load = ("load", "payload"), scenario.load
    if load.pipelines:
        yield at, "a template cannot be combined with pipelines, which make payloads of their own"
    transacts = any(producer.transactions for producer in load.producers.values())
    if transacts and not SYSTEMS[scenario.system].reads_uncommitted:
        yield (
            at,
            f"a template cannot be combined with transactions on {scenario.system}, which tells of a message "
            "that was not committed without its properties",
        )


def _header_template_problems(scenario: Scenario) -> Iterator[Problem]:
    """Headers from templates without bodies from one."""
    for name, producer in scenario.load.producers.items():
        for header in header_templates(producer.headers):
            yield (
                ("load", "producers", name, "headers", header),
                "a template needs load.payload: {template: TEXT}, too; or write a text without places",
            )


# ----- clients ------------------------------------------------------------------------------------


def _client_problems(scenario: Scenario, clients: Mapping[str, Client] | None) -> Iterator[Problem]:
    sides: tuple[tuple[str, Mapping[str, ProducerSpec | ConsumerSpec]], ...] = (
        ("producers", scenario.load.producers),
        ("consumers", scenario.load.consumers),
    )
    for side, specs in sides:
        for name, spec in specs.items():
            at = ("load", side, name)
            if clients is not None:
                yield from _worker_problems(at, spec, scenario, clients)
            for index, topic in enumerate(spec.topics):
                if topic not in scenario.topics:
                    sentence = (
                        f"is not declared under topics; {did_you_mean(topic, scenario.topics)}"
                    )
                    yield (*at, "topics", index), sentence
    if payload_template(scenario.load.payload):
        yield from _template_problems(scenario)
    else:
        yield from _header_template_problems(scenario)
    for name, pipeline in scenario.load.pipelines.items():
        if clients is not None:
            yield from _worker_problems(("load", "pipelines", name), pipeline, scenario, clients)


def _worker_problems(
    at: tuple[str, ...],
    spec: ProducerSpec | ConsumerSpec | PipelineSpec,
    scenario: Scenario,
    clients: Mapping[str, Client],
) -> Iterator[Problem]:
    """The client must exist, be of this system, have the role and be able to do what is asked."""
    system = scenario.system
    fitting = [name for name, client in clients.items() if system in client.systems]
    if spec.client not in clients:
        yield (*at, "client"), f"is not a known client; {did_you_mean(spec.client, fitting)}"
        return
    worker = clients[spec.client].on_system(system)
    role = _ROLES[type(spec)]
    if system not in worker.systems:
        own = " and ".join(worker.systems)
        yield (
            (*at, "client"),
            f"is a client of {own}, not of {system}; {did_you_mean('', fitting)}",
        )
        return
    if role not in worker.roles:
        yield (*at, "client"), f"has no {role} worker; it has: {', '.join(worker.roles)}"
    if first := worker.oldest_brokers(scenario.cluster.version):
        yield (
            ("cluster", "version"),
            f"must be {first} or newer: {spec.client} talks to no older brokers",
        )
    for key, value in _asked(spec, scenario).items():
        able = worker.supports.get(key, SUPPORTED[key])
        if value not in able:
            where = _ELSEWHERE.get(key, at if key == "turns" else (*at, _NAMED.get(key, key)))
            why = f": {_WHY_FEW[key]}" if key in _WHY_FEW and system == DEFAULT.name else ""
            sentence = f"is not supported by the {spec.client} worker{why}"
            yield where, f"{sentence}; supported: {', '.join(able)}"
        elif value not in SUPPORTED[key] and (first := worker.first_able(key, spec.client_version)):
            yield (
                (*at, "client_version"),
                f"must be {first} or newer with {key}: {spec.client} has none before",
            )
    keys = ("options", "consumer_options") if isinstance(spec, PipelineSpec) else ("options",)
    for key in keys:
        yield from _option_problems(at, spec, worker, scenario, key)


def _option_problems(
    at: tuple[str, ...],
    spec: ProducerSpec | ConsumerSpec | PipelineSpec,
    worker: Client,
    scenario: Scenario,
    key: str,
) -> Iterator[Problem]:
    for option, value in getattr(spec, key).items():
        if option in worker.reserved:
            ours = (
                worker.options.get("consumer", {}).get(option)
                if isinstance(spec, ConsumerSpec)
                else None
            )
            if ours is not None and native({option: value})[option].lower() == ours.lower():
                continue  # says what is so anyway
            instead = worker.instead.get(option, "leave it out")
            yield (*at, key, option), f"is set by brokerstorm itself: {instead}"
        elif option in worker.security_options:
            text = "is set from the connection file (`--cluster FILE`): leave it out"
            yield (*at, key, option), text
        elif first := worker.first_taking(option, value, spec.client_version):
            yield (*at, "client_version"), f"must be {first} or newer with {option}={value}"
        elif first := worker.first_brokers(option, value, scenario.cluster.version):
            yield (
                ("cluster", "version"),
                f"must be {first} or newer: {spec.client} asks for {option}={value}",
            )


_ROLES = {ProducerSpec: "producer", ConsumerSpec: "consumer", PipelineSpec: "pipeline"}
#: Keys of ``[supports]`` that correspond to a key of the load.
_ELSEWHERE = {
    "payload": ("load", "payload"),
    "filling": ("load", "payload"),
    "rate": ("load", "profile"),
}
#: Keys of ``[supports]`` with the key of a producer that they are about.
_NAMED = {"header_values": "headers"}


def _asked(spec: ProducerSpec | ConsumerSpec | PipelineSpec, scenario: Scenario) -> dict[str, str]:
    """Return what a worker must be able to do, by key of its ``[supports]``."""
    if isinstance(spec, PipelineSpec):
        asked = _asked(spec.writing, scenario)
        return {key: asked[key] for key in ("payload", "filling", "transactions")}
    if isinstance(spec, ConsumerSpec):
        return {
            **{key: getattr(spec, key) for key in ("receive", "settle", "commit", "start")},
            "pattern": "regex" if spec.pattern else "none",
            "reader": "assigned" if spec.reader else "none",
            "pauses": "periodic" if spec.pauses else "none",
            "seeks": "back" if spec.seeks else "none",
            "payload": "template" if payload_template(scenario.load.payload) else "fixed",
        }
    topics = [
        scenario.topics[name] for name in spec.topics or scenario.topics if name in scenario.topics
    ]
    mixed = payload_table(scenario.load.payload)
    smallest, largest = payload_sizes(scenario.load.payload)
    payload = "fixed" if largest == smallest else "mixed" if mixed else "range"
    if payload_template(scenario.load.payload):
        payload = "encoded" if payload_charset(scenario.load.payload) else "template"
    return {
        "calls": spec.calls,
        "results": spec.results,
        "threads": "many" if spec.threads > 1 else "one",
        "payload": payload,
        "filling": "alike"
        if payload_compressible(scenario.load.payload) is None
        else "compressible",
        "headers": header_names(spec.headers),
        "header_values": "template" if header_templates(spec.headers) else "fixed",
        "key": "template" if spec.key else "numbered",
        "rate": "profile" if spec.profile or scenario.load.profile else "constant",
        "turns": "table" if spec.skew or any(topic.share for topic in topics) else "equal",
        "transactions": "produce" if spec.transactions else "none",
        "deliver_after": "delayed" if spec.deliver_after else "none",
    }


def _consumer_problems(
    at: tuple[str, ...], spec: ConsumerSpec, system: System
) -> Iterator[Problem]:
    yield from _foreign(at, "consumer", spec, system)
    for key, values in system.allowed.items():
        if getattr(spec, key) not in values:
            yield (*at, key), f"has no meaning on {system.name}; must be {' or '.join(values)}"
    if spec.settle == "transacted" and not spec.per_transaction:
        yield (*at, "per_transaction"), "must be at least 1 with settle: transacted"
    if spec.settle != "transacted":
        for key in ("per_transaction", "rollback_every"):
            if getattr(spec, key):
                yield (*at, key), "needs settle: transacted"
    if spec.nack_every and system.has_offsets and spec.settle != "ack":
        yield (*at, "nack_every"), "needs settle: ack, in a share group: others commit positions"
    elif spec.nack_every and system.is_queue and spec.settle != "ack":
        yield (
            (*at, "nack_every"),
            "needs settle: ack; a rollback gives back a transaction: see rollback_every",
        )
    elif spec.nack_every and spec.settle not in {"auto", "ack", "cumulative"}:
        yield (*at, "nack_every"), "needs settle: ack, auto or cumulative"


def _application_problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield a problem for each thing that the application of a run never does, whatever its client
    can do."""
    system = SYSTEMS[scenario.system]
    for name, producer in scenario.load.producers.items():
        yield from _delay_problems(("load", "producers", name), producer, scenario)
    for name, spec in scenario.load.consumers.items():
        at = ("load", "consumers", name)
        if spec.start == "none":
            sentence = (
                "has no meaning in a run: its groups are new, so the client would end at once"
            )
            yield (*at, "start"), f"{sentence}; must be earliest or latest"
        is_at_once = "cumulative" in system.allowed["settle"] and spec.settle != "cumulative"
        if is_at_once and "commit_every" in spec.model_fields_set:
            sentence = (
                "needs settle: cumulative; other settlements acknowledge each message at once"
            )
            yield (*at, "commit_every"), sentence
        if spec.commit == "auto" and spec.settle != "auto":
            sentence = (
                "needs settle: auto: the client commits positions, it acknowledges no message"
            )
            yield (*at, "commit"), sentence
        yield from _pattern_problems(at, spec, scenario)
        yield from _reader_problems(at, spec, scenario)
        yield from _interruption_problems(at, spec, scenario)


def _delay_problems(
    at: tuple[str, ...], spec: ProducerSpec, scenario: Scenario
) -> Iterator[Problem]:
    """A delay is shorter than the time after which consumers that are given nothing are stalled,
    and than the drain, which waits for it."""
    if not spec.deliver_after:
        return
    at = (*at, "deliver_after")
    if spec.transactions:
        yield at, "cannot be combined with transactions; remove one of them"
    for limit in ("stall", "drain"):
        most_s = getattr(scenario.limits, limit)
        if spec.deliver_after >= most_s:
            yield at, f"must be less than limits.{limit} ({most_s:g} s)"


def _pattern_problems(
    at: tuple[str, ...], spec: ConsumerSpec, scenario: Scenario
) -> Iterator[Problem]:
    """A subscription by pattern matches topics of the scenario, and names none."""
    if not spec.pattern:
        return
    if spec.topics:
        yield (*at, "pattern"), "cannot be combined with topics; remove one of them"
    try:
        re.compile(spec.bare_pattern)
    except re.error as error:
        yield (*at, "pattern"), f"is not a regular expression: {error}"
        return
    names = [name for declared, topic in scenario.topics.items() for name in topic.names(declared)]
    if not any(spec.reads(name, "") for name in names):
        yield (*at, "pattern"), f"matches no topic; {did_you_mean('', names, label='topics')}"


def _reader_problems(
    at: tuple[str, ...], spec: ConsumerSpec, scenario: Scenario
) -> Iterator[Problem]:
    """A reader shares nothing with other processes, and commits nothing."""
    if not spec.reader:
        return
    for key, allowed in (("count", 1), ("settle", "auto"), ("commit", "explicit"), ("pattern", "")):
        if getattr(spec, key) != allowed:
            yield (*at, key), f"must be {allowed or 'empty'} with reader: true"
    load = scenario.load
    groups = [each.group for each in load.consumers.values()]
    groups += [each.group or name for name, each in load.pipelines.items()]
    if groups.count(spec.group) > 1:
        yield (
            (*at, "group"),
            "must be a name of its own with reader: true: its deliveries are judged alone",
        )
    if any(topic.grows_to and spec.reads(name, name) for name, topic in scenario.topics.items()):
        yield (
            (*at, "reader"),
            "does not see new partitions; leave out grows_to of the topic, or reader",
        )


def _interruption_problems(
    at: tuple[str, ...], spec: ConsumerSpec, scenario: Scenario
) -> Iterator[Problem]:
    """Pauses and seeks: of members that commit positions; on Pulsar, of the only member of a
    subscription."""
    system = SYSTEMS[scenario.system]
    if spec.seeks and not system.has_offsets:
        yield from _subscription_seek_problems(at, spec, scenario)
    for key in ("pauses", "seeks"):
        if getattr(spec, key) and spec.settle != "auto" and system.has_offsets:
            yield (
                (*at, key),
                "needs settle: auto: members of a share group have no positions of their own",
            )
    if spec.pauses and spec.pauses.for_ >= spec.pauses.every:
        yield (*at, "pauses", "for"), f"must be less than every ({spec.pauses.every:g} s)"
    if spec.pauses and spec.pauses.for_ >= scenario.limits.stall:
        sentence = f"must be less than limits.stall ({scenario.limits.stall:g} s): it would look like a stall"
        yield (*at, "pauses", "for"), sentence


def _subscription_seek_problems(
    at: tuple[str, ...], spec: ConsumerSpec, scenario: Scenario
) -> Iterator[Problem]:
    """A seek by message id moves the whole subscription, in the only partition that its consumer
    has."""
    if spec.count > 1:
        yield (*at, "count"), "must be 1 with seeks: a seek moves all members of the subscription"
    if [each.group for each in scenario.load.consumers.values()].count(spec.group) > 1:
        yield (
            (*at, "group"),
            "must be a name of its own with seeks: a seek moves the whole subscription",
        )
    if spec.receive != "loop":
        yield (
            (*at, "receive"),
            "must be loop with seeks: the application knows what came before a seek",
        )
    if spec.reader:
        yield (
            (*at, "seeks"),
            "cannot be combined with reader: a reader has no subscription; remove one of them",
        )
    partitions = sum(
        max(topic.partitions, topic.grows_to or 0)
        for declared, topic in scenario.topics.items()
        for name in topic.names(declared)
        if spec.reads(name, declared)
    )
    if partitions != 1:
        sentence = "needs one topic with partitions: 1, because clients seek by message id in one partition"
        yield (*at, "seeks"), f"{sentence}; it reads {partitions} partitions"


def _producer_problems(
    at: tuple[str, ...], spec: ProducerSpec, system: System
) -> Iterator[Problem]:
    if "batch" in spec.model_fields_set and spec.calls != "batch":
        yield (*at, "batch"), "needs calls: batch"
    coming = spec.comes_and_goes
    if coming is not None and coming.away >= coming.every:
        yield (*at, "comes_and_goes", "away"), f"must be less than every ({coming.every:g} s)"
    yield from _transaction_problems(at, spec)
    if spec.skew and spec.lanes != "key":
        yield (*at, "skew"), "needs lanes: key"
    if system.is_queue and spec.lanes == "key":
        yield (
            (*at, "lanes"),
            f"has no meaning on {system.name}; a queue has no keys: must be partition or routed",
        )


def _transaction_problems(at: tuple[str, ...], spec: ProducerSpec) -> Iterator[Problem]:
    own = spec.transactions
    if own is None:
        return
    if not own.messages and not own.every:
        yield (*at, "transactions"), "needs messages or every: when does one end?"
    for key, value, allowed in (
        ("calls", spec.calls, "async"),
        ("threads", spec.threads, 1),
        ("when_full", spec.when_full, "wait"),
    ):
        if value != allowed:
            instead = "; transactions.ids has the threads" if key == "threads" else ""
            yield (*at, key), f"must be {allowed} with transactions{instead}"
    if spec.results == "resent":
        sentence = "must be checked or ignored with transactions: an application aborts, it re-sends nothing"
        yield (*at, "results"), sentence


def _joining_problems(scenario: Scenario) -> Iterator[Problem]:
    """A consumer that joins after the load would meet no message that was not waiting for it; a
    producer that leaves after it would never be away."""
    for name, producer in scenario.load.producers.items():
        coming = producer.comes_and_goes
        if coming is not None and coming.every + coming.away >= scenario.load.duration:
            sentence = (
                f"and away must be less than load.duration ({scenario.load.duration:g} s) together"
            )
            yield ("load", "producers", name, "comes_and_goes", "every"), sentence
    for name, spec in scenario.load.consumers.items():
        if spec.joins_after >= scenario.load.duration:
            sentence = f"must be less than load.duration ({scenario.load.duration:g} s)"
            yield ("load", "consumers", name, "joins_after"), sentence


def _lane_problems(scenario: Scenario) -> Iterator[Problem]:
    """Producers that share a topic's keyed lanes must mean the same keys; a sending thread needs a
    lane."""
    if scenario.require.keys == "shared" and all(
        spec.lanes != "key" for spec in scenario.load.writers
    ):
        yield ("require", "keys"), "needs a producer with lanes: key"
    keys: dict[str, tuple[str, int, str]] = {}
    for name, spec in scenario.load.producers.items():
        topics = [
            scenario.topics[t] for t in spec.topics or scenario.topics if t in scenario.topics
        ]
        lanes = sum(
            t.count * {"partition": t.partitions, "key": spec.keys, "routed": 1}[spec.lanes]
            for t in topics
        )
        key, senders = spec.senders
        if senders > lanes:
            sentence = f"must be at most {lanes}, the lanes of this producer: a lane has one thread"
            yield ("load", "producers", name, *key.split(".")), sentence
        if spec.lanes != "key":
            if spec.key:
                yield ("load", "producers", name, "key"), "has a meaning only with lanes: key"
            continue
        for topic in spec.topics or scenario.topics:
            other, count, text = keys.setdefault(topic, (name, spec.keys, spec.key))
            if count != spec.keys:
                yield (
                    ("load", "producers", name, "keys"),
                    f"must be {count}, as producer {other} has on {topic}",
                )
            if text != spec.key:
                yield (
                    ("load", "producers", name, "key"),
                    f"must be {text or 'left out'!r}, as producer {other} has it on {topic}",
                )
