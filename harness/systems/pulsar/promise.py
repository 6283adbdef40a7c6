"""Derives what the settings of a Pulsar client promise.

* **delivery** ``durable``: a broker acknowledges when the ack quorum of bookies has the entry in
  its journal.
* **synced**: a bookie syncs its journal before it answers (``journalSyncData``, the default).
* **order**: kept for one producer and topic, through reconnects too: the client re-sends what was
  not acknowledged, in order, before anything new. Not in transactions, where messages wait until
  the coordinator knows their topic and continue in no order.
* **dedup**: only where the broker compares sequence ids (``brokerDeduplicationEnabled``, PIP-6);
  without it a block re-sent after a reconnect may be stored twice.

A consumer's promise follows from its subscription type; the time after which an unsettled message
comes again from its ack timeout, counted from the hand-over to the application (PR 18911).

What the clients call their settings, and what they have by default, is in their worker folders;
broker defaults are from broker.conf of 4.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from harness.contracts.plan import ConsumerPromise, TopicPlan
from harness.contracts.rows import DropLimit
from harness.errors import ScenarioError
from harness.plan.promise import (
    TRUE,
    ClientSettings,
    Consuming,
    Delivery,
    ProducerSettings,
    PromiseContext,
    Setting,
)

_SYNCS: Final = "bookie.journalSyncData"
_UNSYNCED: Final = (
    "all bookies lost power; BookKeeper's bookkeeper.conf: "
    "'In case of power failure, the affected bookie might lose the unflushed data'"
)
#: Limits of a backlog and what their unit is in bytes, or seconds.
_QUOTAS: Final = {
    "backlogQuotaDefaultLimitBytes": 1,
    "backlogQuotaDefaultLimitGB": 1024**3,
    "backlogQuotaDefaultLimitSecond": 1,
}
_TTL: Final = "ttlDurationDefaultInSeconds"
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


class PulsarProducerSettings(ProducerSettings):
    """The promises of a producer's settings on Pulsar."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        settings.seconds("send_timeout")  # refused here if it is not a time

    def delivery(self, topic: TopicPlan, context: PromiseContext) -> tuple[Delivery, str]:
        """Return what an acknowledgement promises: in the journals of the bookies that must
        acknowledge."""
        return "durable", "acknowledged from the bookies' journals"

    def synced(self, topic: TopicPlan, context: PromiseContext) -> tuple[bool | None, str]:
        if context.broker_config.get(_SYNCS, "true").lower() in TRUE:
            return True, "bookies sync their journals before they answer (journalSyncData)"
        return False, f"{_SYNCS}=false: {_UNSYNCED}"

    def order(self, context: PromiseContext) -> tuple[bool | None, str]:
        if context.transacts:  # the client's own defect, known since 2020 and not fixed
            return (
                False,
                "the first messages of a transaction may be overtaken (apache/pulsar#8925)",
            )
        return True, "one producer and topic: what was not acknowledged is sent again, in order"

    def dedup(self, context: PromiseContext) -> tuple[bool | None, str]:
        """Return whether brokers remove duplicates, by `brokerDeduplicationEnabled`."""
        if context.broker_config.get("brokerDeduplicationEnabled", "false").lower() in TRUE:
            return True, "brokerDeduplicationEnabled=true"
        return (
            False,
            "brokerDeduplicationEnabled=false: a message sent again after a reconnect may be stored twice",
        )


read_producer = PulsarProducerSettings


