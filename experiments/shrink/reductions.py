"""The ways in which a scenario can be made smaller, found in its model, and the scenario made so.
Pure.

A *reduction* leaves a part out (a fault, a topic, a producer, an option that then is the default),
takes a number one step down (partitions, rate, the time before the first fault), or aims a fault
that hits a random node at a leader, which leaves nothing to luck. What a scenario asks is not part
of it: the requirements, the deadlines, the clients and their versions stay as they are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, get_origin

import faults.schedule.smaller as steps
from harness.contracts.plan import FaultStep
from harness.durations import parse_seconds, seconds_text
from harness.rundir import Document, path_below, resolved
from harness.scenario.application import ApplicationSpec
from harness.scenario.model import (
    ClusterSpec,
    ConsumerSpec,
    LoadSpec,
    ProducerSpec,
    Scenario,
    TopicSpec,
)
from harness.scenario.part import Part
from harness.validation import Location

#: A number goes down by this factor, until its least value.
_FACTOR: Final = 4
#: Numbers of which less is smaller, and where less saves nothing more.
SIZES: Final[Mapping[tuple[type[Part], str], int]] = {
    (TopicSpec, "count"): 1,
    (TopicSpec, "partitions"): 1,
    (ProducerSpec, "count"): 1,
    (ProducerSpec, "threads"): 1,
    (ConsumerSpec, "count"): 1,
    (ApplicationSpec, "instances"): 1,
    (LoadSpec, "rate"): 100,
    (LoadSpec, "warm_up"): 1,
}
#: What is asked, of whom, and names.
KEPT: Final[Mapping[type[Part], frozenset[str]]] = {
    Scenario: frozenset(
        {"name", "about", "system", "workers", "require", "limits", "rounds", "variants", "bug"}
    ),
    ClusterSpec: frozenset({"version"}),
    LoadSpec: frozenset({"duration"}),  # follows from the faults and from `Calm`
    ProducerSpec: frozenset({"client", "client_version", "topics", "keys"}),
    ConsumerSpec: frozenset({"client", "client_version", "topics", "group", "joins_after"}),
    # How it is started is its own; without a variable, a program may do something else.
    ApplicationSpec: frozenset(ApplicationSpec.model_fields) - {"instances", "limits"},
}
#: Seconds of load that are always left before the first fault and after the last one.
_LEAST_BEFORE_S, _LEAST_BEHIND_S = 1.0, 2.0
_DURATION: Final[Location] = ("load", "duration")
_PAYLOAD: Final[Location] = ("load", "payload")
BEFORE: Final[Location] = (*_DURATION, "before")
BEHIND: Final[Location] = (*_DURATION, "behind")


class Group(StrEnum):
    """Parts that are tried together."""

    FAULTS = "faults"
    STEPS = "fault steps"
    TIME = "time"
    LOAD = "load"
    OPTIONS = "options"


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way to make a scenario smaller.

    Attributes:
        at: key path of what is left out or goes down.
        step: 0 = it is left out; n = the n-th step down of a number, or of a target.
    """

    group: Group
    at: Location
    step: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A scenario and all its reductions.

    Attributes:
        data: the scenario as a mapping, with one version and without variants.
        values: of each number that can go down, and of each target, what it is after each step.
        sets: of each set that must not be empty, its members; the first one stays when all should
            go.
    """

    data: Document
    reductions: tuple[Reduction, ...]
    values: Mapping[Location, tuple[Any, ...]] = field(default_factory=dict)
    sets: tuple[tuple[Location, ...], ...] = ()

    def without(self, applied: Collection[Reduction]) -> Document:
        """The scenario's data with these reductions; it may be none that can be run."""
        chosen = self.chosen(applied)
        made: Document = _made(self.data, (), self.gone(applied), chosen)
        _forget_topics(made)
        before_s, behind_s = _calm_s(self.data)
        most_s = _seconds(self.data["load"]["duration"])
        return _timed(made, chosen.get(BEFORE, before_s), chosen.get(BEHIND, behind_s), most_s)

    def shown_by(self, seconds: float) -> Shape:
        """The same, with the time after the last fault that shows what shows after so many seconds
        of load.

        Less would end the load before it shows.
        """
        _, behind_s = _calm_s(self.data)
        last_s = _seconds(self.data["load"]["duration"]) - behind_s
        enough_s = round(max(_LEAST_BEHIND_S, seconds - last_s + _LEAST_BEHIND_S), 1)
        longer = [each for each in self.values.get(BEHIND, ()) if each > enough_s]
        down = (*longer, enough_s) if enough_s < behind_s else ()
        others = [each for each in self.reductions if each.at != BEHIND]
        behind = [Reduction(Group.TIME, BEHIND, step) for step in range(1, len(down) + 1)]
        return replace(self, reductions=(*others, *behind), values={**self.values, BEHIND: down})

    def gone(self, applied: Collection[Reduction]) -> set[Location]:
        """Return the places that these reductions remove."""
        gone = {each.at for each in applied if not each.step}
        return gone - {members[0] for members in self.sets if gone.issuperset(members)}

    def chosen(self, applied: Collection[Reduction]) -> dict[Location, Any]:
        """The values of what these reductions take down."""
        down = Counter(each.at for each in applied if each.step)
        return {at: self.values[at][count - 1] for at, count in down.items()}

    def left(self, applied: Collection[Reduction]) -> list[Reduction]:
        """The reductions that can still be applied: none inside of what is gone."""
        gone = self.gone(applied)
        return [
            each
            for each in self.reductions
            if each not in applied
            and not any(each.at[:n] in gone for n in range(1, len(each.at) + 1))
        ]


