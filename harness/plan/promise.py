"""Building blocks of a promise, for every system: settings in force, and the weakest of several
answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from harness.contracts.plan import ConsumerPromise, PromisePlan, TopicPlan
from harness.durations import parse_seconds
from harness.errors import ScenarioError, did_you_mean
from harness.scenario.model import RequireSpec
from harness.workers.facts import Implied, SettingFacts, TimeFacts
from harness.workers.spec import FILE, Role, WorkerSpec

#: Added to the client's own deadline before an open call counts as hanging.
CALL_SLACK_S: Final = 10.0
TRUE: Final = frozenset({"true", "t", "1", "yes"})
_NEVER: Final = frozenset({"", "none", "0"})

Options = Mapping[str, str]
Delivery = Literal["durable", "leader", "none", "unknown"]
_STRENGTH: Final[tuple[Delivery, ...]] = ("none", "leader", "unknown", "durable")


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, and how to say where it comes from. ``given``: by the scenario or the
    worker."""

    value: str
    text: str
    given: bool

    @property
    def is_true(self) -> bool:
        """Whether the value is one of the spellings of true, in any case."""
        return self.value.lower() in TRUE


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client in force, by our names: as the scenario gives them, as the worker
    sets them, or as the library has them by default at this version."""

    worker: WorkerSpec
    version: str
    options: Options
    role: Role

    def setting_of(self, name: str) -> Setting | None:
        """Return the setting in force; None if the worker.toml does not declare it."""
        facts: SettingFacts | None = getattr(self.worker.promises, name, None)
        return None if facts is None else self._in_force(name, facts)

    def is_true(self, name: str) -> bool:
        """Whether it is known to be on."""
        found = self.setting_of(name)
        return found is not None and found.is_true

    def number(self, name: str) -> int | None:
        """The setting as a whole number; None = not known.

        Raises:
            ScenarioError: it is none.
        """
        found = self.setting_of(name)
        return None if found is None else number(found)

    def codec(self) -> str:
        """How a producer compresses, and what says so, as text for people; empty = not known."""
        if self.worker.codec is None:
            return ""
        found = self._in_force("codec", self.worker.codec)
        return f"{found.value.lower() or 'none'} ({found.text})"

    def unstated(self, name: str) -> str:
        """Why something is not known, for people."""
        return f"not known: {FILE} of {self.worker.library} does not state promises.{name}"

    def seconds(self, name: str) -> float | None:
        """A time in seconds, 0 = never; None = not known.

        Raises:
            ScenarioError: no time.
        """
        facts: TimeFacts | None = getattr(self.worker.promises, name, None)
        return None if facts is None else self.seconds_of(name, facts)

    def seconds_of(self, name: str, facts: TimeFacts) -> float:
        """Return a duration like `seconds`, for facts without a name in the worker.toml."""
        found = self._in_force(name, facts)
        if found.value.lower() in _NEVER:
            return 0.0
        if facts.unit == "duration":
            try:
                return float(str(parse_seconds(found.value))) * facts.times
            except ValueError as error:
                raise ScenarioError(f"{found.text}: {error}") from error
        count = number(found)
        if count < 0:
            raise ScenarioError(f"{found.text}: must be 0 (never) or more")
        per_second = {"us": 1_000_000.0, "ms": 1_000.0}.get(facts.unit, 1.0)
        return facts.times * (count / per_second)

    def _in_force(self, name: str, facts: SettingFacts) -> Setting:
        found = self._given(facts) or self._default(name, facts)
        for implied in facts.implied:
            gives_way = not found.given or {"*", found.value.lower()}.intersection(implied.over)
            if gives_way and (why := self._why(implied)):
                found = Setting(
                    implied.value, implied.because or f"{name}={implied.value} ({why})", given=False
                )
        value = facts.values.get(found.value.lower(), found.value)
        if facts.inverse:
            value = "false" if value.lower() in TRUE else "true"
        return replace(found, value=value)

    def _given(self, facts: SettingFacts) -> Setting | None:
        for option in facts.options:
            if option in self.options:
                value = self.options[option].strip()
                if facts.words and value.lower() not in map(str.lower, facts.words):
                    near = did_you_mean(value, facts.words, label=f"{self.worker.library} takes")
                    raise ScenarioError(f"{option}={value}: {near}")
                return Setting(value, f"{option}={value}", given=True)
        own = self.worker.options.get(self.role, {})
        for option in facts.options:
            if option in own:
                return Setting(own[option], self._by_default(option, own[option]), given=True)
        return None

    def _default(self, name: str, facts: SettingFacts) -> Setting:
        version = self.version or self.worker.default_version
        fitting = (other.default for other in facts.other_defaults if other.cover(version))
        value = next(fitting, facts.default) or ""
        if not facts.options:
            return Setting(
                value, f"{name}={value} (always so in {self.worker.library})", given=False
            )
        return Setting(value, self._by_default(facts.options[0], value), given=False)

    def _by_default(self, option: str, value: str) -> str:
        return f"{option}={value} (default of {self.worker.library})"

    def _why(self, implied: Implied) -> str:
        """Return the setting that implies the value; empty if none does."""
        if not implied.cover(self.version or self.worker.default_version):
            return ""
        if implied.when:
            other = self.setting_of(implied.when)
            if other is None:
                return ""
            holds = other.value == implied.when_is if implied.when_is else other.is_true
            return f"implied by {other.text}" if holds else ""
        given = (option for option in self.options if option.startswith(implied.with_option))
        return next((f"implied by {option}" for option in given), "")


@dataclass(frozen=True, slots=True)
class PromiseContext:
    """The facts besides the client's settings on which a promise depends: the topics used, the
    brokers' settings, and whether every message is sent in a transaction.
    """

    topics: Sequence[TopicPlan]
    broker_config: Mapping[str, str]
    topology: str = ""
    transacts: bool = False


class ProducerSettings(ABC):
    """A producer's options, read through what its worker.toml says of them.

    The constructor of each system raises ScenarioError: a value the library refuses, or settings
    that contradict each other.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings

    @abstractmethod
    def delivery(self, topic: TopicPlan, context: PromiseContext) -> tuple[Delivery, str]:
        """Return what an acknowledgement promises about storage, and why."""

    @abstractmethod
    def order(self, context: PromiseContext) -> tuple[bool | None, str]:
        """Return whether order is kept, and why; None if this is not known, as in `dedup`."""

    @abstractmethod
    def dedup(self, context: PromiseContext) -> tuple[bool | None, str]:
        """Return whether the brokers remove duplicates, and why; None if this is not known."""

    def synced(self, topic: TopicPlan, context: PromiseContext) -> tuple[bool | None, str]:
        """Whether an acknowledged message is on the disks of all replicas in sync, not in their
        memory."""
        return None, "not known: what this system syncs is not stated"

    def call_deadline_s(self, unbounded_s: float) -> float:
        """Seconds after which an open send hangs: the client's own limit and some slack.

        ``unbounded_s`` is used for a client that is set never to give up, or one that does not say
        when it does.
        """
        return (self.settings.seconds("send_timeout") or unbounded_s) + CALL_SLACK_S

    @property
    def limits_calls(self) -> bool:
        """Whether the client limits the time of a send, that in which it waits for others
        included."""
        return bool(self.settings.seconds("send_timeout"))

    def promise(self, context: PromiseContext, require: RequireSpec) -> PromisePlan:
        """The promise over all topics (the weakest decides)."""
        if self.settings.worker.promises is None:
            why = f"not known: {FILE} of {self.settings.worker.library} has no [promises]"
            delivery: Delivery = "unknown"
            order = dedup = synced = None
            why_delivery = why_order = why_dedup = why_synced = why
        else:
            delivery, why_delivery = _weakest(
                [self.delivery(topic, context) for topic in context.topics]
            )
            order, why_order = self.order(context)
            dedup, why_dedup = self.dedup(context)
            synced, why_synced = min(
                (self.synced(topic, context) for topic in context.topics),
                key=lambda found: (False, None, True).index(found[0]),
            )
        return PromisePlan(
            delivery=delivery,
            order=order,
            dedup=dedup,
            synced=synced,
            because={
                "delivery": why_delivery,
                "order": why_order,
                "dedup": why_dedup,
                "synced": why_synced,
            },
            required={
                "delivery": "durable" if require.delivery == "durable" else None,
                "order": True if require.order == "lane" else None,
                "dedup": True if require.dedup == "once" else None,
                "keys": True if require.keys == "shared" else None,
            },
        )


