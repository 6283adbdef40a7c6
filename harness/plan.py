"""Scenario + seed -> Plan: everything a run needs to know, decided before anything starts.

Pure: the same scenario and seed give the same bytes. `Plan` is what run.py interprets, what seal.py
takes buckets from and what analysis reads (as plan.json, without importing this module).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LaneMode = Literal["partition", "key", "routed"]


class PlanPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TopicPlan(PlanPart):
    name: str
    partitions: int
    replication: int
    config: dict[str, str]


class LaneGroup(PlanPart):
    """Consecutive lane ids ``first .. first + count - 1`` of one topic and mode.

    Lane ``first + i`` is partition i, key i (text ``k{i:06d}``), or, for ``routed``, the whole topic
    (count 1). ``buckets`` has one entry a lane for partitions, else one for the whole group: a topic
    with keyed or routed lanes stays whole, because one task must see each of its streams.
    """

    topic: str
    mode: LaneMode
    first: int
    count: int
    buckets: list[int]

    def bucket(self, lane: int) -> int:
        return self.buckets[(lane - self.first) % len(self.buckets)]


class PromisePlan(PlanPart):
    """What a producer's settings promise, in neutral words, and why.

    Attributes:
        delivery: ``durable`` (acknowledged = on every in-sync replica, at least two), ``leader``, ``none``.
        order: first appearances of attempt-0 messages of a lane keep their order.
        dedup: no message is stored twice without an application re-send.
        because: the setting that decided each of them, as text for people.
        required: the same three as the scenario demands them; None = as configured.
    """

    delivery: Literal["durable", "leader", "none"]
    order: bool
    dedup: bool
    because: dict[str, str]
    required: dict[str, Any]


class ProducerPlan(PlanPart):
    name: str
    instance: int
    client: str
    client_version: str
    groups: list[int] = Field(description="indexes into Plan.lane_groups")
    rate_per_s: float = Field(description="0 = unlimited")
    options: dict[str, str]
    when_full: Literal["wait", "fail"]
    call_deadline_s: float
    promise: PromisePlan


class ConsumerPlan(PlanPart):
    name: str
    session: int
    client: str
    client_version: str
    group: str
    topics: list[str]
    commit_every_s: float
    options: dict[str, str]


class Plan(PlanPart):
    """The resolved scenario. Times in seconds relative to the start of load unless named otherwise."""

    schema_version: int = 1
    scenario: str
    variant: str
    expect: str
    about: str
    seed: int
    run_tag: int = Field(description="32 bits in every header; tells this run's messages from leftovers")
    system: str
    version: str
    broker_config: dict[str, str]
    topics: list[TopicPlan]
    lane_groups: list[LaneGroup]
    buckets: int
    producers: list[ProducerPlan]
    consumers: list[ConsumerPlan]
    payload_bytes: int
    rate_per_s: float = Field(description="all producers; 0 = unlimited")
    warm_up_s: float
    load_s: float
    faults: list[dict[str, Any]] = Field(description="raw steps; faults.compile makes the timeline")
    limits: dict[str, float]
    rate_ratio: float

    def streams(self) -> list[str]:
        """Every topic-partition, in the order of their name ids (1, 2, 3 ...)."""
        return [f"{t.name}-{p}" for t in self.topics for p in range(t.partitions)]

    def stream_bucket(self, stream: str) -> int:
        """Bucket of a row whose lane cannot be read (foreign or corrupt payload)."""
        topic, _, partition = stream.rpartition("-")
        group = next((g for g in self.lane_groups if g.topic == topic), None)
        if group is None:
            return 0
        return group.buckets[int(partition) % len(group.buckets)]
