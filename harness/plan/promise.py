"""What a promise is made of, whatever the system: settings in force, and the weakest of several answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness.errors import ScenarioError
from harness.plan.model import (
    ConsumerPromise,
    PromisePlan,
    TopicPlan,
)
from harness.scenario.model import RequireSpec

#: Added to the client's own deadline before an open call counts as hanging.
CALL_SLACK_S: Final = 10.0
TRUE: Final = frozenset({"true", "t", "1", "yes"})

Options = Mapping[str, str]
Delivery = Literal["durable", "leader", "none"]
_STRENGTH: Final[tuple[Delivery, ...]] = ("none", "leader", "durable")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, and how to say where it comes from."""

    value: str
    text: str
    given: bool

    @property
    def is_true(self) -> bool:
        return self.value.lower() in TRUE


@dataclass(frozen=True, slots=True)
class Dialect:
    """Option names and defaults of one client library (of one version), by our neutral names."""

    client: str
    names: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, str]

    def setting(self, options: Options, name: str) -> Setting:
        """What is in force for one of our names."""
        for option in self.names[name]:
            if option in options:
                value = options[option].strip()
                return Setting(value, f"{option}={value}", given=True)
        option, value = self.names[name][0], self.defaults[name]
        return Setting(value, f"{option}={value} (default of {self.client})", given=False)


@dataclass(frozen=True, slots=True)
class Ground:
    """What a client's settings stand on: the topics it uses and the brokers' settings."""

    topics: Sequence[TopicPlan]
    broker_config: Mapping[str, str]
    topology: str = ""


class ProducerSettings(ABC):
    """A producer's options read through its library's names and defaults.

    The constructor of each system raises ScenarioError: a value the library refuses, or settings that
    contradict each other.
    """

    @abstractmethod
    def delivery(self, topic: TopicPlan, ground: Ground) -> tuple[Delivery, str]: ...
    @abstractmethod
    def order(self, ground: Ground) -> tuple[bool, str]: ...
    @abstractmethod
    def dedup(self, ground: Ground) -> tuple[bool, str]: ...
    @abstractmethod
    def call_deadline_s(self, unbounded_s: float) -> float:
        """Seconds after which an open send hangs: the client's own limit and some slack.

        ``unbounded_s`` stands in for a client told never to give up.
        """

    def promise(self, ground: Ground, require: RequireSpec) -> PromisePlan:
        """The promise over all topics (the weakest decides)."""
        delivery, why_delivery = _weakest([self.delivery(topic, ground) for topic in ground.topics])
        order, why_order = self.order(ground)
        dedup, why_dedup = self.dedup(ground)
        return PromisePlan(
            delivery=delivery,
            order=order,
            dedup=dedup,
            because={"delivery": why_delivery, "order": why_order, "dedup": why_dedup},
            required={
                "delivery": "durable" if require.delivery == "durable" else None,
                "order": True if require.order == "lane" else None,
                "dedup": True if require.dedup == "once" else None,
            },
        )


@dataclass(frozen=True, slots=True)
class Consuming:
    """What a consumer promise is read from."""

    client: str
    version: str
    options: Options
    broker_config: Mapping[str, str]
    settle: str
    #: Clients and options of the producers whose messages it is given.
    producers: Sequence[tuple[str, Options]] = ()


ReadProducer = Callable[[str, str, Options], ProducerSettings]
ReadConsumer = Callable[[Consuming], ConsumerPromise]


def number(setting: Setting) -> int:
    """The setting as a whole number.

    Raises:
        ScenarioError: it is none.
    """
    try:
        return int(setting.value)
    except ValueError:
        raise ScenarioError(f"{setting.text}: must be a whole number") from None


def version_of(text: str) -> tuple[int, ...]:
    """``3.0.1`` -> (3, 0, 1), for comparing; empty = newer than any."""
    digits = [part for part in text.removeprefix("v").replace("-", ".").split(".") if part.isdigit()]
    return tuple(int(part) for part in digits) if digits else (1 << 30,)


def _weakest(found: list[tuple[Delivery, str]]) -> tuple[Delivery, str]:
    return min(found, key=lambda pair: _STRENGTH.index(pair[0]))
