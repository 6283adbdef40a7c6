"""Checks of pipelines, which read one topic and write another."""

from __future__ import annotations

from collections.abc import Iterator

from harness.errors import did_you_mean
from harness.scenario.model import PipelineSpec, Scenario
from harness.systems import SYSTEMS

_At = tuple[str | int, ...]


def pipeline_problems(scenario: Scenario) -> Iterator[tuple[_At, str]]:
    """Each problem as (key path, what is wrong; what is allowed)."""
    owners: dict[str, str] = {}
    for name, spec in scenario.load.pipelines.items():
        at = ("load", "pipelines", name)
        if not SYSTEMS[scenario.system].has_offsets:
            yield at, f"has no meaning on {scenario.system}: its positions are not numbers"
        topics = list(_topic_problems(at, spec, scenario))
        yield from topics
        own = spec.transactions
        if own is not None and not own.messages and not own.every:
            yield (*at, "transactions"), "needs messages or every: when does one end?"
        if own is not None and "commit_every" in spec.model_fields_set:
            yield (*at, "commit_every"), "has no meaning with transactions; leave one of them out"
        if topics:
            continue
        if (other := owners.setdefault(spec.to, name)) != name:
            yield (*at, "to"), f"is written by pipeline {other}; each writes a topic of its own"
        yield from _producer_problems(name, spec, scenario)
        yield from _source_problems(at, spec, scenario)


def _topic_problems(at: _At, spec: PipelineSpec, scenario: Scenario) -> Iterator[tuple[_At, str]]:
    for key, topic in (("from", spec.from_), ("to", spec.to)):
        if topic not in scenario.topics:
            yield (
                (*at, key),
                f"is not declared under topics; {did_you_mean(topic, scenario.topics)}",
            )
        elif scenario.topics[topic].count > 1:
            yield (
                (*at, key),
                f"stands for {scenario.topics[topic].count} topics; must be one: count 1",
            )
    if spec.from_ == spec.to:
        yield (*at, "to"), "is the topic that it reads; must be another topic"


def _producer_problems(
    name: str, spec: PipelineSpec, scenario: Scenario
) -> Iterator[tuple[_At, str]]:
    for sender, producer in scenario.load.producers.items():
        if not producer.topics or spec.to in producer.topics:
            others = ", ".join(topic for topic in scenario.topics if topic != spec.to)
            sentence = (
                f"must leave {spec.to} out, which pipeline {name} alone writes; others are {others}"
            )
            yield ("load", "producers", sender, "topics"), sentence


def _source_problems(at: _At, spec: PipelineSpec, scenario: Scenario) -> Iterator[tuple[_At, str]]:
    """Check that the topic that is read is written by a producer, directly or through pipelines,
    and is not the one that is written.
    """
    producers, before = scenario.load.producers.values(), spec
    for _ in scenario.load.pipelines:
        if any(not each.topics or before.from_ in each.topics for each in producers):
            return
        found = next((p for p in scenario.load.pipelines.values() if p.to == before.from_), None)
        if found is None:
            yield (*at, "from"), f"gets no message: nothing writes {before.from_}"
            return
        before = found
    yield (*at, "from"), "gets no message: its pipelines read in a circle"
