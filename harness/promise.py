"""What a producer's settings promise, in neutral words, and how long one send may take.

A finding is a violation only against a promise. It follows from the client's options *and defaults* (they
differ between libraries), the topic and the broker settings:

* **delivery** ``durable``: ``acks=all`` with at least two in-sync replicas demanded and no unclean
  election; otherwise an acknowledgement stands for the ``leader`` alone, or (``acks=0``) for nothing.
* **order** and **dedup**: the idempotent producer (KIP-98) keeps both through retries. Without it, retries
  with several requests in flight reorder, and any retry may store twice.

Defaults: librdkafka CONFIGURATION.md; kafka-python 3 docstring of `KafkaProducer` (KIP-679).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from harness.errors import ScenarioError
from harness.plan import PromisePlan, TopicPlan
from harness.scenario import RequireSpec

#: What compose/kafka's template gives a topic that says nothing.
BROKER_DEFAULTS: Final = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
#: Added to the client's own deadline before an open call counts as hanging.
CALL_SLACK_S: Final = 10.0
#: Kafka takes no other number (the protocol's required acks).
_ACKS: Final = {"all": "all", "-1": "all", "1": "1", "0": "0"}
_TRUE: Final = frozenset({"true", "t", "1"})
_MAX_IDEMPOTENT_IN_FLIGHT: Final = 5

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Option names and defaults of one client library, by our neutral names.

    ``explicit_idempotence``: conflicting settings are refused by the client only when idempotence was
    asked for in so many words; a default idempotence is quietly dropped (kafka-python, Java).
    """

    client: str
    names: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, str]


