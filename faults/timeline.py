"""Fault steps + seed -> timeline: every firing with its time, decided before anything starts. Pure.

Randomness is drawn per (seed, step, firing), so that editing one step leaves the others as they were.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from faults.errors import StepProblem, did_you_mean
from faults.injection import FaultKind
from faults.kinds import KINDS
from faults.params import Params, Schedule, Shape, TopicShape, keys_of, names
from faults.schedule import firing_times
from faults.site import find_ability
from harness.errors import ScenarioError
from harness.protocols import Cluster

_HINT: Final = "`brokerstorm list faults` shows every kind and its keys"
#: pydantic's words for programmers -> ours for people.
_SENTENCES: Final = {
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "tuple_type": "must be a pair such as [20ms, 200ms]",
    "too_long": "has too many values",
    "model_type": "must be a mapping of keys and values",
    "dict_type": "must be a mapping of keys and values",
    "string_type": "must be text",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a duration such as 10s, 250ms or 2m"),
}

M = TypeVar("M", bound=Params)


@dataclass(frozen=True, slots=True)
class Firing:
    """One fault at one time.

    Attributes:
        id: 1, 2, 3 ... in the order of time.
        target: as written, resolved when it fires.
        t_s: seconds after the start of load.
        for_s: from applied to heal; None when the fault ends by itself.
        params: all keys of the kind, plain JSON.
        wait_s: how long it is tried when nobody can be hit at ``t_s``.
        step: index in the scenario's list.
        draw: seed of every choice of this firing.
    """

    id: int
    kind: str
    target: str
    t_s: float
    for_s: float | None
    params: Mapping[str, Any]
    step: int
    draw: int
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """The firings of a run, sorted by time, and the names they were checked against."""

    firings: tuple[Firing, ...]
    seed: int
    load_s: float
    shape: Shape


def compile(
    steps: Sequence[Mapping[str, Any]],
    *,
    seed: int,
    load_s: float,
    topics: Sequence[TopicShape],
    nodes: Sequence[str] | Mapping[str, Sequence[str]],
) -> Timeline:
    """Check every step and lay out its firings.

    Args:
        steps: the scenario's ``faults`` list as read.
        topics: name, partitions and replication of each (a plan's topics, or `TopicSettings`).
        nodes: names of the cluster's nodes, or name -> its roles.

    Raises:
        ScenarioError: names the step and the key, ``faults[2].target: ...``.
    """
    shape = Shape(tuple(topics), tuple(sorted(nodes)), nodes if isinstance(nodes, Mapping) else {})
    drafts = [
        draft for index, step in enumerate(steps) for draft in _firings(index, step, seed, load_s, shape)
    ]
    drafts.sort(key=lambda draft: (draft.t_s, draft.step))
    firings = tuple(_numbered(draft, number) for number, draft in enumerate(drafts, start=1))
    return Timeline(firings, seed, load_s, shape)


def _numbered(draft: Firing, number: int) -> Firing:
    return replace(draft, id=number)


def _firings(index: int, step: Any, seed: int, load_s: float, shape: Shape) -> list[Firing]:
    try:
        kind, schedule, params = read_step(step, shape)
        for_s = kind.lasts_s(params)
        times = firing_times(schedule, f"{seed}:{index}", load_s, for_s or 0.0)
    except StepProblem as problem:
        where = f"faults[{index}]" + (f".{problem.key}" if problem.key else "")
        raise ScenarioError(f"{where}: {problem}", hint=_HINT) from None
    target, dumped = kind.target(params), params.model_dump(mode="json", by_alias=True)
    return [
        Firing(
            0,
            kind.kind,
            target,
            t_s,
            for_s,
            dumped,
            index,
            random.Random(f"{seed}:{index}:{number}").getrandbits(63),
            schedule.wait,
        )
        for number, t_s in enumerate(times)
    ]


def read_step(step: Any, shape: Shape) -> tuple[FaultKind[Any], Schedule, Any]:
    """Kind, schedule and complete parameters of one raw step.

    Raises:
        StepProblem: the key and what is wrong with it.
    """
    if not isinstance(step, Mapping):
        raise StepProblem("", f"must be a mapping such as {{fault: kill, at: 10s}}, not {step!r}")
    kind = find_kind(step.get("fault"))
    schedule_keys = keys_of(Schedule)
    known = ["fault", *schedule_keys, *keys_of(kind.params)]
    for key in step:
        if key not in known:
            text = f"unknown key{did_you_mean(str(key), known)}. Keys of {kind.kind}: {names(known)}"
            raise StepProblem(str(key), text)
    schedule = _validate(Schedule, {key: value for key, value in step.items() if key in schedule_keys})
    rest = {key: value for key, value in step.items() if key not in ("fault", *schedule_keys)}
    return kind, schedule, kind.complete(_validate(kind.params, rest), shape)


def find_kind(name: object) -> FaultKind[Any]:
    """A registered kind.

    Raises:
        StepProblem: none of that name.
    """
    if not name:
        raise StepProblem("fault", f"is missing. Kinds: {names(KINDS)}")
    kind = KINDS.get(str(name))
    if kind is None:
        raise StepProblem(
            "fault", f"unknown kind {name!r}{did_you_mean(str(name), KINDS)}. Kinds: {names(KINDS)}"
        )
    return kind


def _validate(model: type[M], values: Mapping[str, Any]) -> M:
    """pydantic's first complaint as a `StepProblem`."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if part != "[key]")
        said = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        text = _SENTENCES.get(first["type"], said)
        got = f", got {first['input']!r}" if key and first["type"] != "missing" else ""
        raise StepProblem(key, text + got) from None


def abilities_needed(timeline: Timeline) -> dict[str, type]:
    """Name -> protocol of every ability that the timeline's kinds use."""
    return {
        ability.__name__: ability
        for kind in sorted({firing.kind for firing in timeline.firings})
        for ability in KINDS[kind].abilities
    }


def needs_of(timelines: Iterable[Timeline]) -> frozenset[str]:
    """What a cluster must be started with, so that all of these timelines can be run on it."""
    kinds = {firing.kind for timeline in timelines for firing in timeline.firings}
    return frozenset(need for kind in kinds for need in KINDS[kind].needs)


def refuse_unsupported(timeline: Timeline, cluster: Cluster) -> None:
    """Check a cluster, which need not be up, before anything starts.

    Raises:
        ScenarioError: the first step whose kind needs what this cluster lacks.
    """
    for firing in sorted(timeline.firings, key=lambda firing: firing.step):
        lacking = [a.__name__ for a in KINDS[firing.kind].abilities if find_ability(cluster, a) is None]
        if lacking:
            raise ScenarioError(
                f"faults[{firing.step}].fault: {firing.kind} needs {names(lacking)},"
                f" which this {cluster.system} cluster ({type(cluster.runtime).__name__}) does not have",
                hint="`brokerstorm list faults` shows what each kind needs",
            )


def describe(timeline: Timeline) -> list[str]:
    """The timeline for people: ``+10.0 s  kill leader-of:orders for 5 s``."""
    width = max((len(f"{firing.t_s:.1f}") for firing in timeline.firings), default=0)
    return [f"+{firing.t_s:{width}.1f} s  {_sentence(firing)}" for firing in timeline.firings]


def _sentence(firing: Firing) -> str:
    words = [firing.kind, firing.target]
    count = firing.params.get("partitions")
    if firing.params.get("moves"):
        words.append(", ".join(f"{p} -> {node}" for p, node in firing.params["moves"].items()))
    elif "partitions" in firing.params:
        words.append(f"{count} partitions" if count else "all partitions")
    if "times" in firing.params:
        words.append(f"{firing.params['times']} {'pairs' if firing.params.get('pairs') else 'times'}")
    if "to" in firing.params:
        words.append(f"to {firing.params['to']}")
    if firing.for_s:
        words.append(f"{'down' if 'down' in firing.params else 'for'} {firing.for_s:g} s")
    if firing.params.get("together"):
        words.append("(together with others)")
    return " ".join(words)