@dataclass(frozen=True, slots=True)
class Consuming:
    """The input from which a consumer's promise is read."""

    client: str
    version: str
    options: Options
    broker_config: Mapping[str, str]
    settle: str
    #: Clients and options of the producers whose messages it is given.
    producers: Sequence[tuple[str, Options]] = ()
    #: The topics that it reads.
    topics: Sequence[TopicPlan] = ()
    #: Folders of workers besides ours (`harness.workers.known_workers`).
    folders: Sequence[str] = ()
    #: The message system that it takes from, where its worker has several; empty = its first.
    system: str = ""


ReadProducer = Callable[[ClientSettings], ProducerSettings]
ReadConsumer = Callable[[Consuming, ClientSettings, Sequence[ClientSettings]], ConsumerPromise]


def number(setting: Setting) -> int:
    """The setting as a whole number of 64 bits, the most that a client takes.

    Raises:
        ScenarioError: it is none.
    """
    try:
        value = int(setting.value)
    except ValueError:
        raise ScenarioError(f"{setting.text}: must be a whole number") from None
    if not -(2**63) <= value < 2**63:
        raise ScenarioError(f"{setting.text}: must be a whole number of 64 bits")
    return value


def _weakest(found: list[tuple[Delivery, str]]) -> tuple[Delivery, str]:
    return min(found, key=lambda pair: _STRENGTH.index(pair[0]))
