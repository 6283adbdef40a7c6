"""Keys of a fault step: the schedule that every kind has, and bases for the keys that a kind adds.

    {fault: kill, target: leader-of:orders, at: 10s, for: 5s}
    {fault: leader-move, topic: orders, partitions: 12, every: 5s, jitter: 1s, from: 5s, until: 40s}
    {fault: leader-move, topic: orders, at: 20s, storm: {times: 3, gap: [20ms, 200ms]}}

Times are relative to the start of load.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Protocol, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo

from harness.durations import Seconds
from harness.rundir import Document
from harness.sizes import Size, in_units
from harness.systems import DEFAULT

_PERCENT: Final = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*%\s*$")


def parse_share(value: object) -> float:
    """``10%`` or ``0.1`` -> 0.1.

    Raises:
        ValueError: it is not a share, or not more than 0 and at most 1.
    """
    if isinstance(value, str) and (match := _PERCENT.match(value)):
        share = float(match[1]) / 100
    elif isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    else:
        raise ValueError("must be a share such as 10% or 0.1")
    if not 0 < share <= 1:
        raise ValueError("must be more than 0 and at most 1 (100%)")
    return share


#: A share as people write it.
Share = Annotated[
    float,
    BeforeValidator(parse_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "string", "pattern": _PERCENT.pattern},
            ]
        }
    ),
]


class InventoryTopic(Protocol):
    """A topic as steps are checked against it; a plan's topics have these attributes."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def replication(self) -> int: ...
    @property
    def grows_to(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Inventory:
    """Names that a step may use."""

    topics: tuple[InventoryTopic, ...]
    nodes: tuple[str, ...]
    #: Node -> what it is (broker, bookie ...), where the system has several kinds.
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Producer or consumer -> why its process must not be ended, empty = it may; none = unknown.
    clients: Mapping[str, str] = field(default_factory=dict)
    #: ``group:NAME`` and ``transactions:NAME`` -> its names at the brokers; none = unknown.
    coordinated: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Producer or consumer -> why no fault can set its clock; those that are not named have one to
    #: set.
    clockless: Mapping[str, str] = field(default_factory=dict)
    #: Client -> producer, consumer or pipeline: what its process is; none = unknown.
    client_roles: Mapping[str, str] = field(default_factory=dict)
    #: Application -> names of the instances that the plan starts.
    applications: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Applications whose outputs are requests to an endpoint of the run.
    output_endpoints: Collection[str] = ()
    #: Name in `harness.systems`.
    system: str = DEFAULT.name

    def role_names(self) -> list[str]:
        return sorted({role for roles in self.roles.values() for role in roles})

    def topic(self, name: str) -> InventoryTopic | None:
        return next((topic for topic in self.topics if topic.name == name), None)


def inventory_of(
    topics: Iterable[InventoryTopic],
    nodes: Sequence[str] | Mapping[str, Sequence[str]],
    **more: Any,
) -> Inventory:
    """Make an inventory of what is known.

    Args:
        topics: the topics of a plan, or `TopicSettings`.
        nodes: names of the cluster's nodes, or name -> its roles.
        more: further attributes of `Inventory`.
    """
    roles = nodes if isinstance(nodes, Mapping) else {}
    return Inventory(topics=tuple(topics), nodes=tuple(sorted(nodes)), roles=roles, **more)


class Params(BaseModel):
    """Base of a kind's parameters: frozen, unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def document(self) -> Document:
        """Every key as plain JSON: what a replay reads again."""
        return self.model_dump(mode="json", by_alias=True)

    def in_words(self, besides: Collection[str]) -> list[str]:
        """``delay 100 ms``, ``way in``: every key but those said otherwise, and those that are
        off."""
        made = []
        for name, field_ in type(self).model_fields.items():
            value = getattr(self, name)
            if name in besides or value in (None, "", False, 0) or value == {}:
                continue
            values = value if isinstance(value, tuple) else (value,)
            said = " to ".join(_value_words(each, field_) for each in values if each is not True)
            made.append("together with others" if name == "together" else f"{name} {said}".rstrip())
        return made


def _value_words(value: object, of_key: FieldInfo) -> str:
    """A value with its unit."""
    units = [
        *of_key.metadata,
        *(part for each in get_args(of_key.annotation) for part in get_args(each)),
    ]
    if _READS_SIZE in units:
        return in_units(float(str(value)))
    if _READS_SECONDS in units:
        seconds = float(str(value))
        return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"
    return str(value)


_READS_SIZE, _READS_SECONDS = get_args(Size)[1], get_args(Seconds)[1]


class FiringSeries(Params):
    """Several firings in quick succession, each ``gap`` (random within the bounds) after the one
    before."""

    times: int = Field(ge=2, le=1000, description="firings in a row")
    gap: tuple[Seconds, Seconds] = Field(
        description="shortest and longest time between two firings"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.gap[0] > self.gap[1]:
            raise ValueError("gap: the shortest comes first, such as [20ms, 200ms]")
        return self


class FaultSchedule(Params):
    """When a step fires."""

    at: Seconds | None = Field(
        None, description="injects the fault once, this long after the start of the load"
    )
    every: Seconds | None = Field(
        None,
        gt=0,
        description="injects the fault repeatedly, with this interval, from `from` until `until`",
    )
    jitter: Seconds = Field(
        0.0, description="each repetition of `every` is delayed by a random time up to this"
    )
    from_: Seconds | None = Field(
        None, alias="from", description="time of the first repetition of `every`; default: `every`"
    )
    until: Seconds | None = Field(
        None,
        description=(
            "no repetition of `every` begins after this time; default: as late as the fault still"
            " ends under load"
        ),
    )
    storm: FiringSeries | None = Field(
        None, description="each repetition becomes several in quick succession"
    )
    wait: Seconds = Field(
        0.0,
        description=(
            "if the fault cannot begin (another node is still away), tries for this long before "
            "it is skipped"
        ),
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.at is None) == (self.every is None):
            raise ValueError("needs either `at` or `every`")
        if self.every is None:
            for key, value in (
                ("jitter", self.jitter),
                ("from", self.from_),
                ("until", self.until),
            ):
                if value:
                    raise ValueError(f"`{key}` goes with `every`, not with `at`")
        elif self.jitter >= self.every:
            raise ValueError(
                f"jitter ({self.jitter:g} s) must be shorter than every ({self.every:g} s)"
            )
        return self


class NodeParams(Params):
    """Keys of a fault that takes nodes away."""

    target: str = Field(
        "random",
        description="a node, several (`kafka-1, kafka-2`), `random` (a broker), `leader-of:TOPIC` or "
        "`owner-of:TOPIC`, `leader-of:TOPIC-PARTITION`, the same with `follower-of:` or `replica-of:`, "
        "`controller` (Pulsar: the leader broker), `coordinator-of:group:NAME` or "
        "`coordinator-of:transactions:PRODUCER` (Kafka), "
        "`role:bookie` (one of a role) or `all` (brokers)",
    )
    together: bool = Field(
        False,
        description="allows the fault while another node is away; otherwise it is skipped then",
    )


class OneTopicParams(Params):
    """Keys of a fault on one topic."""

    topic: str = Field(
        "", description="a topic of the scenario; may be left out if there is only one"
    )


class TopicParams(OneTopicParams):
    """Keys of a fault on the partitions of one topic."""

    partitions: int | None = Field(
        None, ge=1, description="number of partitions, chosen at random; default: all"
    )


def keys_of(*models: type[Params]) -> list[str]:
    """The keys as the user writes them."""
    return [field.alias or name for model in models for name, field in model.model_fields.items()]


def names(values: Iterable[str]) -> str:
    """For messages: a, b, c."""
    return ", ".join(values) or "none"