def read_consumer(
    consuming: Consuming, settings: ClientSettings, producers: Sequence[ClientSettings]
) -> ConsumerPromise:
    """From subscription type, ack timeout and what an acknowledgement means.

    Raises:
        ScenarioError: no such subscription type, or a settlement it does not have.
    """
    kind, why_kind = _subscription(settings)
    if kind and consuming.settle == "cumulative" and kind in {"shared", "key_shared"}:
        raise ScenarioError(
            f"{why_kind}: has no cumulative acknowledgement",
            hint="settle: ack, or an Exclusive or Failover subscription",
        )
    order, why_order, known = _order_of(kind, why_kind, producers)
    timeout, receipt, batch = (
        settings.setting_of(name) for name in ("ack_timeout", "ack_receipt", "batch_index_ack")
    )
    at_broker = consuming.broker_config.get(
        "acknowledgmentAtBatchIndexLevelEnabled", "false"
    ).lower()
    mode = settings.setting_of("subscription_mode")
    is_durable = mode is None or mode.value.lower().rpartition(".")[2] != "nondurable"
    stated = {
        "order": why_order,
        "ack_timeout": timeout.text if timeout else "",
        "ack": _why_confirmed(consuming.client, receipt) if is_durable or not mode else mode.text,
        "batch_index_acks": f"{batch.text}, acknowledgmentAtBatchIndexLevelEnabled={at_broker}"
        if batch
        else "",
    }
    drops = _drops(consuming.broker_config)
    may_drop = ", ".join(limit.setting for limit in drops)
    settings_of = {"ack": "ack_receipt", "batch_index_acks": "batch_index_ack"}
    return ConsumerPromise(
        subscription=kind or "exclusive",
        order=order,
        ack_timeout_s=settings.seconds("ack_timeout") or 0.0,
        committed_only=True,  # whoever asks: brokers give nothing else out (PIP-31)
        durable=is_durable,
        acks_confirmed=is_durable and (receipt is None or receipt.is_true),
        batch_index_acks=batch is not None and batch.is_true and at_broker in TRUE,
        nack_delay_s=settings.seconds("nack_delay"),
        max_deliveries=_max_deliveries(settings),
        may_drop=may_drop,
        drops=drops,
        because={
            **{
                name: text or settings.unstated(settings_of.get(name, name))
                for name, text in stated.items()
            },
            **({"drops": may_drop} if may_drop else {}),
        },
        unknown=[
            name for name, text in stated.items() if not text or (name == "order" and not known)
        ],
    )


def _why_confirmed(client: str, receipt: Setting | None) -> str:
    """The setting that decides whether a confirmed acknowledgement is the broker's; empty = not
    known."""
    if receipt is None:
        return ""
    return receipt.text if receipt.given else f"{client} answers without asking the broker"


def _drops(broker_config: Mapping[str, str]) -> list[DropLimit]:
    """The settings by which brokers drop messages of a backlog, and their limits.

    A quota that evicts without a limit of size or time in the scenario has one that we do not know.
    """
    found = []
    policy = broker_config.get("backlogQuotaDefaultRetentionPolicy", "")
    if policy == "consumer_backlog_eviction":
        evicts = f"backlogQuotaDefaultRetentionPolicy={policy}"
        for name, value in _set_limits(broker_config, _QUOTAS):
            text = f"{evicts}, {name}={value}"
            amount = int(value) * _QUOTAS[name]
            is_time = name.endswith("Second")
            found.append(
                DropLimit(setting=text, after_s=amount)
                if is_time
                else DropLimit(setting=text, beyond_bytes=amount)
            )
        if not found:
            found.append(DropLimit(setting=evicts))
    for name, value in _set_limits(broker_config, {_TTL: 1}):
        found.append(DropLimit(setting=f"{name}={value}", after_s=int(value)))
    return found


def _set_limits(
    broker_config: Mapping[str, str], names: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the limits that are in force; 0 and negative numbers turn a limit off."""
    for name in names:
        value = broker_config.get(name, "0").strip()
        if value.isdigit() and int(value) > 0:
            yield name, value


def _max_deliveries(settings: ClientSettings) -> int | None:
    """How often the dead letter policy lets a message be given; 0 = no policy, None = not known."""
    redeliveries = settings.number("max_redeliver")
    if redeliveries is None:
        return None
    return redeliveries + 1 if redeliveries > 0 else 0


def _subscription(settings: ClientSettings) -> tuple[Subscription | None, str]:
    """Its type and where that comes from; None = not known."""
    found = settings.setting_of("subscription")
    if found is None:
        return None, settings.unstated("subscription")
    kind = SUBSCRIPTIONS.get(found.value.rpartition(".")[2].lower())
    if kind is None:
        raise ScenarioError(f"{found.text}: must be Exclusive, Failover, Shared or Key_Shared")
    return kind, found.text


def _order_of(
    kind: Subscription | None, text: str, producers: Sequence[ClientSettings]
) -> tuple[Literal["stream", "key", "none"], str, bool]:
    """The order, why, and whether it is known.

    Key_Shared gives a batch to one consumer whole: it keeps a key's order if no batch mixes keys.
    """
    if kind is None:
        return "stream", text, False
    for producer in producers if kind == "key_shared" else ():
        batching, batcher = producer.setting_of("batching"), producer.setting_of("batcher")
        if batching is None or (batching.is_true and batcher is None):
            return (
                "key",
                f"{text}, but {producer.unstated('batcher' if batching else 'batching')}",
                False,
            )
        if batcher and batching.is_true and "key" not in batcher.value.lower():
            return (
                "none",
                f"{text}, but {batching.text} and {batcher.text}: a batch mixes keys",
                True,
            )
    return _ORDER[kind], text, True
