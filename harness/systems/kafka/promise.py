"""Derives what the settings of a Kafka client promise.

* **delivery** ``durable``: ``acks=all`` with at least two in-sync replicas demanded and no unclean
  election; otherwise an acknowledgement means the ``leader`` alone, or (``acks=0``) for nothing.
* **synced**: brokers acknowledge what is in their memory, unless they flush after every batch.
* **order** and **dedup**: the idempotent producer (KIP-98) keeps both through retries. Without it,
  retries with several requests in flight reorder, and any retry may store twice. A client whose
  calls do not wait for each other (kafkajs) keeps no order through retries.

What the clients call their settings, and what they have by default, is in their worker folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from harness.contracts.plan import ConsumerPromise, TopicPlan
from harness.contracts.rows import DropLimit
from harness.errors import ScenarioError
from harness.plan.promise import (
    CALL_SLACK_S,
    ClientSettings,
    Consuming,
    Delivery,
    ProducerSettings,
    PromiseContext,
    Setting,
    number,
)
from harness.systems.kafka.worker_facts import IdempotenceFacts, KafkaFacts

#: What compose/kafka's template gives a topic that says nothing.
BROKER_DEFAULTS: Final = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
#: As clients write that they read committed data only; sarama has a number.
_COMMITTED: Final = frozenset({"read_committed", "1"})
#: https://kafka.apache.org/documentation/#producerconfigs_acks
_AS_LONG_AS: Final = (
    "Kafka's documentation of acks=all: 'the record will not be lost as long as at least one "
    "in-sync replica remains alive'"
)
#: Kafka takes no other number (the protocol's required acks).
_ACKS: Final = {"all": "all", "-1": "all", "1": "1", "0": "0"}


class KafkaProducerSettings(ProducerSettings):
    """Conflicting settings are refused by the client when idempotence was asked for in so many
    words; most clients quietly drop a default idempotence."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._facts = (
            settings.worker.promises
            if isinstance(settings.worker.promises, KafkaFacts)
            else KafkaFacts()
        )
        self.acks = self._acks()
        self.in_flight = settings.setting_of("in_flight")
        self.retries = settings.setting_of("retries")
        self.idempotence = self._idempotence()

    def _acks(self) -> Setting | None:
        acks = self.settings.setting_of("acks")
        if acks is None:
            return None
        if acks.value.lower() not in _ACKS:
            raise ScenarioError(f"{acks.text}: Kafka takes all, -1, 1 or 0")
        return replace(acks, value=_ACKS[acks.value.lower()])

    def _idempotence(self) -> Setting | None:
        asked, facts = self.settings.setting_of("idempotence"), self._facts.idempotence
        if asked is None or facts is None:
            return None
        if not asked.is_true:
            return replace(asked, value="false")
        conflicts = self._conflicts(facts)
        against = next((each for each in conflicts if each.given or facts.checks_defaults), None)
        if against is None:
            return replace(asked, value="true")
        if asked.given or facts.unasked == "refused":
            most = facts.most_in_flight
            raise ScenarioError(
                f"{against.text} contradicts {asked.text}: the client refuses to start",
                hint=f"idempotence needs acks=all, retries above 0 and at most {most} requests in flight",
            )
        client = self.settings.worker.library
        return Setting("false", f"idempotence dropped by {client}: {against.text}", given=False)

    def _conflicts(self, facts: IdempotenceFacts) -> list[Setting]:
        checks = (
            (self.acks, lambda found: found.value != "all"),
            (self.retries, lambda found: number(found) == 0),
            (self.in_flight, lambda found: number(found) > facts.most_in_flight),
        )
        return [found for found, conflicts in checks if found is not None and conflicts(found)]

    def call_deadline_s(self, unbounded_s: float) -> float:
        attempt = self._facts.each_attempt
        if not attempt or self.retries is None:
            return super().call_deadline_s(unbounded_s)
        # No limit of its own: each of its attempts ends with these times.
        attempt_s = sum(self.settings.seconds_of("each_attempt", facts) for facts in attempt)
        return (number(self.retries) + 1) * attempt_s + CALL_SLACK_S

    def delivery(self, topic: TopicPlan, context: PromiseContext) -> tuple[Delivery, str]:
        acks = self.acks
        if acks is None:
            return "unknown", self.settings.unstated("acks")
        if acks.value == "0":
            return "none", acks.text
        if acks.value == "1":
            return "leader", acks.text
        config = {**BROKER_DEFAULTS, **context.broker_config, **topic.config}
        if config["unclean.leader.election.enable"].lower() == "true":
            return "leader", f"unclean.leader.election.enable=true on {topic.name}"
        in_sync = int(config["min.insync.replicas"])
        if in_sync < 2 or topic.replication < 2:
            copies = (
                f"min.insync.replicas={in_sync}, replication={topic.replication} on {topic.name}"
            )
            return "leader", f"{acks.text}, but {copies}"
        return "durable", f"{acks.text}, min.insync.replicas={in_sync}"

    def synced(self, topic: TopicPlan, context: PromiseContext) -> tuple[bool | None, str]:
        given = {
            "log.flush.interval.messages": context.broker_config.get("log.flush.interval.messages"),
            "flush.messages": topic.config.get("flush.messages"),
        }
        key, value = next(((k, v) for k, v in reversed(given.items()) if v), ("", ""))
        if value == "1":
            return True, f"{key}=1 on {topic.name}"
        return False, f"all replicas in sync lost power; {_AS_LONG_AS}"

    def order(self, context: PromiseContext) -> tuple[bool | None, str]:
        idempotence, in_flight, retries = self.idempotence, self.in_flight, self.retries
        keeps = self._facts.idempotence is None or self._facts.idempotence.keeps_order
        if idempotence and idempotence.is_true and keeps:
            return True, idempotence.text
        if in_flight and number(in_flight) == 1 and keeps:
            return True, in_flight.text
        if retries and number(retries) == 0:
            return True, retries.text
        if idempotence and in_flight and retries:
            return False, f"{idempotence.text}, {in_flight.text}: a retry may overtake"
        return None, self._unstated(idempotence=idempotence, in_flight=in_flight, retries=retries)

    def dedup(self, context: PromiseContext) -> tuple[bool | None, str]:
        idempotence, retries = self.idempotence, self.retries
        if idempotence and idempotence.is_true:
            return True, idempotence.text
        if retries and number(retries) == 0:
            return True, retries.text
        if idempotence and retries:
            return False, f"{idempotence.text}: a retry may store twice"
        return None, self._unstated(idempotence=idempotence, retries=retries)

    def _unstated(self, **settings: Setting | None) -> str:
        return self.settings.unstated(
            next(name for name, found in settings.items() if found is None)
        )


