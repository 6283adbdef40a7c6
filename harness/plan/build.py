"""Scenario -> `Plan`: lanes, buckets, rates, deadlines and promises, decided before anything
starts.

Pure: the same scenario, seed and tag give the same bytes.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.contracts.plan import (
    ConsumerPlan,
    PausesPlan,
    PipelinePlan,
    Plan,
    ProducerPlan,
    SeeksPlan,
    TopicPlan,
    TransactionsPlan,
)
from harness.contracts.rows import PLAIN_KEY, LaneGroup, LaneMode
from harness.errors import ScenarioError
from harness.node_settings import by_node, for_all
from harness.plan.applications import application_plans
from harness.plan.buckets import with_buckets
from harness.plan.load import load_fields, own_profile, threshold_plans, topic_shares, with_lives
from harness.plan.profile import combined
from harness.plan.rates import shared_out
from harness.plan.settings import (
    Consuming,
    PromiseContext,
    codec_of,
    consumer_promise,
    producer_settings,
    transactional,
)
from harness.scenario.file import variants
from harness.scenario.headers import fixed_headers, header_templates
from harness.scenario.members import members
from harness.scenario.model import ConsumerSpec, ProducerSpec, Scenario, native
from harness.scenario.rate import RateLimit
from harness.systems import SYSTEMS, System
from harness.workers import is_ours, load_worker

#: Rate guessed for sizing when there is none.
UNLIMITED_GUESS_PER_S: Final = 400_000
AUDIT_LEAST_S: Final = 180.0
AUDIT_ROWS_PER_S: Final = 20_000


def build_plans(scenario: Scenario, *, seed: int) -> list[Plan]:
    """The plan of every round, variants interleaved (a, b, a, b ...).

    Round n of every variant has the seed ``seed + n``: variants are compared under the same
    schedule.
    """
    about = {name: spec.about for name, spec in scenario.variants.items()}
    return [
        build_plan(
            merged,
            seed=seed + number,
            variant=name,
            expect=expect,
            about=about.get(name, ""),
        )
        for number in range(scenario.rounds)
        for name, merged, expect in variants(scenario)
    ]


def build_plan(
    scenario: Scenario,
    *,
    seed: int,
    variant: str = "",
    expect: str = "clean",
    about: str = "",
    run_tag: int | None = None,
) -> Plan:
    """Resolve one variant.

    Args:
        scenario: merged with the variant's override.
        seed: decides fault times and targets, and the tag.
        run_tag: 32 bits in every message; None = from scenario, variant and seed.

    Raises:
        ScenarioError: settings that the client refuses, or a rate too small to share out.
    """
    broker_config = _broker_config(scenario)
    tag = _tag(scenario.name, variant, str(seed)) if run_tag is None else run_tag
    system = SYSTEMS[scenario.system]
    topics = topic_plans(scenario, tag)
    groups = _lane_groups(scenario, topics)
    buckets, groups = with_buckets(groups, _expected_rows(scenario), _ways(scenario))
    producers, consumers = _clients(scenario, topics, groups, broker_config)
    return Plan(
        scenario=scenario.name,
        variant=variant,
        expect=expect,
        about=about or scenario.about,
        seed=seed,
        run_tag=tag,
        system=system.name,
        version=scenario.cluster.version or system.version,
        topology=_topology(scenario, system),
        broker_config=broker_config,
        topics=topics,
        lane_groups=groups,
        buckets=buckets,
        producers=producers,
        profile=combined(producers)
        if any(each.profile for each in producers)
        else scenario.profile_table(),
        consumers=consumers,
        pipelines=_pipelines(scenario, producers, consumers),
        applications=application_plans(scenario),
        workers=_worker_folders(scenario),
        **load_fields(scenario),
        faults=scenario.faults,
        limits=_limits(scenario),
        rate_ratio=0.0
        if isinstance(scenario.load.rate, RateLimit)
        else scenario.require.rate_ratio,
        thresholds=threshold_plans(scenario),
        notes=scenario.notes,
        audit=scenario.audit,
    )


def with_tag(plan: Plan, run_tag: int) -> Plan:
    """The plan under another tag: its messages and topics cannot be taken for another run's. Topics
    of applications that the user starts have no tag: the user must know their names before."""
    system = SYSTEMS[plan.system]
    elsewhere = [each for each in plan.applications if each.runs_elsewhere]
    fixed = {topic for each in elsewhere for topic in (each.source, each.to)}
    addresses = [
        f"{plan.prefix}-{topic.name}"
        if plan.prefix and topic.name in fixed
        else system.address(topic.name, run_tag, plan.prefix)
        for topic in plan.topics
    ]
    topics = [
        topic.model_copy(update={"address": address})
        for topic, address in zip(plan.topics, addresses, strict=True)
    ]
    return plan.model_copy(update={"run_tag": run_tag, "topics": topics})


def _broker_config(scenario: Scenario) -> dict[str, str]:
    """Return the broker settings, with those that transactions need if a producer uses them."""
    uses = any(spec.transactions for spec in scenario.load.producers.values())
    needed = SYSTEMS[scenario.system].transactional_config if uses else {}
    return {**needed, **native(scenario.cluster.config)}


def _tag(*parts: str) -> int:
    """Never 0, so that a header full of zeros belongs to no run."""
    return zlib.crc32("/".join(parts).encode()) or 1


def topic_plans(
    scenario: Scenario, run_tag: int = 0, broker_config: Mapping[str, str] | None = None
) -> list[TopicPlan]:
    """Every topic of a scenario, one for each topic that an entry declares.

    ``broker_config``: None = the settings that all nodes of the scenario have.

    Raises:
        ScenarioError: a broker setting that decides how many copies there are is out of range.
    """
    config = for_all(native(scenario.cluster.config)) if broker_config is None else broker_config
    return [
        _topic(scenario, name, declared, config, run_tag)
        for declared, spec in scenario.topics.items()
        for name in spec.names(declared)
    ]


def _topic(
    scenario: Scenario, name: str, declared: str, broker_config: Mapping[str, str], run_tag: int
) -> TopicPlan:
    spec, system = scenario.topics[declared], SYSTEMS[scenario.system]
    is_output = any(each.to.topic == declared for each in scenario.applications.values())
    return TopicPlan(
        name=name,
        partitions=spec.partitions,
        replication=system.replication(
            spec.replication, _topology(scenario, system), broker_config
        ),
        config={
            **(system.append_time if is_output else {}),
            **system.topic_config(native(spec.config), spec.replication, broker_config),
        },
        address=system.address(name, run_tag),
        declared=declared,
        grows_to=spec.grows_to or 0,
    )


def _topology(scenario: Scenario, system: System) -> str:
    return scenario.cluster.topology or next(iter(system.topologies), "")


# ----- lanes --------------------------------------------------------------------------------------


def _lane_groups(scenario: Scenario, topics: Sequence[TopicPlan]) -> list[LaneGroup]:
    """One group for each (topic, mode) that is produced to; lane ids are dense from 0, in topic
    order."""
    groups: list[LaneGroup] = []
    first = 0
    for topic in topics:
        modes: dict[LaneMode, ProducerSpec] = {}
        for spec in scenario.load.writers:
            if not spec.topics or topic.declared in spec.topics:
                modes.setdefault(spec.lanes, spec)
        for mode in sorted(modes):
            spec, count = modes[mode], _lane_count(modes[mode], topic)
            key = spec.key or PLAIN_KEY
            groups.append(LaneGroup(topic.name, mode, first, count, buckets=[], key=key))
            first += count
    return groups


def _lane_count(spec: ProducerSpec, topic: TopicPlan) -> int:
    return {"partition": topic.partitions, "key": spec.keys, "routed": 1}[spec.lanes]


def _expected_rows(scenario: Scenario) -> int:
    load = scenario.load
    rate = UNLIMITED_GUESS_PER_S if load.unlimited else load.highest_rate
    return int(rate * (load.warm_up + load.duration)) * (1 + len(load.pipelines))


def _limits(scenario: Scenario) -> dict[str, float]:
    """Deadlines by phase, seconds. The audit has time for a log of any length, on a busy machine
    too."""
    limits = {key: float(value) for key, value in scenario.limits.model_dump().items()}
    if not limits["audit"]:
        limits["audit"] = AUDIT_LEAST_S + _expected_rows(scenario) / AUDIT_ROWS_PER_S
    return limits


def _ways(scenario: Scenario) -> list[tuple[str, str]]:
    """Return the pairs of topics that pipelines read and write."""
    return [(spec.from_, spec.to) for spec in scenario.load.pipelines.values()]


def _worker_folders(scenario: Scenario) -> list[str]:
    """Return the folders of the workers that do not come with brokerstorm."""
    names = {spec.client for spec in scenario.load.writers}
    names |= {spec.client for spec in scenario.load.consumers.values()}
    used = (load_worker(name, scenario.worker_folders) for name in sorted(names))
    return [str(worker.folder) for worker in used if not is_ours(worker)]


# ----- clients ------------------------------------------------------------------------------------


def _clients(
    scenario: Scenario,
    topics: Sequence[TopicPlan],
    groups: Sequence[LaneGroup],
    broker_config: Mapping[str, str],
) -> tuple[list[ProducerPlan], list[ConsumerPlan]]:
    """Producers and consumers, with what they are promised.

    Raises:
        ScenarioError: options that a client refuses, or a setting of one node that changes a
            promise.
    """
    common = for_all(broker_config)
    made = _producers(scenario, topics, groups, common), _consumers(scenario, topics, common)
    for node, name, value in by_node(broker_config):
        there = {**common, name: value}
        own = _producers(scenario, topics, groups, there), _consumers(scenario, topics, there)
        own_topics = topic_plans(scenario, broker_config=there)
        if own != made or own_topics != topic_plans(scenario, broker_config=common):
            raise ScenarioError(
                f"cluster.config: {name}: changes what the brokers promise, so {node} cannot have its own "
                f"value, got {value}",
                hint=f"write one value for all nodes: {name}: {value}",
            )
    return made


def _producers(
    scenario: Scenario,
    topics: Sequence[TopicPlan],
    groups: Sequence[LaneGroup],
    broker_config: Mapping[str, str],
) -> list[ProducerPlan]:
    """Producers, and after them the halves of pipelines that write."""
    load = scenario.load
    declared = members(load.producers)
    halves = [(name, spec.writing) for name, spec in members(load.pipelines)]
    rates = _rates(scenario, [spec.share / spec.count for _, spec in declared])
    plans = []
    for at, (own_name, (name, spec)) in enumerate(
        zip(
            [*_client_names("producer", declared), *_members(scenario)],
            [*declared, *halves],
            strict=True,
        )
    ):
        scheduled = at < len(declared)
        role, key = ("producer", "producers") if scheduled else ("pipeline", "pipelines")
        update: dict[str, Any] = {"name": own_name, "instance": at + 1}
        chosen = [topic for topic in topics if not spec.topics or topic.declared in spec.topics]
        if scheduled:
            update |= {"rate_per_s": float(rates[at]), "profile": own_profile(scenario, name)}
            update |= {"topic_shares": topic_shares(scenario, chosen)}
        try:
            plan = _producer(scenario, spec, chosen, groups, broker_config)
        except ScenarioError as error:
            raise ScenarioError(f"load.{key}.{name}.options: {error}", hint=error.hint) from error
        update["says_died"] = role in load_worker(spec.client, scenario.worker_folders).says_died
        plans.append(plan.model_copy(update=update))
    coming = [spec.comes_and_goes for _, spec in [*declared, *halves]]
    return with_lives(plans, coming, load.duration)


def _producer(
    scenario: Scenario,
    spec: ProducerSpec,
    topics: Sequence[TopicPlan],
    groups: Sequence[LaneGroup],
    broker_config: Mapping[str, str],
) -> ProducerPlan:
    """Without name and number, and without what follows from the schedule.

    Raises:
        ScenarioError: options that the client refuses.
    """
    names = {topic.name for topic in topics}
    options, limits = _options(scenario, spec), scenario.limits
    settings = producer_settings(
        spec.client,
        spec.client_version,
        options,
        scenario.worker_folders,
        system=scenario.system,
    )
    context = PromiseContext(
        topics, broker_config, scenario.cluster.topology, bool(spec.transactions)
    )
    whole_s = scenario.load.duration + limits.recovery + limits.drain
    unbounded_s = limits.unbounded_call or whole_s
    return ProducerPlan(
        name="",
        instance=0,
        client=spec.client,
        client_version=spec.client_version,
        groups=[i for i, g in enumerate(groups) if g.topic in names and g.mode == spec.lanes],
        rate_per_s=0.0,
        skew=spec.skew,
        headers=fixed_headers(spec.headers),
        header_templates=header_templates(spec.headers),
        codec=codec_of(spec.client, spec.client_version, options, scenario.worker_folders),
        options=options,
        when_full=spec.when_full,
        call_deadline_s=limits.call or settings.call_deadline_s(unbounded_s),
        limits_calls=bool(limits.call) or settings.limits_calls,
        promise=settings.promise(context, scenario.require),
        results=spec.results,
        calls=spec.calls,
        batch=spec.batch if spec.calls == "batch" else 1,
        deliver_after_s=spec.deliver_after,
        threads=spec.senders[1],
        transactions=_transactions(spec),
    )


def _members(scenario: Scenario) -> list[str]:
    """Names of the processes of pipelines."""
    pipelines = scenario.load.pipelines.items()
    return _client_names(
        "pipeline", [(name, spec) for name, spec in pipelines for _ in range(spec.count)]
    )


def _pipelines(
    scenario: Scenario, producers: Sequence[ProducerPlan], consumers: Sequence[ConsumerPlan]
) -> list[PipelinePlan]:
    """Members, of which these producers and consumers end with the halves."""
    specs = [spec for spec in scenario.load.pipelines.values() for _ in range(spec.count)]
    writing = producers[len(producers) - len(specs) :]
    reading = consumers[len(consumers) - len(specs) :]
    return [
        PipelinePlan(
            name=half.name,
            instance=half.instance,
            session=other.session,
            source=spec.from_,
            to=spec.to,
            transactional=spec.transactions is not None,
        )
        for spec, half, other in zip(specs, writing, reading, strict=True)
    ]


def _options(scenario: Scenario, spec: ProducerSpec) -> dict[str, str]:
    """Return the options of a producer, with those that its client requires for transactions."""
    options = native(spec.options)
    return (
        transactional(spec.client, options, scenario.worker_folders)
        if spec.transactions
        else options
    )


def _transactions(spec: ProducerSpec) -> TransactionsPlan | None:
    own = spec.transactions
    if own is None:
        return None
    return TransactionsPlan(messages=own.messages, every_s=own.every, abort_every=own.abort_every)


def _rates(scenario: Scenario, shares: Sequence[float]) -> list[int]:
    """Messages per second for each producer; 0 = unlimited."""
    load = scenario.load
    if load.unlimited:
        return [0] * len(shares)
    if isinstance(load.rate, RateLimit):
        shared_out(load.rate.at_least, shares)  # the least that it may come to
    return shared_out(load.highest_rate, shares)


def _consumers(
    scenario: Scenario, topics: Sequence[TopicPlan], broker_config: Mapping[str, str]
) -> list[ConsumerPlan]:
    """Consumers, and after them the halves of pipelines that read."""
    load = scenario.load
    declared = members(load.consumers)
    halves = [(name, spec.reading(name)) for name, spec in members(load.pipelines)]
    plans = []
    for at, (own_name, (name, spec)) in enumerate(
        zip(
            [*_client_names("consumer", declared), *_members(scenario)],
            [*declared, *halves],
            strict=True,
        )
    ):
        own = at < len(declared)
        role, key = (
            ("consumer", f"consumers.{name}.options") if own else ("pipeline", f"pipelines.{name}")
        )
        try:
            plan = _consumer(scenario, spec, topics, broker_config)
        except ScenarioError as error:
            key = key if own else f"{key}.consumer_options"
            raise ScenarioError(f"load.{key}: {error}", hint=error.hint) from error
        worker = load_worker(spec.client, scenario.worker_folders, system=scenario.system)
        update = {
            "name": own_name,
            "session": at + 1,
            "says_died": role in worker.says_died,
            "watches_commits": own and worker.watches_commits,
        }
        plans.append(plan.model_copy(update=update))
    return plans


def _client_names(role: str, specs: Sequence[tuple[str, object]]) -> list[str]:
    """Names of processes: role and name of the scenario, with a number where an entry declares
    several.

    No two are alike, and none has a dot: later lives are recognised by it.
    """
    declared = [name for name, _ in specs]
    several = {name for name, count in Counter(declared).items() if count > 1}
    made: list[str] = []
    for at, name in enumerate(declared):
        number = f"-{declared[: at + 1].count(name)}" if name in several else ""
        own = f"{role}-{name.replace('.', '_')}{number}"
        made.append(own if own not in made else f"{own}-{at + 1}")
    return made


def _writers_of(
    topics: Sequence[TopicPlan], scenario: Scenario
) -> list[tuple[str, dict[str, str]]]:
    """Client and options of everything that writes one of the topics."""
    declared = {topic.declared for topic in topics}
    return [
        (sender.client, native(sender.options))
        for sender in scenario.load.writers
        if not sender.topics or declared & set(sender.topics)
    ]


def _consumer(
    scenario: Scenario,
    spec: ConsumerSpec,
    topics: Sequence[TopicPlan],
    broker_config: Mapping[str, str],
) -> ConsumerPlan:
    """Without name and number.

    Raises:
        ScenarioError: options that the client refuses.
    """
    worker = load_worker(spec.client, scenario.worker_folders, system=scenario.system)
    set_by_keys = worker.options_for(commit=spec.commit, start=spec.start)
    every_ms = f"{spec.commit_every * 1000:.0f}"
    options = {key: value.replace("{ms}", every_ms) for key, value in set_by_keys.items()}
    options = {**native(spec.options), **options}
    own = [topic for topic in topics if spec.reads(topic.name, topic.declared)]
    settle = SYSTEMS[scenario.system].auto_settle if spec.settle == "auto" else spec.settle
    promise = consumer_promise(
        Consuming(
            spec.client,
            spec.client_version,
            options,
            broker_config,
            settle,
            _writers_of(own, scenario),
            own,
            scenario.worker_folders,
            scenario.system,
        )
    )
    return ConsumerPlan(
        name="",
        session=0,
        client=spec.client,
        client_version=spec.client_version,
        group=spec.group,
        topics=[topic.name for topic in own],
        pattern=spec.bare_pattern,
        commit_every_s=spec.commit_every,
        options=options,
        receive=spec.receive,
        joins_s=spec.joins_after,
        work_s=spec.work,
        settle="none" if spec.reader else settle,
        reader=spec.reader,
        nack_every=spec.nack_every,
        per_transaction=spec.per_transaction,
        rollback_every=spec.rollback_every,
        pauses=PausesPlan(every_s=spec.pauses.every, for_s=spec.pauses.for_)
        if spec.pauses
        else None,
        seeks=SeeksPlan(every_s=spec.seeks.every, back=spec.seeks.back) if spec.seeks else None,
        promise=promise
        if spec.start != "latest"
        else promise.model_copy(update={"start": "latest"}),
    )
