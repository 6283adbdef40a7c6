"""Plans for planted captures, made from the real models so that a change of the contract shows
here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.contracts.plan import (
    ConsumerPlan,
    ConsumerPromise,
    PipelinePlan,
    Plan,
    ProducerPlan,
    PromisePlan,
    TopicPlan,
)
from harness.contracts.rows import LaneGroup, LaneMode
from harness.scenario.model import LimitsSpec

RUN_TAG = 0xB5_0007
DURABLE = PromisePlan(
    delivery="durable",
    order=True,
    dedup=True,
    because={
        "delivery": "acks=all",
        "order": "enable.idempotence=true",
        "dedup": "enable.idempotence=true",
    },
    required={"delivery": "durable", "order": None, "dedup": None},
)


def lane_groups(
    topics: Mapping[str, int], mode: LaneMode, keys: int, buckets: int
) -> list[LaneGroup]:
    """One group a topic, lanes numbered through; the streams of keyed and routed topics share a
    bucket."""
    groups: list[LaneGroup] = []
    first = stream = 0
    for number, (topic, partitions) in enumerate(topics.items()):
        count = {"partition": partitions, "key": keys, "routed": 1}[mode]
        own = [(stream + p) % buckets for p in range(partitions)]
        chosen = own if mode == "partition" else [number % buckets]
        groups.append(LaneGroup(topic=topic, mode=mode, first=first, count=count, buckets=chosen))
        first += count
        stream += partitions
    return groups


def _producer(instance: int, groups: list[int], promise: PromisePlan, results: str) -> ProducerPlan:
    return ProducerPlan(
        name=f"p-{instance}",
        instance=instance,
        client="confluent-kafka",
        client_version="2.16.1",
        groups=groups,
        rate_per_s=1000.0,
        options={},
        when_full="wait",
        call_deadline_s=130.0,
        promise=promise,
        results=results,
        says_died=True,
    )


def _consumer(
    session: int, topics: list[str], promise: ConsumerPromise, settle: str
) -> ConsumerPlan:
    return ConsumerPlan(
        name=f"c-{session}",
        session=session,
        client="confluent-kafka",
        client_version="2.16.1",
        group="group",
        topics=topics,
        commit_every_s=1.0,
        options={},
        promise=promise,
        settle=settle,
        says_died=True,
        watches_commits=True,
    )


def with_pipeline(
    plan: Plan,
    partitions: int,
    *,
    members: int = 1,
    transactional: bool = True,
    committed_only: bool = True,
) -> Plan:
    """The plan of one topic with a second, ``invoices``, which ``members`` of group ``billing``
    write."""
    source = plan.topics[0]
    lanes = plan.lane_groups[0]
    own = LaneGroup("invoices", "partition", lanes.first + lanes.count, partitions, lanes.buckets)
    instances = [len(plan.producers) + n for n in range(1, members + 1)]
    sessions = [len(plan.consumers) + n for n in range(1, members + 1)]
    names = [f"pipeline-billing-{n}" for n in range(1, members + 1)]
    promise = plan.producers[0].promise
    reading = ConsumerPromise(committed_only=committed_only)
    return plan.model_copy(
        update={
            "topics": [
                source,
                source.model_copy(update={"name": "invoices", "partitions": partitions}),
            ],
            "lane_groups": [lanes, own],
            "producers": [
                *(p.model_copy(update={"groups": [0]}) for p in plan.producers),
                *(
                    _producer(i, [1], promise, "checked").model_copy(
                        update={"name": name, "rate_per_s": 0.0}
                    )
                    for i, name in zip(instances, names, strict=True)
                ),
            ],
            "consumers": [
                *plan.consumers,
                *(
                    _consumer(s, [source.name], reading, "auto").model_copy(
                        update={"name": name, "group": "billing"}
                    )
                    for s, name in zip(sessions, names, strict=True)
                ),
            ],
            "pipelines": [
                PipelinePlan(
                    name=name,
                    instance=instance,
                    session=session,
                    source=source.name,
                    to="invoices",
                    transactional=transactional,
                )
                for name, instance, session in zip(names, instances, sessions, strict=True)
            ],
        }
    )


def build_plan(
    *,
    topics: Mapping[str, int],
    mode: LaneMode = "partition",
    keys: int = 8,
    buckets: int = 1,
    producers: int = 1,
    sessions: int = 1,
    promise: PromisePlan = DURABLE,
    groups: list[LaneGroup] | None = None,
    reading: ConsumerPromise | None = None,
    settle: str = "auto",
    results: str = "checked",
    **changes: Any,
) -> Plan:
    """A plan with ``producers`` instances 1..n on every topic and one group of ``sessions``
    consumers."""
    lanes = groups if groups is not None else lane_groups(topics, mode, keys, buckets)
    names = list(topics)
    fields: dict[str, Any] = {
        "scenario": "planted",
        "variant": "",
        "expect": "clean",
        "about": "a capture with known truth",
        "seed": 0,
        "run_tag": RUN_TAG,
        "system": "kafka",
        "version": "4.1.2",
        "broker_config": {},
        "topics": [
            TopicPlan(name=t, partitions=n, replication=3, config={}) for t, n in topics.items()
        ],
        "lane_groups": lanes,
        "buckets": buckets,
        "producers": [
            _producer(i, list(range(len(lanes))), promise, results) for i in range(1, producers + 1)
        ],
        "consumers": [
            _consumer(i, names, reading or ConsumerPromise(), settle)
            for i in range(1, sessions + 1)
        ],
        "payload_bytes": 150,
        "rate_per_s": 1000.0 * producers,
        "warm_up_s": 0.0,
        "load_s": 60.0,
        "faults": [],
        "limits": LimitsSpec(audit=180).model_dump(),
        "rate_ratio": 0.99,
    }
    return Plan(**{**fields, **changes})
