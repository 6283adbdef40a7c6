"""Draws fault steps at random, and changes steps. Pure: the same random numbers draw the same step.

It knows the kinds by their models alone: times, choices, targets and topics are drawn, every other
key keeps its default. A kind with a key that has no default is drawn only if the kind gives values
for it (`FaultKind.drawn_from`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from faults.kinds import KINDS
from faults.kit.clients import ClientParams
from faults.kit.errors import StepProblem
from faults.kit.injection import FaultKind
from faults.kit.params import Inventory, NodeParams, OneTopicParams
from faults.kit.requests import RequestParams
from faults.schedule.reference import unit_of
from faults.schedule.steps import find_kind, read_step
from harness.contracts.plan import FaultStep

#: A drawn step that does not fit the plan is drawn again, so often.
_DRAWS: Final = 40
#: A duration is drawn between these multiples of its default.
_SHORTEST, _LONGEST = 1 / 4, 2.0
_FIRST_S: Final = 0.5
#: Time that is left after a fault, so that the load shows what it did.
_LEFT_S: Final = 1.0
_LEAST_S: Final = 0.1
#: Of a duration without a default.
_LONGEST_REQUIRED_S: Final = 2.0
#: Shares of requests that are drawn. Small ones are rare: of few requests, they meet none.
_SHARES: Final = (1.0, 1.0, 0.5, 0.1)


def drawable(inventory: Inventory, load_s: float) -> list[str]:
    """Return the kinds that `draw_step` can draw for these topics, nodes and clients.

    Kinds whose length is not known, such as upgrades, are left out.
    """
    found = []
    for name in KINDS:
        try:
            draw_step(name, inventory, random.Random(name), load_s)
        except StepProblem:
            continue
        found.append(name)
    return found


def draw_step(name: str, inventory: Inventory, rng: random.Random, load_s: float) -> FaultStep:
    """Return a step of a kind with random keys that begins and ends within the load.

    Args:
        inventory: names that the step may use.
        load_s: length of the load in seconds.

    Raises:
        StepProblem: no step of this kind fits, or its length is not known.
    """
    kind = find_kind(name)
    if not kind.drawn_from(inventory):
        raise StepProblem("fault", f"{name} is never drawn")
    problem = StepProblem("fault", f"{name} takes longer than the load")
    for _ in range(_DRAWS):
        step = {"fault": name, "at": _FIRST_S, **_drawn_keys(kind, inventory, rng)}
        try:
            ends_s = _ends_s(step, inventory)
        except StepProblem as error:
            problem = error
            continue
        latest_s = load_s - ends_s - _LEFT_S
        if latest_s > _FIRST_S:
            return {**step, "at": round(rng.uniform(_FIRST_S, latest_s), 1)}
    raise problem


def change_step(
    step: FaultStep, inventory: Inventory, rng: random.Random, load_s: float
) -> FaultStep | None:
    """Return a step that begins at another time, or has another value of one key.

    None if it cannot be changed: a mix, a step that repeats, a kind that is never drawn, or a
    change that does not fit.
    """
    if "mix" in step or "at" not in step:
        return None
    kind = find_kind(step.get("fault"))
    if not kind.drawn_from(inventory):
        return None
    redrawn = _drawn_keys(kind, inventory, rng)
    key = rng.choice(["at", *redrawn])
    changed = {**step, key: redrawn.get(key, step["at"])}
    try:
        latest_s = load_s - _ends_s(changed, inventory) - _LEFT_S
    except StepProblem:
        return None
    if latest_s <= _FIRST_S:
        return None
    if key == "at":
        changed["at"] = round(rng.uniform(_FIRST_S, latest_s), 1)
    return changed if changed != step else None


def _ends_s(step: FaultStep, inventory: Inventory) -> float:
    """Seconds from its injection to the beginning of its heal.

    Raises:
        StepProblem: the step does not fit, or this is not known.
    """
    kind, _, params = read_step(step, inventory)
    ends_s = kind.ends_within_s(params)
    if ends_s is None:
        raise StepProblem("fault", f"how long {kind.kind} takes is not known")
    return ends_s


def _drawn_keys(kind: FaultKind[Any], inventory: Inventory, rng: random.Random) -> FaultStep:
    """Return the keys of a step that are drawn, without its time."""
    samples = kind.drawn_from(inventory)
    keys: FaultStep = dict(rng.choice(samples[: rng.randint(1, len(samples))]))
    for name, field in kind.params.model_fields.items():
        key = field.alias or name
        if key not in keys:
            keys.update(_drawn_key(key, field, kind, inventory, rng))
    return keys


def _drawn_key(
    key: str, field: FieldInfo, kind: FaultKind[Any], inventory: Inventory, rng: random.Random
) -> Iterator[tuple[str, Any]]:
    """Yield the key with its value; nothing if it keeps its default."""
    if key == "target" and (targets := list(_targets(kind, inventory))):
        yield key, rng.choice(targets)
    elif key == "share" and issubclass(kind.params, RequestParams):
        yield key, rng.choice(_SHARES)
    elif key == "topic" and issubclass(kind.params, OneTopicParams) and inventory.topics:
        yield key, rng.choice(inventory.topics).name
    elif get_origin(field.annotation) is Literal:
        yield key, rng.choice(get_args(field.annotation))
    elif unit_of(field) == "s" and field.is_required():
        yield key, round(rng.uniform(_LEAST_S, _LONGEST_REQUIRED_S), 1)
    elif unit_of(field) == "s" and isinstance(field.default, float) and field.default > 0:
        drawn_s = field.default * rng.uniform(_SHORTEST, _LONGEST)
        yield key, max(_LEAST_S, round(drawn_s, 1))


def _targets(kind: FaultKind[Any], inventory: Inventory) -> Iterator[str]:
    """Yield the targets that a step may have."""
    params = kind.params
    if issubclass(params, NodeParams):
        yield NodeParams().target
        yield from inventory.nodes
        yield from (f"coordinator-of:{name}" for name in inventory.coordinated)
        if issubclass(params, RequestParams):
            yield "all"  # the nodes stay; other kinds would take them all away
        for topic in inventory.topics:
            yield from (f"leader-of:{topic.name}", f"follower-of:{topic.name}")
    elif issubclass(params, ClientParams):
        yield from (f"client:{name}" for name, why in inventory.clients.items() if not why)