read_producer = KafkaProducerSettings


def read_consumer(
    consuming: Consuming, settings: ClientSettings, producers: Sequence[ClientSettings]
) -> ConsumerPromise:
    """A member of a group: every partition in the order of its log, again from the committed
    position.

    Or one of a share group (KIP-932): messages one by one, to any member, again unless they were
    settled.

    Raises:
        ScenarioError: messages that a group settles by position are to be settled one by one.
    """
    group = settings.setting_of("group")
    if group is not None and group.value.lower() == "share":
        return _of_share_group(group, settings, consuming)
    if consuming.settle == "ack":
        raise ScenarioError(
            f"settle: ack needs a share group; {group.text if group else 'this client has none'}",
            hint="kafka-clients from 4.2.0 on with `options: {group.type: share}`",
        )
    isolation = settings.setting_of("isolation")
    because = {
        "order": "a partition has one member at a time, which reads it in order",
        "ack": "the broker confirms a commit",
        "isolation": isolation.text if isolation else settings.unstated("isolation"),
    }
    drops = _drops(consuming.topics)
    return ConsumerPromise(
        subscription="group",
        order="stream",
        committed_only=_is_committed(isolation),
        may_drop=_texts(drops),
        drops=drops,
        because=because | ({"drops": _texts(drops)} if drops else {}),
    )


def _texts(drops: Sequence[DropLimit]) -> str:
    return ", ".join(limit.setting for limit in drops)


def _drops(topics: Sequence[TopicPlan]) -> list[DropLimit]:
    """Retention by time, of the topics that it reads. By size none is allowed: the audit needs the
    log."""
    kept = {topic.name: topic.config.get("retention.ms", "-1") for topic in topics}
    return [
        DropLimit(setting=f"retention.ms={value} on {name}", after_s=int(value) / 1000, topic=name)
        for name, value in kept.items()
        if value.isdigit()
    ]


def _of_share_group(
    group: Setting, settings: ClientSettings, consuming: Consuming
) -> ConsumerPromise:
    """Its locks begin at the broker, so a message that comes again too early cannot be
    recognised."""
    isolation = settings.setting_of("share_isolation")
    because = {
        "order": f"{group.text}: members share partitions",
        "ack": "the broker confirms an acknowledgement",
        "isolation": isolation.text if isolation else settings.unstated("share_isolation"),
    }
    session_s = settings.seconds("share_session") or 0.0
    broker_config, drops = consuming.broker_config, _drops(consuming.topics)
    brokers_ms = broker_config.get("group.share.session.timeout.ms", "")
    limit = broker_config.get("group.share.delivery.count.limit", "5")
    return ConsumerPromise(
        subscription="shared",
        order="none",
        member_timeout_s=max(session_s, int(brokers_ms) / 1000 if brokers_ms.isdigit() else 0.0),
        committed_only=_is_committed(isolation),
        nack_delay_s=0.0,  # a released record is available at once
        max_deliveries=int(limit) if limit.isdigit() else None,
        may_drop=_texts(drops),
        drops=drops,
        because=because | ({"drops": _texts(drops)} if drops else {}),
    )


def _is_committed(isolation: Setting | None) -> bool:
    return isolation is not None and isolation.value.lower() in _COMMITTED
