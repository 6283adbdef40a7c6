"""Members of an entry with ``count``: the options of each, and names that only one of them may
have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from harness.scenario.model import (
    ConsumerSpec,
    Option,
    PipelineSpec,
    ProducerSpec,
    Scenario,
    native,
)

#: In the text of an option: the number of the process within its entry, from 1 to ``count``.
INSTANCE: Final = "{instance}"

Entry = TypeVar("Entry", ProducerSpec, ConsumerSpec, PipelineSpec)


class NamesItsMembers(Protocol):
    """The part of a worker that `own_name_problems` reads (`harness.workers.WorkerSpec`)."""

    @property
    def own_names(self) -> Mapping[Any, str]:
        """By role, the option that gives a client a name which no other client may have."""


def members(entries: Mapping[str, Entry]) -> list[tuple[str, Entry]]:
    """Name and settings of every process, in order. ``{instance}`` in an option becomes its
    number."""
    return [
        (name, _member(entry, number))
        for name, entry in entries.items()
        for number in range(1, entry.count + 1)
    ]


def _member(entry: Entry, number: int) -> Entry:
    update = {"options": _numbered(entry.options, number)}
    if isinstance(entry, PipelineSpec):
        update["consumer_options"] = _numbered(entry.consumer_options, number)
    return entry.model_copy(update=update)


def _numbered(options: Mapping[str, Option], number: int) -> dict[str, Option]:
    return {
        key: value.replace(INSTANCE, str(number)) if isinstance(value, str) else value
        for key, value in options.items()
    }


def own_name_problems(
    scenario: Scenario, clients: Mapping[str, NamesItsMembers]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Names that two clients have though brokers accept one client of a name, as (key path,
    problem)."""
    owners: dict[tuple[str, ...], str] = {}
    for at, key, role, spec, places in _named(scenario):
        worker = clients.get(spec.client)
        option = worker.own_names.get(role, "") if worker else ""
        options = native(getattr(spec, key))
        if not option or option not in options:
            continue
        value = options[option]
        who = ".".join(at)
        for place in places:
            owner = owners.setdefault((role, place, value), who)
            if owner == who and (spec.count == 1 or INSTANCE in value):
                continue
            whose = f"the {spec.count} processes of this entry" if owner == who else f"{owner} too"
            sentence = (
                f"is the name of {whose}, and the brokers accept one client of a name in {place}"
            )
            yield (
                (*at, key, option),
                f"{sentence}; write it with {INSTANCE}, the number of the process",
            )
            break


def _named(
    scenario: Scenario,
) -> Iterator[
    tuple[tuple[str, ...], str, str, ProducerSpec | ConsumerSpec | PipelineSpec, Sequence[str]]
]:
    """Each entry: its place, the key of its options, its role, itself, and where its name must be
    unique."""
    load = scenario.load
    for name, producer in load.producers.items():
        topics = [f"topic {topic}" for topic in producer.topics or scenario.topics]
        yield ("load", "producers", name), "options", "producer", producer, topics
    for name, consumer in load.consumers.items():
        at = ("load", "consumers", name)
        yield at, "options", "consumer", consumer, [f"group {consumer.group}"]
    for name, pipeline in load.pipelines.items():
        at = ("load", "pipelines", name)
        yield at, "options", "producer", pipeline, [f"topic {pipeline.to}"]
        group = pipeline.group or name
        yield at, "consumer_options", "consumer", pipeline, [f"group {group}"]
