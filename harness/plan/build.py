"""Scenario -> `Plan`: lanes, buckets, rates, deadlines and promises, decided before anything starts.

Pure: the same scenario, seed and tag give the same bytes.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from harness.contracts.plan import (
    ConsumerPlan,
    Plan,
    ProducerPlan,
    TopicPlan,
    TransactionsPlan,
)
from harness.contracts.rows import LaneGroup, LaneMode
from harness.errors import ScenarioError
from harness.plan.load import load_fields, own_profile, threshold_plans, topic_shares, with_lives
from harness.plan.profile import combined
from harness.plan.rates import shared_out
from harness.plan.settings import (
    Consuming,
    PromiseContext,
    codec_of,
    consumer_promise,
    idempotent,
    producer_settings,
)
from harness.scenario.file import variants
from harness.scenario.model import ConsumerSpec, Option, ProducerSpec, Scenario
from harness.scenario.rate import RateLimit
from harness.systems import SYSTEMS, System
from harness.workers import is_ours, load_worker

MIN_BUCKETS: Final = 8  # below it a two-core machine already waits for the largest
MAX_BUCKETS: Final = 256
#: Sends a bucket; a Spark task then takes a second or two and some hundred MB.
ROWS_PER_BUCKET: Final = 5_000_000
#: Rate guessed for sizing when there is no limit.
UNLIMITED_GUESS_PER_S: Final = 400_000


def build_plans(scenario: Scenario, *, seed: int) -> list[Plan]:
    """The plan of every round, variants interleaved (a, b, a, b ...).

    Round n of every variant has the seed ``seed + n``: variants are compared under the same schedule.
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
    broker_config = native(scenario.cluster.config)
    tag = _tag(scenario.name, variant, str(seed)) if run_tag is None else run_tag
    system = SYSTEMS[scenario.system]
    topics = topic_plans(scenario, tag)
    groups = _lane_groups(scenario, topics)
    buckets, groups = _with_buckets(groups, _expected_rows(scenario))
    producers = _producers(scenario, topics, groups, broker_config)
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
        profile=combined(producers) if any(each.profile for each in producers) else scenario.profile_table(),
        consumers=_consumers(scenario, topics, broker_config),
        workers=_worker_folders(scenario),
        **load_fields(scenario),
        faults=scenario.faults,
        limits={key: float(value) for key, value in scenario.limits.model_dump().items()},
        rate_ratio=0.0 if isinstance(scenario.load.rate, RateLimit) else scenario.require.rate_ratio,
        thresholds=threshold_plans(scenario),
    )


def with_tag(plan: Plan, run_tag: int) -> Plan:
    """The plan under another tag: its messages and topics cannot be taken for those of another run."""
    system = SYSTEMS[plan.system]
    addresses = [system.address(topic.name, run_tag, plan.prefix) for topic in plan.topics]
    topics = [
        topic.model_copy(update={"address": address})
        for topic, address in zip(plan.topics, addresses, strict=True)
    ]
    return plan.model_copy(update={"run_tag": run_tag, "topics": topics})


def native(options: Mapping[str, Option]) -> dict[str, str]:
    """Options as every client and broker reads them: text, ``true`` and ``false`` in lower case."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()
    }


def _tag(*parts: str) -> int:
    """Never 0, so that a header full of zeros is nobody's."""
    return zlib.crc32("/".join(parts).encode()) or 1


def topic_plans(scenario: Scenario, run_tag: int = 0) -> list[TopicPlan]:
    """Every topic of a scenario, those that one entry stands for one by one.

    Raises:
        ScenarioError: a broker setting that decides how many copies there are is out of range.
    """
    broker_config = native(scenario.cluster.config)
    return [
        _topic(scenario, name, declared, broker_config, run_tag)
        for declared, spec in scenario.topics.items()
        for name in spec.names(declared)
    ]


def _topic(
    scenario: Scenario, name: str, declared: str, broker_config: Mapping[str, str], run_tag: int
) -> TopicPlan:
    spec, system = scenario.topics[declared], SYSTEMS[scenario.system]
    return TopicPlan(
        name=name,
        partitions=spec.partitions,
        replication=system.replication(spec.replication, _topology(scenario, system), broker_config),
        config=system.topic_config(native(spec.config), spec.replication, broker_config),
        address=system.address(name, run_tag),
        declared=declared,
    )


def _topology(scenario: Scenario, system: System) -> str:
    return scenario.cluster.topology or next(iter(system.topologies), "")


