"""Targets of faults on nodes: a step's ``target``, checked early and resolved when the firing is
due."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.params import Inventory, names
from harness.errors import did_you_mean
from harness.systems import SYSTEMS

_LEADER, _OWNER, _FOLLOWER, _REPLICA = "leader-of:", "owner-of:", "follower-of:", "replica-of:"
_COORDINATOR, _ROLE = "coordinator-of:", "role:"
#: By prefix, what a node is to the partitions of a topic.
_OF_TOPIC: Final[Mapping[str, Literal["leader", "follower", "replica"]]] = {
    _LEADER: "leader",
    _OWNER: "leader",
    _FOLLOWER: "follower",
    _REPLICA: "replica",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed target. ``partition`` None with a topic: the node that leads, follows in or keeps
    most of it. ``nodes`` are the listed nodes; ``node`` is the role with form ``role``; ``group``
    what is coordinated, ``group:NAME`` or ``transactions:NAME``.
    """

    form: Literal[
        "node",
        "nodes",
        "random",
        "leader",
        "follower",
        "replica",
        "coordinator",
        "controller",
        "all",
        "role",
    ]
    node: str = ""
    nodes: tuple[str, ...] = ()
    topic: str = ""
    partition: int | None = None
    group: str = ""


def parse(text: str, inventory: Inventory) -> Target:
    """Check the names in a target.

    Raises:
        StepProblem: no such node, topic, partition or form.
    """
    if text == "random":
        return Target("random")
    if text == "controller":
        if not SYSTEMS[inventory.system].has_controller:
            other = "name a node, random, or leader-of:TOPIC"
            raise StepProblem("target", f"{inventory.system} has no controller: {other}")
        return Target("controller")
    if text == "all":
        return Target("all")
    for prefix, form in _OF_TOPIC.items():
        if text.startswith(prefix):
            return _parse_topic(form, text.removeprefix(prefix), inventory)
    if text.startswith(_COORDINATOR):
        return _parse_coordinator(text.removeprefix(_COORDINATOR), inventory)
    if text.startswith(_ROLE) and text.removeprefix(_ROLE) in inventory.role_names():
        return Target("role", node=text.removeprefix(_ROLE))
    if text in inventory.nodes:
        return Target("node", node=text)
    if "," in text:
        return _parse_list(text, inventory)
    roles = [f"{_ROLE}{role}" for role in inventory.role_names()]
    topics = [f"{prefix}{topic.name}" for topic in inventory.topics for prefix in _OF_TOPIC]
    groups = [f"{_COORDINATOR}{name}" for name in inventory.coordinated]
    known = [*inventory.nodes, "random", "controller", "all", *roles, *topics, *groups]
    raise StepProblem("target", f"no node {text!r}; {did_you_mean(text, known, label='allowed')}")


def _parse_list(text: str, inventory: Inventory) -> Target:
    """Several nodes that are hit at the same moment: ``kafka-1, kafka-2``."""
    listed = tuple(name.strip() for name in text.split(","))
    for name, times in Counter(listed).items():
        if name not in inventory.nodes:
            raise StepProblem("target", f"no node {name!r}. Nodes: {names(inventory.nodes)}")
        if times > 1:
            raise StepProblem("target", f"has {name} twice; name each node once")
    return Target("nodes", nodes=listed)


def is_coordinator(text: str) -> bool:
    """Whether a target means who coordinates a group or transactions."""
    return text.startswith(_COORDINATOR)


def _parse_coordinator(rest: str, inventory: Inventory) -> Target:
    if not rest.startswith(("group:", "transactions:")):
        form = f"{_COORDINATOR}group:NAME or {_COORDINATOR}transactions:NAME"
        raise StepProblem("target", f"no coordinator of {rest!r}; allowed: {form}")
    if inventory.coordinated and rest not in inventory.coordinated:
        close = did_you_mean(rest, list(inventory.coordinated), label="allowed")
        raise StepProblem("target", f"no broker coordinates {rest!r}; {close}")
    return Target("coordinator", group=rest)


