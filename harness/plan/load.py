"""Parts of a plan that say what is sent when and what is required of it, but not by whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.contracts.plan import LifePlan, ProducerPlan, RateChoice, ThresholdPlan, TopicPlan
from harness.scenario.model import ComesAndGoes, LoadSpec, Scenario
from harness.scenario.payload import (
    payload_charset,
    payload_compressible,
    payload_sizes,
    payload_table,
    payload_template,
)
from harness.scenario.profile import Table
from harness.scenario.rate import RateLimit


def load_fields(scenario: Scenario) -> dict[str, Any]:
    """Fields of a plan: sizes, rate, profile and times."""
    load = scenario.load
    smallest, largest = payload_sizes(load.payload)
    return {
        "payload_bytes": smallest,
        "payload_max_bytes": largest if largest > smallest else 0,
        "payload_sizes": payload_table(load.payload) if largest > smallest else [],
        "payload_compressible": payload_compressible(load.payload),
        "payload_template": payload_template(load.payload),
        "payload_charset": payload_charset(load.payload),
        "rate_per_s": 0.0 if load.unlimited else float(load.highest_rate),
        "rate_choice": _rate_choice(load),
        "warm_up_s": load.warm_up,
        "load_s": load.duration,
    }


def _rate_choice(load: LoadSpec) -> RateChoice | None:
    if not isinstance(load.rate, RateLimit):
        return None
    return RateChoice(at_most_per_s=load.rate.at_most, at_least_per_s=load.rate.at_least)


def threshold_plans(scenario: Scenario) -> list[ThresholdPlan]:
    """One for each limit of each key, in the order of the keys."""
    return [
        ThresholdPlan(name=name, outside_faults=outside, at_most=at_most)
        for name, limit in scenario.require.limits()
        for outside, at_most in ((False, limit.overall), (True, limit.outside_faults))
        if at_most is not None
    ]


def topic_shares(scenario: Scenario, topics: Sequence[TopicPlan]) -> dict[str, float]:
    """Return the share of each topic; the share of an entry is divided among its topics. Empty if
    no entry has a share.
    """
    said = {topic.name: scenario.topics[topic.declared].share for topic in topics}
    if not any(said.values()):
        return {}
    many = {topic.name: scenario.topics[topic.declared].count for topic in topics}
    return {name: (share or 1.0) / many[name] for name, share in said.items()}


def with_lives(
    producers: Sequence[ProducerPlan], coming: Sequence[ComesAndGoes | None], load_s: float
) -> list[ProducerPlan]:
    """Producers with the lives of those that come and go; their instances follow the instances of
    all producers.
    """
    number, found = len(producers), []
    for producer, spec in zip(producers, coming, strict=True):
        lives = []
        leaves_s = spec.every if spec else load_s
        while spec and leaves_s + spec.away < load_s:
            number += 1
            returns_s = leaves_s + spec.away
            lives.append(LifePlan(instance=number, leaves_s=leaves_s, returns_s=returns_s))
            leaves_s += spec.every
        found.append(producer.model_copy(update={"lives": lives}))
    return found


def own_profile(scenario: Scenario, producer: str) -> Table:
    """Rows of a producer's profile; none if no producer has one of its own."""
    if not any(spec.profile for spec in scenario.load.producers.values()):
        return []
    return scenario.profile_table(producer) or [(scenario.load.duration, 1.0)]
