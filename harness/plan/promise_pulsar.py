"""What the settings of a Pulsar client promise.

* **delivery** ``durable``: a broker acknowledges when the ack quorum of bookies has the entry in its
  journal, on disk (``journalSyncData``, the default); what dies in a fault is a process, never a disk.
* **order**: kept for one producer and topic, through reconnects too: the client re-sends what was not
  acknowledged, in order, before anything new.
* **dedup**: only where the broker compares sequence ids (``brokerDeduplicationEnabled``, PIP-6); without it a
  block re-sent after a reconnect may be stored twice.

A consumer's promise follows from its subscription type; the time after which an unsettled message comes
again from its ack timeout, counted from the hand-over to the application (PR 18911).

Defaults: ProducerConfigurationData and ConsumerConfigurationData of the Java client, keyword defaults of
the Python one; broker.conf of 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from harness.errors import ScenarioError
from harness.plan.model import ConsumerPromise, TopicPlan
from harness.plan.promise import (
    CALL_SLACK_S,
    TRUE,
    Consuming,
    Delivery,
    Dialect,
    Ground,
    Options,
    ProducerSettings,
    number,
    version_of,
)
from harness.systems.pulsar import quorum

JAVA: Final = Dialect(
    client="pulsar-client-java",
    names={
        "timeout_ms": ("sendTimeoutMs",),
        "batching": ("batchingEnabled",),
        "batcher": ("batcherBuilder",),
        "subscription": ("subscriptionType",),
        "ack_timeout_ms": ("ackTimeoutMillis",),
        "ack_receipt": ("ackReceiptEnabled",),
        "batch_index_ack": ("batchIndexAckEnabled",),
    },
    defaults={
        "timeout_ms": "30000",
        "batching": "true",
        "batcher": "DEFAULT",
        "subscription": "Exclusive",
        "ack_timeout_ms": "0",
        "ack_receipt": "false",
        "batch_index_ack": "false",
    },
)
PYTHON: Final = Dialect(
    client="pulsar-client",
    names={
        "timeout_ms": ("send_timeout_millis",),
        "batching": ("batching_enabled",),
        "batcher": ("batching_type",),
        "subscription": ("consumer_type",),
        "ack_timeout_ms": ("unacked_messages_timeout_ms",),
        "ack_receipt": ("(no ack receipts)",),
        "batch_index_ack": ("batch_index_ack_enabled",),
    },
    defaults={
        "timeout_ms": "30000",
        "batching": "false",
        "batcher": "Default",
        "subscription": "Exclusive",
        "ack_timeout_ms": "0",
        "ack_receipt": "false",
        "batch_index_ack": "false",
    },
)
_DIALECTS: Final = {dialect.client: dialect for dialect in (JAVA, PYTHON)}
CLIENTS: Final = tuple(_DIALECTS)

Subscription = Literal["exclusive", "failover", "shared", "key_shared"]
SUBSCRIPTIONS: Final[Mapping[str, Subscription]] = {
    "exclusive": "exclusive",
    "failover": "failover",
    "shared": "shared",
    "key_shared": "key_shared",
    "keyshared": "key_shared",
}
_ORDER: Final[Mapping[Subscription, Literal["stream", "key", "none"]]] = {
    "exclusive": "stream",
    "failover": "stream",
    "shared": "none",
    "key_shared": "key",
}
#: With a dead letter policy and no ack timeout, Java clients before 3.0.0 set one of their own (PR 19486).
_DEAD_LETTER_ACK_TIMEOUT_S: Final = 30.0


class PulsarProducerSettings(ProducerSettings):
    def __init__(self, client: str, version: str, options: Options) -> None:
        dialect = _DIALECTS[client]
        self._timeout = dialect.setting(options, "timeout_ms")
        if number(self._timeout) < 0:
            raise ScenarioError(f"{self._timeout.text}: must be 0 (never) or more")

    def call_deadline_s(self, unbounded_s: float) -> float:
        return (number(self._timeout) / 1000.0 or unbounded_s) + CALL_SLACK_S

    def delivery(self, topic: TopicPlan, ground: Ground) -> tuple[Delivery, str]:
        copies = quorum(ground.broker_config, ground.topology, "AckQuorum")
        return "durable", f"acknowledged from the journal of {copies} bookie{'s' if copies > 1 else ''}"

    def order(self, ground: Ground) -> tuple[bool, str]:
        return True, "one producer and topic: what was not acknowledged is sent again, in order"

    def dedup(self, ground: Ground) -> tuple[bool, str]:
        if ground.broker_config.get("brokerDeduplicationEnabled", "false").lower() in TRUE:
            return True, "brokerDeduplicationEnabled=true"
        return (
            False,
            "brokerDeduplicationEnabled=false: what is sent again after a reconnect may be stored twice",
        )


def read_consumer(consuming: Consuming) -> ConsumerPromise:
    """From subscription type, ack timeout and what an acknowledgement means.

    Raises:
        ScenarioError: no such subscription type, or a settlement it does not have.
    """
    dialect, options = _DIALECTS[consuming.client], consuming.options
    subscription = dialect.setting(options, "subscription")
    kind = SUBSCRIPTIONS.get(subscription.value.rpartition(".")[2].lower())
    if kind is None:
        raise ScenarioError(f"{subscription.text}: must be Exclusive, Failover, Shared or Key_Shared")
    if consuming.settle == "cumulative" and kind in {"shared", "key_shared"}:
        raise ScenarioError(
            f"{subscription.text}: has no cumulative acknowledgement",
            hint="settle: ack, or an Exclusive or Failover subscription",
        )
    order, why_order = _order_of(kind, subscription.text, consuming.producers)
    ack_timeout_s, why_timeout = _ack_timeout(consuming, dialect)
    receipt = dialect.setting(options, "ack_receipt")
    batch = dialect.setting(options, "batch_index_ack")
    at_broker = consuming.broker_config.get("acknowledgmentAtBatchIndexLevelEnabled", "false").lower()
    return ConsumerPromise(
        subscription=kind,
        order=order,
        ack_timeout_s=ack_timeout_s,
        acks_confirmed=receipt.is_true,
        batch_index_acks=batch.is_true and at_broker in TRUE,
        because={
            "order": why_order,
            "ack_timeout": why_timeout,
            "ack": receipt.text if receipt.given else f"{consuming.client} answers without asking the broker",
            "batch_index_acks": f"{batch.text}, acknowledgmentAtBatchIndexLevelEnabled={at_broker}",
        },
    )


def _order_of(
    kind: Subscription, text: str, producers: Sequence[tuple[str, Options]]
) -> tuple[Literal["stream", "key", "none"], str]:
    """Key_Shared gives a batch to one consumer whole: it keeps a key's order if no batch mixes keys."""
    if kind == "key_shared":
        for client, options in producers:
            dialect = _DIALECTS[client]
            batching, batcher = dialect.setting(options, "batching"), dialect.setting(options, "batcher")
            if batching.is_true and "key" not in batcher.value.lower():
                return "none", f"{text}, but {batching.text} and {batcher.text}: a batch mixes keys"
    return _ORDER[kind], text


def _ack_timeout(consuming: Consuming, dialect: Dialect) -> tuple[float, str]:
    setting = dialect.setting(consuming.options, "ack_timeout_ms")
    timeout_s = 0.0 if setting.value.lower() in {"", "none"} else number(setting) / 1000.0
    dead_letters = any(option.startswith("deadLetterPolicy") for option in consuming.options)
    if not timeout_s and dead_letters and version_of(consuming.version) < (3,):
        return _DEAD_LETTER_ACK_TIMEOUT_S, "30 s with a dead letter policy before 3.0.0"
    return timeout_s, setting.text