def shape_of(scenario: Scenario, data: Document) -> Shape:
    """Return the parts of a scenario that can be removed or lowered.

    Args:
        data: the scenario as `pinned` writes it.
    """
    found = [*_of(scenario, ()), *_of_faults(data.get("faults", []), next(iter(data["topics"])))]
    if scenario.applications:  # they read messages of this shape
        found = [(each, value) for each, value in found if each.at != _PAYLOAD]
    before_s, behind_s = _calm_s(data)
    if _events_s(data):
        found += _down(Group.TIME, BEFORE, before_s, _LEAST_BEFORE_S)
    found += _down(Group.TIME, BEHIND, behind_s, _LEAST_BEHIND_S)
    values: dict[Location, tuple[Any, ...]] = {}
    for each, value in found:
        if each.step:
            values[each.at] = (*values.get(each.at, ()), value)
    return Shape(data, tuple(each for each, _ in found), values, _sets(found))


def pinned(scenario: Scenario) -> Document:
    """A merged scenario as plain data: what was written, and the sizes that were not."""
    kept = scenario.model_dump(
        mode="json", by_alias=True, exclude_unset=True, exclude={"rounds", "variants", "bug"}
    )
    _write_out(scenario, kept)
    kept["workers"] = scenario.worker_folders
    for part in (kept["load"], *kept["load"]["producers"].values()):
        if "csv" in (profile := part.get("profile") or {}):  # candidates lie in another folder
            profile["csv"] = str(resolved(path_below(scenario.folder, profile["csv"])))
    for name, spec in scenario.applications.items():
        own = str(resolved(path_below(scenario.folder, spec.start_in)))
        kept["applications"][name]["start_in"] = own
    return {key: value for key, value in kept.items() if value not in ([], {})}


def cost(data: Document) -> tuple[float, int]:
    """Seconds of warm-up and load, and messages, of one round."""
    load = data["load"]
    seconds = _seconds(load["duration"]) + _seconds(load["warm_up"])
    return seconds, round(seconds * load["rate"])


def _sets(found: Sequence[tuple[Reduction, Any]]) -> tuple[tuple[Location, ...], ...]:
    """The members of each set that must not be empty."""
    members: dict[Location, list[Location]] = {}
    for each, may_be_empty in found:
        if not each.step and may_be_empty is False:
            members.setdefault(each.at[:-1], []).append(each.at)
    return tuple(tuple(each) for each in members.values())


# ----- the parts of a scenario --------------------------------------------------------------------

#: Reductions; with each that takes a number down, what it then is, and with one that leaves a
#: member out, False where the last one must stay.
Found = Iterator[tuple[Reduction, Any]]


def _of(spec: Part, at: Location) -> Found:
    """The reductions of one part of the scenario's model, with the ones of its parts."""
    for key, about in type(spec).model_fields.items():
        value, here = getattr(spec, key), (*at, key)
        if key in KEPT.get(type(spec), ()):
            continue
        if (type(spec), key) in SIZES:
            least = SIZES[type(spec), key]
            if isinstance(value, float):
                yield from (
                    (each, seconds_text(less))
                    for each, less in _down(Group.TIME, here, value, least)
                )
            else:
                yield from _down(Group.LOAD, here, value, least)
        elif isinstance(value, Part) and about.default is not None:
            yield from _of(value, here)
        elif isinstance(value, dict) and get_origin(about.annotation) is dict:
            needs_one = any(getattr(mark, "min_length", 0) for mark in about.metadata)
            yield from _of_map(value, here, needs_one=needs_one)
        elif here != ("faults",) and key in spec.model_fields_set and value != about.get_default():
            yield Reduction(Group.OPTIONS, here), True


def _of_map(entries: Mapping[str, object], at: Location, *, needs_one: bool) -> Found:
    """Named parts, or native options."""
    for name, value in entries.items():
        if len(entries) > 1 or not needs_one:
            is_part = isinstance(value, Part)
            yield Reduction(Group.LOAD if is_part else Group.OPTIONS, (*at, name)), not needs_one
        if isinstance(value, Part):
            yield from _of(value, (*at, name))


