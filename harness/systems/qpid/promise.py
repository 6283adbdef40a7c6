"""Derives what the settings of a client of Qpid Broker-J promise (JMS 1.1, AMQP 0-9-1).

* **delivery** ``durable``: a persistent message whose transaction was committed (AMQP 0-8 to 0-10;
  a send by itself is only put on the wire) or that AMQP 1.0 settled. A transient message has no
  such promise, and a store in memory (topology ``memory``) dies with its broker.
* **order**: one producer, one queue (JMS 1.1, 4.4.10).
* **dedup**: not promised: what an application or a failover sends again is another message to the
  broker.

A queue shares its messages among its consumers; JMS promises no order for redelivered messages
after a rollback, and no message twice within one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.contracts.plan import ConsumerPromise, TopicPlan
from harness.errors import ScenarioError
from harness.plan.promise import (
    ClientSettings,
    Consuming,
    Delivery,
    ProducerSettings,
    PromiseContext,
)

_PERSISTENT: Final = {
    "persistent": True,
    "2": True,
    "non_persistent": False,
    "1": False,
    "transient": False,
}


class QpidProducerSettings(ProducerSettings):
    """The promises of a producer's settings on Qpid Broker-J."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self._mode = settings.setting_of("persistence")
        if self._mode is not None and self._mode.value.lower() not in _PERSISTENT:
            raise ScenarioError(f"{self._mode.text}: must be PERSISTENT (2) or NON_PERSISTENT (1)")

    def delivery(self, topic: TopicPlan, context: PromiseContext) -> tuple[Delivery, str]:
        """Return what an acknowledgement promises, by delivery mode, transactions and confirms."""
        mode, transacted = self._mode, self.settings.setting_of("transacted")
        if mode is not None and not _PERSISTENT[mode.value.lower()]:
            return "none", mode.text
        if mode is None or transacted is None:
            return "unknown", self.settings.unstated(
                "persistence" if mode is None else "transacted"
            )
        alone = transacted.value == "0"
        if alone and not self.settings.is_true("settled"):
            return "none", f"{transacted.text}: a send returns before the broker has the message"
        if context.topology == "memory":
            return "leader", "topology memory: the broker's store dies with it"
        how = "the broker settled it" if alone else f"{transacted.text}: the commit was confirmed"
        return "durable", f"{mode.text}, {how}"

    def order(self, context: PromiseContext) -> tuple[bool | None, str]:
        return True, "one producer and queue (JMS 1.1, 4.4.10)"

    def dedup(self, context: PromiseContext) -> tuple[bool | None, str]:
        """Return that the broker does not remove duplicates."""
        return (
            False,
            "the broker does not compare messages: a message that is sent again is stored again",
        )


read_producer = QpidProducerSettings


def read_consumer(
    consuming: Consuming, settings: ClientSettings, producers: Sequence[ClientSettings]
) -> ConsumerPromise:
    """A consumer of a queue."""
    return ConsumerPromise(
        subscription="queue",
        order="none",
        acks_confirmed=consuming.settle == "transacted",
        because={
            "order": "JMS promises no order for redelivered messages",
            "ack": f"settle: {consuming.settle}",
        },
    )
