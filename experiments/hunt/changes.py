"""Changes of a scenario, drawn at random: its faults, its load, its clients. Pure.

A change need not fit: the scenario is checked as any other before it is played, and another change
is drawn if it is refused.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import faults
from faults.kit.errors import StepProblem
from harness.durations import parse_seconds
from harness.errors import BrokerstormError
from harness.rundir import Document
from harness.scenario.payload import payload_table

if TYPE_CHECKING:
    from faults.kit.params import Inventory

#: A round has at most so many faults: with more, what showed it is hard to find.
_MOST_FAULTS: Final = 6
_RATES: Final = (100, 300, 1000, 2000, 4000, 8000)
#: Half of them mix small and large messages.
_PAYLOADS: Final = (
    *(60, 1000, 10_000, 60_000),
    *(
        {"sizes": {100: f"{100 - share}%", size: f"{share}%"}}
        for size, share in ((2000, 50), (20_000, 10), (20_000, 50), (100_000, 2))
    ),
)
_PROFILES: Final = (
    None,
    {"burst": {"base": "5%", "every": 4, "lasts": 1}},
    {"steps": ["100%", "0%", "100%"]},
    {"ramp": {"from": "5%", "to": "100%"}},
)
#: More would test the disk of this machine.
_MOST_BYTES_PER_S: Final = 6_000_000
_KEYS: Final = (1, 3, 20, 1000)
_PARTITIONS: Final = (1, 2, 3, 6, 12, 32)
#: Numbers of changes of faults and of settings, of which one each is drawn, from a round that
#: showed something new to the next one.
_FEW: Final = (0, 1, 1, 2)
#: Shares of all settings that a round changes if it explores, of which one is drawn: many defects
#: need three or four settings at the same time, others the defaults. Fuzzers of compilers choose
#: features so (A. Groce and others, Swarm Testing, ISSTA 2012).
_SHARES_CHANGED: Final = (0.2, 0.4, 0.6)
#: Faults are added until a round has so many, one of these numbers: many defects need two.
_LEAST_FAULTS: Final = (2, 3, 4, 5)
#: A change is drawn so often until it fits.
_TRIES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a change can choose from.

    Attributes:
        kinds: kinds of fault that can be injected here.
        inventory: scenario -> the names that its fault steps may use.
        values: side (producers, consumers) and client -> key -> the values that its worker
            supports; None = the key is left out.
        options: side and client -> sets of options of the client that are set together.
    """

    kinds: Sequence[str]
    inventory: Callable[[Document], Inventory]
    values: Mapping[tuple[str, str], Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    options: Mapping[tuple[str, str], Sequence[Mapping[str, str]]] = field(default_factory=dict)


class Changed(NamedTuple):
    """A changed scenario.

    Attributes:
        scenario: the scenario as data.
        words: each change in words.
        drawn: kinds of fault and settings that were drawn for it.
    """

    scenario: Document
    words: list[str]
    drawn: list[str]


_Value = TypeVar("_Value")
#: Changes a scenario, and returns the change in words; an empty text if it does not fit.
_Change = Callable[[Document, "_Draw"], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """What the changes of one round are drawn from."""

    choices: Choices
    inventory: Inventory
    donors: Sequence[Document]
    rng: random.Random
    tried: Mapping[str, int]
    drawn: list[str] = field(default_factory=list)

    def least_tried(self, name: str, values: Sequence[_Value]) -> _Value:
        """Draw one of some values; one that was in few rounds is more likely."""
        keys = [f"{name} {value}" for value in values]
        weights = [1 / (1 + self.tried.get(key, 0)) ** 2 for key in keys]
        at = self.rng.choices(range(len(values)), weights)[0]
        self.drawn.append(keys[at])
        return values[at]


def changed(
    scenario: Document,
    donors: Sequence[Document],
    choices: Choices,
    rng: random.Random,
    tried: Mapping[str, int] | None = None,
    *,
    explores: bool = False,
    fits: Callable[[Document], bool] = lambda data: True,
) -> Changed | None:
    """Return a changed copy of a scenario; None if no change fits.

    Args:
        donors: scenarios that a fault may be taken from.
        tried: what was drawn -> for how many rounds; None = nothing was drawn yet.
        explores: change a share of all settings; otherwise, a few settings and faults.
        fits: whether a scenario can be played; a change after which it cannot is left out.
    """
    data, words = copy.deepcopy(scenario), list[str]()
    draw = _Draw(
        choices=choices,
        inventory=choices.inventory(scenario),
        donors=donors,
        rng=rng,
        tried=tried or {},
    )
    offered, steps = _settings(data, choices), list[_Change]()
    if explores:
        share = rng.choice(_SHARES_CHANGED)
        drawn = [each for each in offered if rng.random() < each.probability(share)]
        rng.shuffle(drawn)  # one may fit only after another one
    else:
        drawn = rng.choices(offered, [each.weight for each in offered], k=rng.choice(_FEW))
        steps = rng.choices([*_FAULT_CHANGES], [*_FAULT_CHANGES.values()], k=rng.choice(_FEW))
    for setting in drawn:
        data = _with(setting.change, data, draw, words, fits)
    if words:  # faults may be about clients and transactions that the scenario has only now
        with suppress(BrokerstormError):
            draw = replace(draw, inventory=choices.inventory(data))
    for change in steps:
        data = _with(change, data, draw, words, fits)
    for _ in range(rng.choice(_LEAST_FAULTS) - len(data.get("faults", []))):
        data = _with(_add_fault, data, draw, words, fits)
    return Changed(data, words, draw.drawn) if words and data != scenario else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """A setting that a round may change.

    Attributes:
        clients: how many clients its side has; together, they weigh as much as one.
        sets: how many sets of options change its most frequent option, this one included;
            together, they are as likely as one.
    """

    change: _Change
    clients: int = 1
    sets: int = 1

    @property
    def weight(self) -> float:
        """Return the weight of the setting if a few are drawn."""
        return 1 / (self.clients * self.sets)

    def probability(self, share: float) -> float:
        """Return how likely the setting changes if each option changes with probability
        ``share``."""
        return float(1 - (1 - share) ** (1 / self.sets))


def _settings(data: Document, choices: Choices) -> list[_Setting]:
    """Return the settings of the load, each key of each client, and each set of options of a
    client."""
    found = [_Setting(change=_change_topic), _Setting(change=_change_lanes)]
    for key, values in _LOAD.items():
        if key == "payload" and data.get("applications"):
            continue  # they read messages of this shape
        found.append(_Setting(change=partial(_change_load, key=key, values=values)))
    for side, counts in _COUNTS.items():
        clients = data["load"].get(side, {})
        for name, spec in clients.items():
            client = side, spec.get("client", "")
            for key, values in {"count": counts, **choices.values.get(client, {})}.items():
                change = partial(_change_client, side=side, name=name, key=key, values=values)
                found.append(_Setting(change=change, clients=len(clients)))
            sets = choices.options.get(client, ())
            in_sets = Counter(option for chosen in sets for option in chosen)
            for chosen in sets:
                change = partial(_change_options, side=side, name=name, chosen=chosen)
                most = max((in_sets[option] for option in chosen), default=1)
                found.append(_Setting(change=change, clients=len(clients), sets=most))
    return found


def _with(
    change: _Change,
    data: Document,
    draw: _Draw,
    words: list[str],
    fits: Callable[[Document], bool],
) -> Document:
    """Return a scenario with one more change, and add the change in words; the scenario itself if
    the change does not fit."""
    for _ in range(_TRIES):
        candidate = copy.deepcopy(data)
        if (said := change(candidate, draw)) and fits(candidate):
            words.append(said)
            return candidate
    return data


# ----- faults -------------------------------------------------------------------------------------


def _add_fault(data: Document, draw: _Draw) -> str:
    steps = data.setdefault("faults", [])
    if len(steps) >= _MOST_FAULTS or not draw.choices.kinds:
        return ""
    name = draw.least_tried("fault", draw.choices.kinds)
    try:
        step = faults.draw_step(name, draw.inventory, draw.rng, load_seconds(data))
    except StepProblem:
        return ""
    steps.append(step)
    return f"with {_step_words(step)}"


def _take_fault(data: Document, draw: _Draw) -> str:
    steps = data.setdefault("faults", [])
    offered = [
        step for donor in draw.donors for step in donor.get("faults", []) if step not in steps
    ]
    if len(steps) >= _MOST_FAULTS or not offered:
        return ""
    step = copy.deepcopy(draw.rng.choice(offered))
    steps.append(step)
    return f"with {_step_words(step)}"


def _remove_fault(data: Document, draw: _Draw) -> str:
    steps = data.get("faults", [])
    if not steps:
        return ""
    return f"without {_step_words(steps.pop(draw.rng.randrange(len(steps))))}"


def _change_fault(data: Document, draw: _Draw) -> str:
    steps = data.get("faults", [])
    if not steps:
        return ""
    at = draw.rng.randrange(len(steps))
    step = faults.change_step(steps[at], draw.inventory, draw.rng, load_seconds(data))
    if step is None:
        return ""
    steps[at] = step
    return _step_words(step)


def _bring_together(data: Document, draw: _Draw) -> str:
    """Let a fault begin shortly after another one began."""
    timed = [step for step in data.get("faults", []) if "at" in step]
    if len(timed) < 2:
        return ""
    moved, stays = draw.rng.sample(timed, 2)
    moved["at"] = round(_seconds(stays["at"]) + draw.rng.uniform(0.0, 1.5), 1)
    return f"{_step_words(moved)}, close to {stays.get('fault')}"


def _step_words(step: Document) -> str:
    named = step.get("target") or step.get("topic") or ""
    words = [
        str(step.get("fault", "mix")),
        str(named),
        f"at {_seconds(step['at']):g} s" if "at" in step else "",
    ]
    return " ".join(word for word in words if word)


# ----- load and clients ---------------------------------------------------------------------------


def _change_load(data: Document, draw: _Draw, *, key: str, values: Sequence[Any]) -> str:
    load = data["load"]
    value = draw.rng.choice(values)
    changed = {"rate": load.get("rate"), "payload": load.get("payload"), key: value}
    rate, size = changed["rate"], _mean_bytes(changed["payload"])
    if isinstance(rate, int | float) and size and rate * size > _MOST_BYTES_PER_S:
        return ""
    return _set(load, key, value, f"load.{key}")


def _mean_bytes(payload: Any) -> float:
    """Return the mean size of messages; 0 = it is not known."""
    if isinstance(payload, int | float):
        return payload
    sizes = payload_table(payload) if payload else []
    return sum(sizes) / len(sizes) if sizes else 0.0


def _change_topic(data: Document, draw: _Draw) -> str:
    name = draw.rng.choice(sorted(data["topics"]))
    topic = data["topics"][name]
    programs = data.get("applications", {}).values()
    # A program may know how many partitions there are.
    if "count" in topic or any(
        name in (each["from"], each["to"].get("topic")) for each in programs
    ):
        return ""
    return _set(topic, "partitions", draw.rng.choice(_PARTITIONS), f"topics.{name}.partitions")


def _change_lanes(data: Document, draw: _Draw) -> str:
    producers = data["load"].get("producers")
    if not producers:
        return ""
    name = draw.rng.choice(sorted(producers))
    producer = producers[name]
    if draw.rng.random() < 0.5:
        producer.pop("keys", None)
        return _set(producer, "lanes", "partition", f"producers.{name}.lanes")
    lanes = _set(producer, "lanes", "key", f"producers.{name}.lanes")
    keys = _set(producer, "keys", draw.rng.choice(_KEYS), f"producers.{name}.keys")
    return ", ".join(filter(None, (lanes, keys)))


def _change_client(
    data: Document, draw: _Draw, *, side: str, name: str, key: str, values: Sequence[Any]
) -> str:
    """Set a key of a client to another value."""
    client = data["load"][side][name]
    others = [value for value in values if value != client.get(key)]
    # A size of batches means nothing for calls of one message.
    if not others or (key == "batch" and client.get("calls") != "batch"):
        return ""
    value = draw.least_tried(f"{side} {key}", others)
    return _set(client, key, value, f"{side}.{name}.{key}")


def _change_options(
    data: Document, draw: _Draw, *, side: str, name: str, chosen: Mapping[str, str]
) -> str:
    """Set options of a client together, as its worker lists them."""
    client = data["load"][side][name]
    before = client.get("options", {})
    client["options"] = with_options(before, chosen)
    if client["options"] == before:
        return ""
    words = ", ".join(f"{option} {value}" for option, value in chosen.items() if value)
    return f"{side}.{name}.options {words}"


def with_options(before: Mapping[str, Any], chosen: Mapping[str, str]) -> dict[str, Any]:
    """Return options of a client with a set of others; an empty text removes an option."""
    changed = {**before, **chosen}
    return {name: value for name, value in changed.items() if value != "" or name not in chosen}


def _set(part: Document, key: str, value: Any, words: str) -> str:
    if part.get(key) == value:
        return ""
    if value is None:
        del part[key]
        return f"without {words}"
    part[key] = copy.deepcopy(value)
    return f"{words} {_written(value)}"


def _written(value: object) -> str:
    """A value as a scenario has it, in one line."""
    if not isinstance(value, dict):
        return str(value)
    return f"{{{', '.join(f'{key}: {_written(each)}' for key, each in value.items())}}}"


def load_seconds(data: Document) -> float:
    """Return the length of the load of a scenario."""
    return _seconds(data["load"]["duration"])


def _seconds(written: object) -> float:
    """A time of a scenario, which may be a text such as ``1s``."""
    return float(str(parse_seconds(written)))


#: Keys of the load and of clients, and the values that are drawn.
_LOAD: Final[Mapping[str, Sequence[Any]]] = {
    "rate": _RATES,
    "payload": _PAYLOADS,
    "profile": _PROFILES,
}
_COUNTS: Final[Mapping[str, Sequence[int]]] = {"producers": (1, 2, 3), "consumers": (1, 2, 3, 4)}
#: Each change of faults and its weight.
_FAULT_CHANGES: Final[Mapping[_Change, int]] = {
    _add_fault: 6,
    _take_fault: 2,
    _remove_fault: 2,
    _change_fault: 4,
    _bring_together: 3,
}