# ----- lanes and buckets ------------------------------------------------------------------------------


def _lane_groups(scenario: Scenario, topics: Sequence[TopicPlan]) -> list[LaneGroup]:
    """One group for each (topic, mode) that is produced to; lane ids are dense from 0, in topic order."""
    groups: list[LaneGroup] = []
    first = 0
    for topic in topics:
        modes: dict[LaneMode, int] = {}
        for spec in scenario.load.producers.values():
            if not spec.topics or topic.declared in spec.topics:
                modes.setdefault(spec.lanes, _lane_count(spec, topic))
        for mode, count in sorted(modes.items()):
            groups.append(LaneGroup(topic=topic.name, mode=mode, first=first, count=count, buckets=[]))
            first += count
    return groups


def _lane_count(spec: ProducerSpec, topic: TopicPlan) -> int:
    return {"partition": topic.partitions, "key": spec.keys, "routed": 1}[spec.lanes]


def _expected_rows(scenario: Scenario) -> int:
    load = scenario.load
    rate = UNLIMITED_GUESS_PER_S if load.unlimited else load.highest_rate
    return int(rate * (load.warm_up + load.duration))


def _with_buckets(groups: Sequence[LaneGroup], rows: int) -> tuple[int, list[LaneGroup]]:
    """Give every lane its bucket; how many buckets, and the groups with them.

    What must stay together is a unit: a partition, or a whole topic as soon as one of its groups is keyed
    or routed. Topics count alike, so a unit weighs its share of its topic.
    """
    whole = {group.topic for group in groups if group.mode != "partition"}
    weights: dict[tuple[str, int], float] = {}
    for group in groups:
        if group.topic in whole:
            weights[group.topic, -1] = 1.0
        else:
            weights |= {(group.topic, index): 1.0 / group.count for index in range(group.count)}
    wanted = min(max(MIN_BUCKETS, -(-rows // ROWS_PER_BUCKET)), MAX_BUCKETS)
    count, placed = _balance(weights, min(wanted, len(weights)))
    with_buckets = [
        replace(
            group,
            buckets=[placed[group.topic, -1]]
            if group.topic in whole
            else [placed[group.topic, index] for index in range(group.count)],
        )
        for group in groups
    ]
    return count, with_buckets


def _balance(weights: Mapping[tuple[str, int], float], wanted: int) -> tuple[int, dict[tuple[str, int], int]]:
    """Place units in ``wanted`` buckets, or in up to twice as many if that is more even (12: 12, not 8)."""
    most = min(2 * wanted - 1, len(weights), MAX_BUCKETS) if wanted == MIN_BUCKETS else wanted
    best: tuple[float, int, dict[tuple[str, int], int]] | None = None
    for count in range(wanted, most + 1):
        largest, placed = _place(weights, count)
        unevenness = round(largest * count / sum(weights.values()), 6)
        if best is None or unevenness < best[0]:
            best = (unevenness, count, placed)
    assert best is not None
    return best[1], best[2]


def _place(weights: Mapping[tuple[str, int], float], count: int) -> tuple[float, dict[tuple[str, int], int]]:
    """Largest first into the least loaded bucket; the largest load and where everything went."""
    loads = [(0.0, bucket) for bucket in range(count)]
    placed: dict[tuple[str, int], int] = {}
    for unit in sorted(weights, key=lambda unit: -weights[unit]):
        load, bucket = heapq.heappop(loads)
        placed[unit] = bucket
        heapq.heappush(loads, (load + weights[unit], bucket))
    return max(load for load, _ in loads), placed


def _worker_folders(scenario: Scenario) -> list[str]:
    """Those of the clients that do not come with brokerstorm."""
    names = {spec.client for spec in scenario.load.producers.values()}
    names |= {spec.client for spec in scenario.load.consumers.values()}
    used = (load_worker(name, scenario.worker_folders) for name in sorted(names))
    return [str(worker.folder) for worker in used if not is_ours(worker)]


# ----- clients ----------------------------------------------------------------------------------------


def _producers(
    scenario: Scenario,
    topics: Sequence[TopicPlan],
    groups: Sequence[LaneGroup],
    broker_config: Mapping[str, str],
) -> list[ProducerPlan]:
    shares = [
        (name, spec, spec.share / spec.count)
        for name, spec in scenario.load.producers.items()
        for _ in range(spec.count)
    ]
    rates = _rates(scenario, [share for _, _, share in shares])
    limits = scenario.limits
    plans: list[ProducerPlan] = []
    own_names = _client_names("producer", [name for name, _, _ in shares])
    for instance, ((name, spec, _), rate) in enumerate(zip(shares, rates, strict=True), start=1):
        chosen = [topic for topic in topics if not spec.topics or topic.declared in spec.topics]
        names = {topic.name for topic in chosen}
        options = _options(scenario, spec)
        try:
            settings = producer_settings(spec.client, spec.client_version, options, scenario.worker_folders)
            promise = settings.promise(
                PromiseContext(chosen, broker_config, scenario.cluster.topology), scenario.require
            )
        except ScenarioError as error:
            raise ScenarioError(f"load.producers.{name}.options: {error}", hint=error.hint) from error
        unbounded_s = scenario.load.duration + limits.recovery + limits.drain
        plans.append(
            ProducerPlan(
                name=own_names[instance - 1],
                instance=instance,
                client=spec.client,
                client_version=spec.client_version,
                groups=[i for i, g in enumerate(groups) if g.topic in names and g.mode == spec.lanes],
                rate_per_s=float(rate),
                profile=own_profile(scenario, name),
                skew=spec.skew,
                topic_shares=topic_shares(scenario, chosen),
                headers=spec.headers,
                codec=codec_of(spec.client, spec.client_version, options, scenario.worker_folders),
                options=options,
                when_full=spec.when_full,
                call_deadline_s=limits.call or settings.call_deadline_s(unbounded_s),
                promise=promise,
                results=spec.results,
                calls=spec.calls,
                batch=spec.batch if spec.calls == "batch" else 1,
                threads=spec.senders[1],
                transactions=_transactions(spec),
                says_died="producer" in load_worker(spec.client, scenario.worker_folders).says_died,
            )
        )
    coming = [spec.comes_and_goes for _, spec, _ in shares]
    return with_lives(plans, coming, scenario.load.duration)


def _options(scenario: Scenario, spec: ProducerSpec) -> dict[str, str]:
    """Of a producer. A transactional client is idempotent, whatever its default is."""
    options = native(spec.options)
    return idempotent(spec.client, options, scenario.worker_folders) if spec.transactions else options


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
    specs = [(name, spec) for name, spec in scenario.load.consumers.items() for _ in range(spec.count)]
    own_names = _client_names("consumer", [name for name, _ in specs])
    return [
        _consumer(scenario, name, session, spec, topics, broker_config, own_names[session - 1])
        for session, (name, spec) in enumerate(specs, start=1)
    ]


def _client_names(role: str, declared: Sequence[str]) -> list[str]:
    """Names of processes: role and name of the scenario, with a number where an entry stands for several.

    No two are alike, and none has a dot: that is what later lives are told by.
    """
    several = {name for name, count in Counter(declared).items() if count > 1}
    made: list[str] = []
    for at, name in enumerate(declared):
        number = f"-{declared[: at + 1].count(name)}" if name in several else ""
        own = f"{role}-{name.replace('.', '_')}{number}"
        made.append(own if own not in made else f"{own}-{at + 1}")
    return made


def _consumer(
    scenario: Scenario,
    name: str,
    session: int,
    spec: ConsumerSpec,
    topics: Sequence[TopicPlan],
    broker_config: Mapping[str, str],
    own_name: str,
) -> ConsumerPlan:
    options = native(spec.options)
    producers = [
        (sender.client, native(sender.options))
        for sender in scenario.load.producers.values()
        if not (sender.topics and spec.topics) or set(sender.topics) & set(spec.topics)
    ]
    settle = SYSTEMS[scenario.system].auto_settle if spec.settle == "auto" else spec.settle
    consuming = Consuming(
        spec.client, spec.client_version, options, broker_config, settle, producers, scenario.worker_folders
    )
    try:
        promise = consumer_promise(consuming)
    except ScenarioError as error:
        raise ScenarioError(f"load.consumers.{name}.options: {error}", hint=error.hint) from error
    return ConsumerPlan(
        name=own_name,
        session=session,
        client=spec.client,
        client_version=spec.client_version,
        group=spec.group,
        topics=[topic.name for topic in topics if not spec.topics or topic.declared in spec.topics],
        commit_every_s=spec.commit_every,
        options=options,
        receive=spec.receive,
        joins_s=spec.joins_after,
        work_s=spec.work,
        settle=settle,
        nack_every=spec.nack_every,
        per_transaction=spec.per_transaction,
        rollback_every=spec.rollback_every,
        says_died="consumer" in load_worker(spec.client, scenario.worker_folders).says_died,
        promise=promise,
    )