CONFLUENT: Final = Dialect(
    client="confluent-kafka",
    names={
        "acks": ("acks", "request.required.acks"),
        "idempotence": ("enable.idempotence",),
        "in_flight": ("max.in.flight.requests.per.connection", "max.in.flight"),
        "retries": ("retries", "message.send.max.retries"),
        "timeout_ms": ("message.timeout.ms", "delivery.timeout.ms"),
    },
    defaults={
        "acks": "all",
        "idempotence": "false",
        "in_flight": "1000000",
        "retries": "2147483647",
        "timeout_ms": "300000",
    },
)
KAFKA_PYTHON: Final = Dialect(
    client="kafka-python",
    names={
        "acks": ("acks",),
        "idempotence": ("enable_idempotence",),
        "in_flight": ("max_in_flight_requests_per_connection",),
        "retries": ("retries",),
        "timeout_ms": ("delivery_timeout_ms",),
    },
    defaults={
        "acks": "all",
        "idempotence": "true",
        "in_flight": "5",
        "retries": "2147483647",
        "timeout_ms": "120000",
    },
)
DIALECTS: Final = {dialect.client: dialect for dialect in (CONFLUENT, KAFKA_PYTHON)}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, and how to say where it comes from."""

    value: str
    text: str
    given: bool


class ProducerSettings:
    """A producer's options read through its library's names and defaults.

    Raises:
        ScenarioError: no dialect for the client, a value the library refuses, or contradicting settings.
    """

    def __init__(self, client: str, options: Options) -> None:
        if client not in DIALECTS:
            raise ScenarioError(
                f"client {client!r} has no promise table",
                hint=f"known: {', '.join(DIALECTS)} (harness/promise.py)",
            )
        self._dialect = DIALECTS[client]
        self._options = options
        acks = self._setting("acks")
        if acks.value.lower() not in _ACKS:
            raise ScenarioError(f"{acks.text}: Kafka takes all, -1, 1 or 0")
        self.acks = Setting(_ACKS[acks.value.lower()], acks.text, acks.given)
        self.in_flight = self._setting("in_flight")
        self.retries = self._setting("retries")
        self.idempotence = self._idempotence()

    def _setting(self, name: str) -> Setting:
        for option in self._dialect.names[name]:
            if option in self._options:
                value = self._options[option].strip()
                return Setting(value, f"{option}={value}", given=True)
        option = self._dialect.names[name][0]
        value = self._dialect.defaults[name]
        return Setting(value, f"{option}={value} (default of {self._dialect.client})", given=False)

    def _number(self, setting: Setting) -> int:
        try:
            return int(setting.value)
        except ValueError:
            raise ScenarioError(f"{setting.text}: must be a whole number") from None

    def _idempotence(self) -> Setting:
        asked = self._setting("idempotence")
        if asked.value.lower() not in _TRUE:
            return Setting("false", asked.text, asked.given)
        against = next((s for s in self._conflicts() if s.given), None)
        if against is None:
            return Setting("true", asked.text, asked.given)
        if asked.given:
            raise ScenarioError(
                f"{against.text} contradicts {asked.text}: the client refuses to start",
                hint="idempotence needs acks=all, retries above 0 and at most 5 requests in flight",
            )
        return Setting("false", f"idempotence dropped by {self._dialect.client}: {against.text}", given=False)

    def _conflicts(self) -> list[Setting]:
        checks = (
            (self.acks, self.acks.value != "all"),
            (self.retries, self._number(self.retries) == 0),
            (self.in_flight, self._number(self.in_flight) > _MAX_IDEMPOTENT_IN_FLIGHT),
        )
        return [setting for setting, conflicting in checks if conflicting]

    @property
    def is_idempotent(self) -> bool:
        return self.idempotence.value == "true"

    @property
    def retries_count(self) -> int:
        return self._number(self.retries)

    @property
    def in_flight_count(self) -> int:
        return self._number(self.in_flight)

    def call_deadline_s(self, unbounded_s: float) -> float:
        """Seconds after which an open send hangs: the client's own limit and some slack.

        ``unbounded_s`` stands in for a client told never to give up (timeout 0).
        """
        own_s = self._number(self._setting("timeout_ms")) / 1000.0
        return (own_s or unbounded_s) + CALL_SLACK_S


def producer_promise(
    client: str,
    options: Options,
    topics: list[TopicPlan],
    broker_config: Mapping[str, str],
    require: RequireSpec,
) -> PromisePlan:
    """The promise of a producer over all its topics (the weakest topic decides)."""
    settings = ProducerSettings(client, options)
    delivery, why_delivery = _weakest([_delivery(settings, topic, broker_config) for topic in topics])
    order, why_order = _order(settings)
    dedup, why_dedup = _dedup(settings)
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


Delivery = Literal["durable", "leader", "none"]
_STRENGTH: Final[tuple[Delivery, ...]] = ("none", "leader", "durable")


def _weakest(found: list[tuple[Delivery, str]]) -> tuple[Delivery, str]:
    strength: Callable[[tuple[Delivery, str]], int] = lambda pair: _STRENGTH.index(pair[0])  # noqa: E731
    return min(found, key=strength)


def _delivery(
    settings: ProducerSettings, topic: TopicPlan, broker_config: Mapping[str, str]
) -> tuple[Delivery, str]:
    if settings.acks.value == "0":
        return "none", settings.acks.text
    if settings.acks.value == "1":
        return "leader", settings.acks.text
    config: dict[str, Any] = {**BROKER_DEFAULTS, **broker_config, **topic.config}
    if config["unclean.leader.election.enable"].lower() == "true":
        return "leader", f"unclean.leader.election.enable=true on {topic.name}"
    in_sync = int(config["min.insync.replicas"])
    if in_sync < 2 or topic.replication < 2:
        copies = f"min.insync.replicas={in_sync}, replication={topic.replication} on {topic.name}"
        return "leader", f"{settings.acks.text}, but {copies}"
    return "durable", f"{settings.acks.text}, min.insync.replicas={in_sync}"


def _order(settings: ProducerSettings) -> tuple[bool, str]:
    if settings.is_idempotent:
        return True, settings.idempotence.text
    if settings.in_flight_count == 1:
        return True, settings.in_flight.text
    if settings.retries_count == 0:
        return True, settings.retries.text
    return False, f"{settings.idempotence.text}, {settings.in_flight.text}: a retry may overtake"


def _dedup(settings: ProducerSettings) -> tuple[bool, str]:
    if settings.is_idempotent:
        return True, settings.idempotence.text
    if settings.retries_count == 0:
        return True, settings.retries.text
    return False, f"{settings.idempotence.text}: a retry may store twice"
