"""What the settings of a client of Qpid Broker-J promise (JMS 1.1, AMQP 0-9-1).

* **delivery** ``durable``: a persistent message whose transaction was committed (AMQP 0-8 to 0-10; a send by
  itself is only put on the wire) or that AMQP 1.0 settled. A transient message has no such promise, and a
  store in memory (topology ``memory``) dies with its broker.
* **order**: one producer, one queue (JMS 1.1, 4.4.10).
* **dedup**: not promised: what an application or a failover sends again is another message to the broker.

A queue shares its messages among its consumers; JMS promises no order of what is delivered again after a
rollback, and no message twice within one transaction.
"""

from __future__ import annotations

from typing import Final

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
)

JMS: Final = Dialect(
    client="qpid-jms-legacy",
    names={"mode": ("deliveryMode",), "transacted": ("transacted",)},
    defaults={"mode": "PERSISTENT", "transacted": "20"},
)
PIKA: Final = Dialect(
    client="pika",
    names={"mode": ("delivery_mode",), "transacted": ("transacted",)},
    defaults={"mode": "2", "transacted": "20"},
)
_DIALECTS: Final = {dialect.client: dialect for dialect in (JMS, PIKA)}
_PERSISTENT: Final = {"persistent": True, "2": True, "non_persistent": False, "1": False, "transient": False}
CLIENTS: Final = tuple(_DIALECTS)


class QpidProducerSettings(ProducerSettings):
    def __init__(self, client: str, version: str, options: Options) -> None:
        dialect = _DIALECTS[client]
        self._mode = dialect.setting(options, "mode")
        self._transacted = dialect.setting(options, "transacted")
        self._waits = version.startswith("qpid-jms")
        if self._mode.value.lower() not in _PERSISTENT:
            raise ScenarioError(f"{self._mode.text}: must be PERSISTENT (2) or NON_PERSISTENT (1)")

    def call_deadline_s(self, unbounded_s: float) -> float:
        return unbounded_s + CALL_SLACK_S

    def delivery(self, topic: TopicPlan, ground: Ground) -> tuple[Delivery, str]:
        if not _PERSISTENT[self._mode.value.lower()]:
            return "none", self._mode.text
        alone = self._transacted.value == "0"
        if alone and not self._waits:
            return "none", f"{self._transacted.text}: a send returns before the broker has the message"
        if ground.topology == "memory":
            return "leader", "topology memory: the broker's store dies with it"
        how = "the broker settled it" if alone else f"{self._transacted.text}: the commit was confirmed"
        return "durable", f"{self._mode.text}, {how}"

    def order(self, ground: Ground) -> tuple[bool, str]:
        return True, "one producer and queue (JMS 1.1, 4.4.10)"

    def dedup(self, ground: Ground) -> tuple[bool, str]:
        return False, "the broker does not compare messages: what is sent again is stored again"


def read_consumer(consuming: Consuming) -> ConsumerPromise:
    """A consumer of a queue."""
    return ConsumerPromise(
        subscription="queue",
        order="none",
        acks_confirmed=consuming.settle == "transacted",
        because={
            "order": "JMS promises no order of what is delivered again",
            "ack": f"settle: {consuming.settle}",
        },
    )
