"""Pulsar's service units: a topic, a bundle or the namespace, to be unloaded, moved or split."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.params import Inventory, names
from harness.errors import did_you_mean

_TOPIC, _BUNDLE, _BUNDLE_OF = "topic:", "bundle:", "bundle-of:"
_RANGE: Final = re.compile(r"0x[0-9a-f]{8}_0x[0-9a-f]{8}")
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class ServiceUnit:
    """A topic or one stream of it, a bundle, or the whole namespace. ``name`` as the step has
    it."""

    form: Literal["topic", "bundle", "namespace"]
    name: str = ""

    def __str__(self) -> str:
        return "namespace" if self.form == "namespace" else f"{self.form}:{self.name}"

    def streams(self, view: ClusterView) -> list[str]:
        """The streams of the run's topics that it holds."""
        everything = streams_of(view.inventory)
        if self.form == "namespace":
            return everything
        if self.form == "topic":
            topic = view.inventory.topic(self.name)
            found = [self.name] if topic is None else streams_of(Inventory((topic,), ()))
            return [stream for stream in found if stream in everything]
        return [
            stream for stream, at in view.bundles.bundles_of(everything).items() if at == self.name
        ]

    def targets(self, view: ClusterView) -> list[str]:
        """Return the targets that the journal names."""
        return self.streams(view) if self.form == "topic" else [str(self)]

    def unload(self, view: ClusterView) -> None:
        """Close it at its owner; returns when done.

        Raises:
            BrokerstormError: the brokers refuse or do not answer.
        """
        if self.form == "namespace":
            view.bundles.unload_namespace()
        elif self.form == "bundle":
            view.bundles.unload_bundle(self.name)
        else:
            for stream in self.streams(view):
                view.bundles.unload_stream(stream)


def streams_of(inventory: Inventory) -> list[str]:
    """Every stream of the topics of an inventory."""
    return [
        f"{topic.name}-{number}" for topic in inventory.topics for number in range(topic.partitions)
    ]


def parse_unit(text: str, inventory: Inventory, *, extra: Sequence[str] = ()) -> ServiceUnit | None:
    """Check the names in a target; None for one of ``extra``, or when a bundle is to be looked up
    later.

    Raises:
        StepProblem: no such form, topic, or range of a bundle.
    """
    if text in extra:
        return None
    if text == "namespace":
        return ServiceUnit("namespace")
    if text.startswith(_TOPIC):
        name = text.removeprefix(_TOPIC)
        known = [topic.name for topic in inventory.topics]
        if name not in known and name not in streams_of(inventory):
            near = did_you_mean(name, known, label="topics")
            raise StepProblem("target", f"no topic {name!r}; {near}")
        return ServiceUnit("topic", name)
    if text.startswith(_BUNDLE_OF):
        parse_unit(_TOPIC + text.removeprefix(_BUNDLE_OF), inventory)
        return None
    if text.startswith(_BUNDLE) and _RANGE.fullmatch(text.removeprefix(_BUNDLE)):
        return ServiceUnit("bundle", text.removeprefix(_BUNDLE))
    allowed = [*extra, "namespace", "topic:NAME", "bundle-of:TOPIC", "bundle:0x00000000_0x15555555"]
    raise StepProblem("target", f"must be one of {names(allowed)}, got {text!r}")


def choose_unit(text: str, view: ClusterView, rng: random.Random) -> ServiceUnit:
    """The unit that a target means now; ``random`` is a topic.

    Raises:
        FiringSkipped: there are no topics.
    """
    if text.startswith(_BUNDLE_OF):
        return ServiceUnit("bundle", _bundle_of(text.removeprefix(_BUNDLE_OF), view))
    unit = parse_unit(text, view.inventory, extra=("random",))
    if unit is not None:
        return unit
    known = sorted(topic.name for topic in view.inventory.topics)
    if not known:
        raise FiringSkipped("there are no topics")
    return ServiceUnit("topic", rng.choice(known))


def choose_bundle(text: str, view: ClusterView, rng: random.Random) -> str:
    """The bundle that a target means now; ``random`` is one that holds a topic and has an owner.

    Raises:
        FiringSkipped: there is none.
    """
    if text.startswith((_BUNDLE, _BUNDLE_OF)):
        return choose_unit(text, view, rng).name
    owners = view.bundles.bundle_owners()
    candidates = [bundle for bundle in used_bundles(view) if owners.get(bundle)]
    if not candidates:
        raise FiringSkipped("no bundle with a topic of the run has an owner right now")
    return rng.choice(candidates)


def used_bundles(view: ClusterView) -> list[str]:
    """The bundles that hold a topic of the run."""
    return sorted(set(view.bundles.bundles_of(streams_of(view.inventory)).values()))


def _bundle_of(name: str, view: ClusterView) -> str:
    streams = ServiceUnit("topic", name).streams(view)
    if not streams:
        raise FiringSkipped(f"there is no topic {name}")
    return view.bundles.bundles_of(streams[:1])[streams[0]]


#: Pulsar's admin API below a broker's web address; the namespace is made for the run.
NAMESPACE_URL: Final = "/admin/v2/namespaces/public/{namespace of the run}"


def bundle_rule(text: str) -> str:
    """A bundle for `plan`: its range, or the rule by which it is found."""
    if text.startswith(_BUNDLE_OF):
        return f"{{the bundle of {text.removeprefix(_BUNDLE_OF)} then}}"
    name = text.removeprefix(_BUNDLE)
    return name if name != "random" else "{a bundle with a topic, chosen then}"


def unload_requests(text: str, inventory: Inventory) -> list[str]:
    """Return the requests that unload a target, for `plan`; ``random`` is a topic."""
    if text == "namespace":
        return [f"PUT {NAMESPACE_URL}/unload"]
    if text.startswith((_BUNDLE, _BUNDLE_OF)):
        return [f"PUT {NAMESPACE_URL}/{bundle_rule(text)}/unload"]
    topics = "/admin/v2/persistent/public/{namespace of the run}"
    if text == "random":
        return [f"PUT {topics}/{{each partition of a topic, chosen then}}/unload"]
    name = text.removeprefix(_TOPIC)
    topic = inventory.topic(name)
    if topic is None:  # one stream
        topic, numbers = inventory.topic(name.rpartition("-")[0]), [int(name.rpartition("-")[2])]
    else:
        numbers = list(range(topic.partitions))
    assert topic is not None  # checked when compiled
    # Pulsar names the only stream of a topic like the topic.
    local = (
        [topic.name]
        if topic.partitions == 1
        else [f"{topic.name}-partition-{number}" for number in numbers]
    )
    return [f"PUT {topics}/{each}/unload" for each in local]
