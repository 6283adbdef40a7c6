"""Targets of faults on nodes: a step's ``target``, checked early and resolved when the firing is due."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.params import Inventory, names
from harness.errors import did_you_mean

_LEADER, _OWNER, _ROLE = "leader-of:", "owner-of:", "role:"


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed target. ``partition`` None with form ``leader``: the node that leads most of the topic.
    ``node`` is the role with form ``role``.
    """

    form: Literal["node", "random", "leader", "controller", "all", "role"]
    node: str = ""
    topic: str = ""
    partition: int | None = None


def parse(text: str, inventory: Inventory) -> Target:
    """Check the names in a target.

    Raises:
        StepProblem: no such node, topic, partition or form.
    """
    if text == "random":
        return Target("random")
    if text == "controller":
        return Target("controller")
    if text == "all":
        return Target("all")
    for prefix in (_LEADER, _OWNER):
        if text.startswith(prefix):
            return _parse_leader(text.removeprefix(prefix), inventory)
    if text.startswith(_ROLE) and text.removeprefix(_ROLE) in inventory.role_names():
        return Target("role", node=text.removeprefix(_ROLE))
    if text in inventory.nodes:
        return Target("node", node=text)
    roles = [f"{_ROLE}{role}" for role in inventory.role_names()]
    topics = [f"{_LEADER}{topic.name}" for topic in inventory.topics]
    known = [*inventory.nodes, "random", "controller", "all", *roles, *topics]
    raise StepProblem("target", f"no node {text!r}; {did_you_mean(text, known, label='allowed')}")


def _parse_leader(rest: str, inventory: Inventory) -> Target:
    if inventory.topic(rest):
        return Target("leader", topic=rest)
    topic_name, _, number = rest.rpartition("-")
    topic = inventory.topic(topic_name)
    if topic is None or not number.isdigit():
        known = [t.name for t in inventory.topics]
        raise StepProblem("target", f"no topic {rest!r}; {did_you_mean(rest, known, label='topics')}")
    if int(number) >= topic.partitions:
        raise StepProblem(
            "target", f"topic {topic.name} has partitions 0 to {topic.partitions - 1}, not {number}"
        )
    return Target("leader", topic=topic.name, partition=int(number))


def target_text(text: str, inventory: Inventory) -> str:
    """A target for `plan`: names where they are known, else the rule by which they are chosen.

    Raises:
        StepProblem: as `parse`.
    """
    target = parse(text, inventory)
    if target.form == "node":
        return target.node
    if target.form == "all":
        brokers = [node for node in inventory.nodes if "broker" in inventory.roles.get(node, ("broker",))]
        return names(brokers)
    if target.form == "leader":
        what = target.topic if target.partition is None else f"{target.topic}-{target.partition}"
        rule = (
            f"the leader of {what}" if target.partition is not None else f"the node that leads most of {what}"
        )
    else:
        rule = {
            "random": "a random broker",
            "controller": "the active controller",
            "role": f"a random {target.node}",
        }[target.form]
    return f"{rule}, chosen then"


def resolve(target: Target, view: ClusterView, draw: int) -> tuple[str, ...]:
    """The nodes meant now. Candidates are sorted, the choice among them is the seed's.

    Raises:
        FiringSkipped: nobody fits (no leader, no controller, every node is faulted already).
    """
    if target.form == "node":
        return (target.node,)
    if target.form == "all":
        return view.brokers
    if target.form in ("random", "role"):
        among = view.brokers if target.form == "random" else view.with_role(target.node)
        candidates = [node for node in among if node not in view.faulted()]
        return (_pick(candidates, draw, "every node is faulted already"),)
    if target.form == "controller":
        controller = view.placement.controller()
        return (_pick([controller] if controller else [], draw, "no controller is known right now"),)
    return (_leader(target, view, draw),)


def _leader(target: Target, view: ClusterView, draw: int) -> str:
    leaders = view.placement.leaders(target.topic)
    if target.partition is not None:
        leader = leaders.get(target.partition)
        reason = f"{target.topic}-{target.partition} has no leader right now"
        return _pick([leader] if leader else [], draw, reason)
    led = Counter(node for node in leaders.values() if node)
    most = max(led.values(), default=0)
    candidates = sorted(node for node, count in led.items() if count == most)
    return _pick(candidates, draw, f"{target.topic} has no leader right now")


def _pick(candidates: list[str], draw: int, reason: str) -> str:
    if not candidates:
        raise FiringSkipped(reason)
    return random.Random(draw).choice(candidates)