def _parse_topic(
    form: Literal["leader", "follower", "replica"], rest: str, inventory: Inventory
) -> Target:
    if inventory.topic(rest):
        return Target(form, topic=rest)
    topic_name, _, number = rest.rpartition("-")
    topic = inventory.topic(topic_name)
    if topic is None or not number.isdigit():
        known = [t.name for t in inventory.topics]
        raise StepProblem(
            "target", f"no topic {rest!r}; {did_you_mean(rest, known, label='topics')}"
        )
    if int(number) >= topic.partitions:
        raise StepProblem(
            "target", f"topic {topic.name} has partitions 0 to {topic.partitions - 1}, not {number}"
        )
    return Target(form, topic=topic.name, partition=int(number))


def target_text(text: str, inventory: Inventory) -> str:
    """A target for `plan`: names where they are known, else the rule by which they are chosen.

    Raises:
        StepProblem: as `parse`.
    """
    target = parse(text, inventory)
    if target.form == "node":
        return target.node
    if target.form == "nodes":
        return names(target.nodes)
    if target.form == "all":
        brokers = [
            node for node in inventory.nodes if "broker" in inventory.roles.get(node, ("broker",))
        ]
        return names(brokers)
    if target.form in ("random", "role"):
        return f"a random {target.node or 'broker'}, chosen then"
    return f"{_rule(target)}, chosen then"


def part_text(text: str, inventory: Inventory) -> str:
    """Return what a node was to the cluster when this target chose it, for its proof; empty where
    the target does not say.

    Raises:
        StepProblem: as `parse`.
    """
    target = parse(text, inventory)
    return "" if target.form in ("node", "nodes", "all", "random", "role") else _rule(target)


def _rule(target: Target) -> str:
    if target.form == "controller":
        return "the active controller"
    if target.form == "coordinator":
        return f"the coordinator of {target.group.replace(':', ' ')}"
    return _topic_rule(target)


def _topic_rule(target: Target) -> str:
    if target.partition is None:
        word = {"leader": "leads", "follower": "follows in", "replica": "keeps"}[target.form]
        return f"the node that {word} most of {target.topic}"
    article = "the" if target.form == "leader" else "a"
    return f"{article} {target.form} of {target.topic}-{target.partition}"


def resolve(target: Target, view: ClusterView, draw: int) -> tuple[str, ...]:
    """The nodes meant now. Candidates are sorted, the choice among them is the seed's.

    Raises:
        FiringSkipped: no node fits (no leader, no controller, every node is faulted already).
        BrokerstormError: the cluster does not answer.
    """
    if target.form == "node":
        return (target.node,)
    if target.form == "nodes":
        return target.nodes
    if target.form == "all":
        return view.brokers
    if target.form in ("random", "role"):
        among = view.brokers if target.form == "random" else view.with_role(target.node)
        candidates = [node for node in among if node not in view.faulted()]
        return (_pick(candidates, draw, "every node is faulted already"),)
    if target.form == "controller":
        controller = view.placement.controller()
        return (
            _pick([controller] if controller else [], draw, "no controller is known right now"),
        )
    if target.form == "coordinator":
        found = view.coordinators(target.group)
        return (_pick(_most(found), draw, f"{target.group} has no coordinator right now"),)
    return (_of_topic(target, view, draw),)


def _of_topic(target: Target, view: ClusterView, draw: int) -> str:
    if target.form == "leader":
        nodes = {
            p: [node] if node else [] for p, node in view.placement.leaders(target.topic).items()
        }
    else:
        but_leader = target.form == "follower"
        nodes = {
            partition: [
                node for node in state.replicas if not (but_leader and node == state.leader)
            ]
            for partition, state in view.states_of(target.topic).items()
        }
    asked = nodes.values() if target.partition is None else [nodes.get(target.partition, [])]
    what = target.topic if target.partition is None else f"{target.topic}-{target.partition}"
    candidates = _most(node for found in asked for node in found)
    return _pick(candidates, draw, f"{what} has no {target.form} right now")


def _most(nodes: Iterable[str]) -> list[str]:
    """Return the nodes that are named most often, sorted."""
    counts = Counter(nodes)
    most = max(counts.values(), default=0)
    return sorted(node for node, count in counts.items() if count == most)


def _pick(candidates: list[str], draw: int, reason: str) -> str:
    if not candidates:
        raise FiringSkipped(reason)
    return random.Random(draw).choice(candidates)
