"""What the settings of a Kafka client promise.

* **delivery** ``durable``: ``acks=all`` with at least two in-sync replicas demanded and no unclean
  election; otherwise an acknowledgement stands for the ``leader`` alone, or (``acks=0``) for nothing.
* **order** and **dedup**: the idempotent producer (KIP-98) keeps both through retries. Without it, retries
  with several requests in flight reorder, and any retry may store twice.

Defaults: librdkafka CONFIGURATION.md; docstrings of kafka-python's `KafkaProducer` (KIP-679 since 3.0, no
retries before 2.2); the Java client's ProducerConfig (KIP-679: acks=all and idempotence since 3.0;
KAFKA-13598: the latter in effect from 3.0.1 and 3.1.1 only); sarama's NewConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from harness.durations import parse_seconds
from harness.errors import ScenarioError
from harness.plan.model import ConsumerPromise, TopicPlan
from harness.plan.promise import (
    CALL_SLACK_S,
    Consuming,
    Delivery,
    Dialect,
    Ground,
    Options,
    ProducerSettings,
    Setting,
    number,
    version_of,
)

#: What compose/kafka's template gives a topic that says nothing.
BROKER_DEFAULTS: Final = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
#: Kafka takes no other number (the protocol's required acks); sarama's names for them.
_ACKS: Final = {"all": "all", "-1": "all", "1": "1", "0": "0"}
_SARAMA_ACKS: Final = {"waitforall": "all", "waitforlocal": "1", "noresponse": "0"}
_MAX_IDEMPOTENT_IN_FLIGHT: Final = 5

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
JAVA: Final = Dialect(
    client="kafka-clients",
    names={
        "acks": ("acks",),
        "idempotence": ("enable.idempotence",),
        "in_flight": ("max.in.flight.requests.per.connection",),
        "retries": ("retries",),
        "timeout_ms": ("delivery.timeout.ms",),
    },
    defaults={
        "acks": "all",
        "idempotence": "true",
        "in_flight": "5",
        "retries": "2147483647",
        "timeout_ms": "120000",
    },
)
SARAMA: Final = Dialect(
    client="sarama",
    names={
        "acks": ("Producer.RequiredAcks",),
        "idempotence": ("Producer.Idempotent",),
        "in_flight": ("Net.MaxOpenRequests",),
        "retries": ("Producer.Retry.Max",),
        "backoff": ("Producer.Retry.Backoff",),
        "read_timeout": ("Net.ReadTimeout",),
    },
    defaults={
        "acks": "1",
        "idempotence": "false",
        "in_flight": "5",
        "retries": "3",
        "backoff": "100ms",
        "read_timeout": "30s",
    },
)
_DIALECTS: Final = {dialect.client: dialect for dialect in (CONFLUENT, KAFKA_PYTHON, JAVA, SARAMA)}
CLIENTS: Final = tuple(_DIALECTS)


def dialect_of(client: str, version: str) -> Dialect:
    """Names and defaults of a library at a version; empty = the newest."""
    dialect, asked = _DIALECTS[client], version_of(version)
    older: dict[str, str] = {}
    if client == "kafka-python" and asked < (3,):
        older = {"acks": "1", "idempotence": "false"}
        if asked < (2, 2):
            older |= {"retries": "0", "timeout_ms": "30000"}
    if client != "kafka-clients":
        return replace(dialect, defaults={**dialect.defaults, **older}) if older else dialect
    if asked < (3, 0, 1) or (3, 1, 0) <= asked < (3, 1, 1):
        older["idempotence"] = "false"
    if asked < (3,):
        older["acks"] = "1"
    if asked < (2, 1):  # KIP-91: no delivery timeout, and no retries by default
        older |= {"retries": "0", "timeout_ms": "30000"}
    return replace(dialect, defaults={**dialect.defaults, **older})


class KafkaProducerSettings(ProducerSettings):
    """Conflicting settings are refused by the client when idempotence was asked for in so many words; a
    default idempotence is quietly dropped (kafka-python, Java)."""

    def __init__(self, client: str, version: str, options: Options) -> None:
        self._dialect = dialect_of(client, version)
        self._options = options
        self.acks = self._acks()
        self.in_flight = self._setting("in_flight")
        self.retries = self._setting("retries")
        self.idempotence = self._idempotence()

    def _setting(self, name: str) -> Setting:
        return self._dialect.setting(self._options, name)

    def _acks(self) -> Setting:
        acks, known = self._setting("acks"), _ACKS
        if self._dialect is SARAMA:
            known = _ACKS | _SARAMA_ACKS
        if acks.value.lower() not in known:
            raise ScenarioError(f"{acks.text}: Kafka takes all, -1, 1 or 0")
        return replace(acks, value=known[acks.value.lower()])

    def _idempotence(self) -> Setting:
        asked = self._setting("idempotence")
        if not asked.is_true:
            return replace(asked, value="false")
        # sarama checks its own defaults too: each of them has to be changed by hand
        strict = self._dialect is SARAMA
        against = next((s for s in self._conflicts() if s.given or strict), None)
        if against is None:
            return replace(asked, value="true")
        if asked.given:
            most = 1 if strict else _MAX_IDEMPOTENT_IN_FLIGHT
            raise ScenarioError(
                f"{against.text} contradicts {asked.text}: the client refuses to start",
                hint=f"idempotence needs acks=all, retries above 0 and at most {most} requests in flight",
            )
        return Setting("false", f"idempotence dropped by {self._dialect.client}: {against.text}", given=False)

    def _conflicts(self) -> list[Setting]:
        most = 1 if self._dialect is SARAMA else _MAX_IDEMPOTENT_IN_FLIGHT
        checks = (
            (self.acks, self.acks.value != "all"),
            (self.retries, number(self.retries) == 0),
            (self.in_flight, number(self.in_flight) > most),
        )
        return [setting for setting, conflicting in checks if conflicting]

    @property
    def is_idempotent(self) -> bool:
        return self.idempotence.value == "true"

    def call_deadline_s(self, unbounded_s: float) -> float:
        if self._dialect is SARAMA:
            # No limit of its own: each of its attempts ends with the connection's read timeout.
            attempts = number(self.retries) + 1
            waits_s = self._seconds("read_timeout") + self._seconds("backoff")
            return attempts * waits_s + CALL_SLACK_S
        own_s = number(self._setting("timeout_ms")) / 1000.0
        return (own_s or unbounded_s) + CALL_SLACK_S

    def _seconds(self, name: str) -> float:
        setting = self._setting(name)
        try:
            return cast("float", parse_seconds(setting.value))
        except ValueError as error:
            raise ScenarioError(f"{setting.text}: {error}") from error

    def delivery(self, topic: TopicPlan, ground: Ground) -> tuple[Delivery, str]:
        if self.acks.value == "0":
            return "none", self.acks.text
        if self.acks.value == "1":
            return "leader", self.acks.text
        config: dict[str, Any] = {**BROKER_DEFAULTS, **ground.broker_config, **topic.config}
        if config["unclean.leader.election.enable"].lower() == "true":
            return "leader", f"unclean.leader.election.enable=true on {topic.name}"
        in_sync = int(config["min.insync.replicas"])
        if in_sync < 2 or topic.replication < 2:
            copies = f"min.insync.replicas={in_sync}, replication={topic.replication} on {topic.name}"
            return "leader", f"{self.acks.text}, but {copies}"
        return "durable", f"{self.acks.text}, min.insync.replicas={in_sync}"

    def order(self, ground: Ground) -> tuple[bool, str]:
        if self.is_idempotent:
            return True, self.idempotence.text
        if number(self.in_flight) == 1:
            return True, self.in_flight.text
        if number(self.retries) == 0:
            return True, self.retries.text
        return False, f"{self.idempotence.text}, {self.in_flight.text}: a retry may overtake"

    def dedup(self, ground: Ground) -> tuple[bool, str]:
        if self.is_idempotent:
            return True, self.idempotence.text
        if number(self.retries) == 0:
            return True, self.retries.text
        return False, f"{self.idempotence.text}: a retry may store twice"


def read_consumer(consuming: Consuming) -> ConsumerPromise:
    """A member of a group: every partition in the order of its log, again from the committed position."""
    because: Mapping[str, str] = {
        "order": "a partition has one member at a time, which reads it in order",
        "ack": "the broker confirms a commit",
    }
    return ConsumerPromise(subscription="group", order="stream", because=dict(because))