def _of_faults(listed: list[FaultStep], topic: str) -> Found:
    for index, step in enumerate(listed):
        at: Location = ("faults", index)
        yield Reduction(Group.FAULTS, at), True
        if (single := steps.once(step)) is not None:
            yield Reduction(Group.STEPS, at, 1), single
        for path in steps.entries(step):
            yield Reduction(Group.STEPS, (*at, *path)), False
        # With the load: of fewer partitions, a random node leads none.
        for path, target in steps.aimed(step, topic):
            yield Reduction(Group.LOAD, (*at, *path), 1), target
        for path, value, least in steps.wholes(step):
            yield from _down(Group.STEPS, (*at, *path), value, least)


def _down(group: Group, at: Location, value: float, least: float) -> Found:
    """The steps of a number down to its least value."""
    step = 0
    while value > least:
        value = max(
            least,
            min(value - 1, math.ceil(value / _FACTOR))  # of 1, a quarter is 1 again
            if isinstance(value, int)
            else round(value / _FACTOR, 1),
        )
        step += 1
        yield Reduction(group, at, step), value


# ----- the scenario made smaller ------------------------------------------------------------------


def _made(
    value: Any, at: Location, gone: Collection[Location], chosen: Mapping[Location, Any]
) -> Any:
    """A copy without what is gone and with the values that were chosen, at any depth."""
    value = chosen.get(at, value)
    if isinstance(value, Mapping):
        keys = [*value, *(path[-1] for path in chosen if path[:-1] == at and path[-1] not in value)]
        kept = {
            key: (*at, key)
            for key in keys
            if (*at, key) not in gone and (*at, key) != (*_DURATION,)
        }
        return {key: _made(value.get(key), path, gone, chosen) for key, path in kept.items()}
    if isinstance(value, list):
        numbered = [((*at, index), item) for index, item in enumerate(value)]
        return [_made(item, path, gone, chosen) for path, item in numbered if path not in gone]
    return value


def _forget_topics(data: Document) -> None:
    """Clients no longer name topics that are gone; one that would have none keeps them, and is
    refused."""
    for side in ("producers", "consumers"):
        for spec in data["load"].get(side, {}).values():
            named = [topic for topic in spec.get("topics", ()) if topic in data["topics"]]
            if named:
                spec["topics"] = named


# ----- time ---------------------------------------------------------------------------------------


def _events_s(data: Document) -> list[tuple[float, float]]:
    """Begin and end of all that happens during the load: faults, and consumers that join."""
    joins = (_seconds(c.get("joins_after", 0)) for c in data["load"].get("consumers", {}).values())
    spans = [steps.span_s(step) for step in data.get("faults", [])]
    return [*spans, *((join_s, join_s) for join_s in joins if join_s)]


def _calm_s(data: Document) -> tuple[float, float]:
    """Seconds of load before the first event and after the last one; without any, all are after
    it."""
    duration_s, events = _seconds(data["load"]["duration"]), _events_s(data)
    if not events:
        return 0.0, duration_s
    last_s = min(duration_s, max(last for _, last in events))
    return min(first for first, _ in events), max(0.1, duration_s - last_s)


def _timed(data: Document, before_s: float, behind_s: float, most_s: float) -> Document:
    """The same with so much calm at both ends: what happens comes earlier, the load is as long as
    needed.

    Args:
        most_s: the load before. A fault says how long it lasts at most, which may be much longer.
    """
    events = _events_s(data)
    first_s = min((first for first, _ in events), default=before_s)
    last_s = min(most_s, max((last for _, last in events), default=before_s))
    by_s = before_s - first_s
    data["load"]["duration"] = seconds_text(last_s + by_s + behind_s)
    if by_s:
        data["faults"] = [steps.moved(step, by_s) for step in data.get("faults", [])]
        for spec in data["load"].get("consumers", {}).values():
            if _seconds(spec.get("joins_after", 0)):
                spec["joins_after"] = seconds_text(_seconds(spec["joins_after"]) + by_s)
    return data


def _seconds(value: Any) -> float:
    read = parse_seconds(value)
    assert isinstance(read, int | float)
    return float(read)


def _write_out(spec: Part, data: Document) -> None:
    """Write into the data of a part what it leaves to defaults of its sizes, and durations as
    people do."""
    for key, about in type(spec).model_fields.items():
        value, least = getattr(spec, key), SIZES.get((type(spec), key), math.inf)
        # a rate may be left to the machine
        is_more = isinstance(value, int | float) and value > least
        if is_more or (type(spec), key) == (LoadSpec, "duration"):
            data[key] = value
        if key in data and any(
            getattr(mark, "func", None) is parse_seconds for mark in about.metadata
        ):
            data[key] = seconds_text(value)
        if isinstance(value, Part):
            _write_out(value, part := data.get(key, {}))
            if part:
                data[key] = part
        elif isinstance(value, dict):
            for name, each in value.items():
                if isinstance(each, Part):
                    _write_out(each, data.setdefault(key, {}).setdefault(name, {}))
