"""The promises of the settings of an Artemis client (STOMP 1.2)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contracts.plan import ConsumerPromise, TopicPlan
from harness.plan.promise import (
    ClientSettings,
    Consuming,
    Delivery,
    ProducerSettings,
    PromiseContext,
)


class ArtemisProducerSettings(ProducerSettings):
    def delivery(self, topic: TopicPlan, context: PromiseContext) -> tuple[Delivery, str]:
        for name in ("persistent", "receipt"):
            setting = self.settings.setting_of(name)
            if setting is None:
                return "unknown", self.settings.unstated(name)
            if not setting.is_true:
                return "none", setting.text
        return "durable", "a receipt is sent when the journal has the message"

    def order(self, context: PromiseContext) -> tuple[bool | None, str]:
        return True, "one connection and one queue"

    def dedup(self, context: PromiseContext) -> tuple[bool | None, str]:
        return False, "without _AMQ_DUPL_ID the broker does not compare messages"


read_producer = ArtemisProducerSettings


def read_consumer(
    consuming: Consuming, settings: ClientSettings, producers: Sequence[ClientSettings]
) -> ConsumerPromise:
    return ConsumerPromise(
        subscription="queue", order="none", because={"order": "a queue is shared"}
    )
