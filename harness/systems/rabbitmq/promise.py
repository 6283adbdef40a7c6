"""Derives what the settings of a client of RabbitMQ promise (AMQP 0-9-1 with publisher confirms).

* **delivery** ``durable``: a quorum queue confirms a message when a majority of its nodes wrote it
  to disk; a classic queue confirms a persistent message when its one node did (rabbitmq.com,
  "Consumer Acknowledgements and Publisher Confirms"). Without confirms, a publish returns when it
  is on its way.
* **order**: one channel, one exchange and one queue (rabbitmq.com, "Message ordering").
* **dedup**: not promised: a message that is sent again is stored again.

A queue shares its messages among its consumers. A message that was given and not acknowledged comes
again, after later ones.
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
from harness.systems.rabbitmq import QUORUM, TYPE

_PERSISTENT: Final = {"2": True, "persistent": True, "1": False, "transient": False}


class RabbitMqProducerSettings(ProducerSettings):
    """The promises of a producer's settings on RabbitMQ."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        settings.seconds("send_timeout")  # refused here if it is not a time
        self._mode = settings.setting_of("persistence")
        if self._mode is not None and self._mode.value.lower() not in _PERSISTENT:
            raise ScenarioError(f"{self._mode.text}: must be 1 (transient) or 2 (persistent)")

    def delivery(self, topic: TopicPlan, context: PromiseContext) -> tuple[Delivery, str]:
        """Return what an acknowledgement promises, by confirms, delivery mode and type of queue."""
        confirms, transacted = (self.settings.setting_of(n) for n in ("confirms", "transacted"))
        if confirms is None:
            return "unknown", self.settings.unstated("confirms")
        if not confirms.is_true:
            if transacted is not None and transacted.value != "0":
                return (
                    "unknown",
                    f"{transacted.text}: transactions do not cover {_kind(topic)} queues as a whole",
                )
            return "none", f"{confirms.text}: a publish returns before the broker has the message"
        if _kind(topic) == QUORUM:
            if topic.replication < 2:
                return "durable", "confirmed when its one node wrote it to disk"
            most = topic.replication // 2 + 1
            return "durable", f"confirmed when {most} of {topic.replication} nodes wrote it to disk"
        if self._mode is None:
            return "unknown", self.settings.unstated("persistence")
        if not _PERSISTENT[self._mode.value.lower()]:
            return "none", f"{self._mode.text}: a node that ends forgets it"
        if topic.replication > 1:
            return "durable", f"{self._mode.text}: confirmed when every mirror of the queue has it"
        return "durable", f"{self._mode.text}: confirmed when the one node of the queue has it"

    def order(self, context: PromiseContext) -> tuple[bool | None, str]:
        return True, "one channel and one queue"

    def dedup(self, context: PromiseContext) -> tuple[bool | None, str]:
        """Return that the brokers do not remove duplicates."""
        return (
            False,
            "the brokers do not compare messages: a message that is sent again is stored again",
        )


def _kind(topic: TopicPlan) -> str:
    return topic.config.get(TYPE, QUORUM)


read_producer = RabbitMqProducerSettings


def read_consumer(
    consuming: Consuming, settings: ClientSettings, producers: Sequence[ClientSettings]
) -> ConsumerPromise:
    """A consumer of a queue."""
    return ConsumerPromise(
        subscription="queue",
        order="none",
        acks_confirmed=False,
        nack_delay_s=0.0,  # a message that was refused is given again at once
        because={
            "order": "what was given and not acknowledged comes again, after later messages",
            "ack": "the broker does not answer an acknowledgement",
        },
    )
