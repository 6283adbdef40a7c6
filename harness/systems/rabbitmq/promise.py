"""Derives what the settings of a client of RabbitMQ promise (AMQP 0-9-1 with publisher confirms).

* **delivery** ``durable``: a quorum queue confirms a message when a majority of its nodes wrote it
  to disk; a classic queue confirms a persistent message when its one node did (rabbitmq.com,
  "Consumer Acknowledgements and Publisher Confirms"). A stream confirms a message when a majority
  of its nodes has it, and leaves it to the operating system when it is on their disks
  (rabbitmq.com, "Streams", "Data Safety"). Without confirms, a publish returns when it is on its
  way.
* **order**: one channel, one exchange and one queue (rabbitmq.com, "Message ordering").
* **dedup**: only on a stream, from producers with a name: they number their messages, and the
  stream stores each number once (rabbitmq.com, "Streams", "Message Deduplication"). Else a message
  that is sent again is stored again.

A queue shares its messages among its consumers. A message that was given and not acknowledged comes
again, after later ones. Each consumer of a stream is given all messages from an offset on, in the
order of the stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from harness.contracts.plan import ConsumerPromise, TopicPlan
from harness.errors import ScenarioError
from harness.plan.promise import (
    ClientSettings,
    Consuming,
    Delivery,
    ProducerSettings,
    PromiseContext,
)
from harness.systems.rabbitmq import (
    AT_LEAST_ONCE,
    BOUNDS,
    DEAD_LETTERS,
    QUORUM,
    STRATEGY,
    STREAM,
    SYSTEM,
    TTL,
    TYPE,
)

_OFFSETS: Final[Mapping[str, Literal["earliest", "latest"]]] = {
    "first": "earliest",
    "next": "latest",
}
#: The consumer reads queues.
_NONE: Final = "none"
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
        if unsafe := _moves_unsafely(topic):
            return "none", unsafe
        if _kind(topic) == QUORUM:
            if topic.replication < 2:
                return "durable", "confirmed when its one node wrote it to disk"
            most = topic.replication // 2 + 1
            return "durable", f"confirmed when {most} of {topic.replication} nodes wrote it to disk"
        if _kind(topic) == STREAM:
            most = topic.replication // 2 + 1
            return "durable", f"confirmed when {most} of {topic.replication} nodes have it"
        if self._mode is None:
            return "unknown", self.settings.unstated("persistence")
        if not _PERSISTENT[self._mode.value.lower()]:
            return "none", f"{self._mode.text}: a node that ends forgets it"
        if topic.replication > 1:
            return "durable", f"{self._mode.text}: confirmed when every mirror of the queue has it"
        return "durable", f"{self._mode.text}: confirmed when the one node of the queue has it"

    def synced(self, topic: TopicPlan, context: PromiseContext) -> tuple[bool | None, str]:
        """Return whether a confirmed message is on disks: a stream leaves that to the system."""
        if _kind(topic) == STREAM:
            return False, f"{TYPE}={STREAM}: streams are not synced to disk before the confirm"
        return super().synced(topic, context)

    def order(self, context: PromiseContext) -> tuple[bool | None, str]:
        return True, "one channel and one queue"

    def dedup(self, context: PromiseContext) -> tuple[bool | None, str]:
        """Return whether the brokers remove duplicates: streams do, by producer and number."""
        numbered = self.settings.setting_of("deduplication")
        if numbered and numbered.is_true and all(_kind(each) == STREAM for each in context.topics):
            return True, f"{numbered.text}: a stream stores each number of a producer once"
        return (
            False,
            "the brokers do not compare messages: a message that is sent again is stored again",
        )


def _kind(topic: TopicPlan) -> str:
    return topic.config.get(TYPE, QUORUM)


def _moves_unsafely(topic: TopicPlan) -> str:
    """Return why a message may be lost that no consumer was given; empty = it may not. Without the
    strategy at-least-once, a queue forgets a message before the queue of dead letters has it."""
    config, moved = topic.config, SYSTEM.moves_to(topic.config)
    why = next((key for key in (TTL, *BOUNDS) if key in config), "")
    if not moved or not why or config.get(STRATEGY) == AT_LEAST_ONCE:
        return ""
    return f"{why} on {topic.name}: a message is moved to {moved} without a confirm"


read_producer = RabbitMqProducerSettings

#: The promise of a consumer of queues.
_QUEUE: Final = ConsumerPromise(
    subscription="queue",
    order="none",
    acks_confirmed=False,
    nack_delay_s=0.0,  # a message that was refused is given again at once
    because={
        "order": "what was given and not acknowledged comes again, after later messages",
        "ack": "the broker does not answer an acknowledgement",
    },
)


def read_consumer(
    consuming: Consuming, settings: ClientSettings, producers: Sequence[ClientSettings]
) -> ConsumerPromise:
    """A consumer of a queue, or of a stream.

    Raises:
        ScenarioError: a consumer of a stream without an offset, or one of a queue with it; a
            stream with acknowledgements; refused messages that a queue would drop.
    """
    streams = [topic.name for topic in consuming.topics if _kind(topic) == STREAM]
    offset = settings.setting_of("stream_offset")
    requeue = settings.setting_of("requeue")
    if requeue is not None and not requeue.is_true:
        dropped = [one.name for one in consuming.topics if not SYSTEM.moves_to(one.config)]
        if dropped:
            raise ScenarioError(
                f"{requeue.text}: topic {dropped[0]} has no dead letters, so it would drop messages",
                hint=f"set x-dead-letter-exchange and {DEAD_LETTERS} in its config",
            )
    if not streams:
        if offset is not None and offset.value != _NONE:
            raise ScenarioError(f"{offset.text}: none of its topics is a stream")
        return _QUEUE
    return _stream_promise(streams[0], consuming, settings)


def _stream_promise(name: str, consuming: Consuming, settings: ClientSettings) -> ConsumerPromise:
    offset = settings.setting_of("stream_offset")
    if offset is None or offset.value == _NONE:
        raise ScenarioError(
            f"topic {name} is a stream: its consumer must say where it begins",
            hint="options: {StreamOffset: first} with amqp091-go, streamOffset with amqp-client",
        )
    if offset.value not in _OFFSETS:
        raise ScenarioError(f"{offset.text}: must be {' or '.join(_OFFSETS)}")
    if consuming.settle != "none":
        raise ScenarioError(
            f"topic {name} is a stream, which keeps no acknowledgements", hint="settle: none"
        )
    return ConsumerPromise(
        subscription="exclusive",
        order="stream",
        start=_OFFSETS[offset.value],
        acks_confirmed=False,
        because={"order": f"{offset.text}: a consumer is given a stream in its order"},
    )
