"""Derives what the settings of a client of JetStream promise.

* **delivery** ``durable``: a publish is acknowledged when a quorum of the stream's servers has the
  message (docs.nats.io, "JetStream"). On their disks it is within ``sync_interval``, by default two
  minutes: `synced`.
* **order**: one connection and subject, unless the client sends a publish again that no server
  received: it follows what was published since (`RetryAttempts` of nats.go).
* **dedup**: by `Nats-Msg-Id`, within the stream's ``duplicate_window``, and only there
  (docs.nats.io, "Message Deduplication"). Whether all that is sent again comes within it follows
  from the publish time-out and from how often an application of ours sends again.

A consumer shares its messages among its clients; what is not acknowledged within ``ack_wait`` comes
again. A stream with ``retention`` workqueue or interest removes a message that its consumers
acknowledged: it is read as a queue.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from harness.systems.nats import SYSTEM as NATS
from harness.systems.nats import native

_WINDOW_S: Final = 120.0
#: https://docs.nats.io/nats-concepts/jetstream, "Syncing data to disk"
_MAY_FAIL: Final = (
    "NATS' documentation: 'If multiple servers fail simultaneously, all due to an OS failure, and "
    "before their data has been fsync-ed, the cluster may fail to recover the most recently "
    "acknowledged messages'"
)
#: How often an application sends again, half a second after each outcome (docs/worker-protocol.md).
_ATTEMPTS: Final = 10


class NatsProducerSettings(ProducerSettings):
    """The promises of a producer's settings on NATS."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        settings.seconds("send_timeout")  # refused here if it is not a time
        settings.number("retries")

    def delivery(self, topic: TopicPlan, context: PromiseContext) -> tuple[Delivery, str]:
        """Return what an acknowledgement promises: on the majority of the replicas of a file
        store."""
        if topic.config.get("storage", "file") != "file":
            return (
                "leader",
                f"{topic.name}: storage={topic.config['storage']}: a server that ends forgets it",
            )
        if topic.replication < 2:
            return "durable", "acknowledged when its one server wrote it to a file"
        return (
            "durable",
            f"acknowledged when {topic.replication // 2 + 1} of {topic.replication} servers have it",
        )

    def synced(self, topic: TopicPlan, context: PromiseContext) -> tuple[bool | None, str]:
        every = str(context.broker_config.get("jetstream.sync_interval", "2m"))
        text = f"jetstream.sync_interval={every}"
        if every.lower() == "always":
            return True, text
        return False, f"{text}; {_MAY_FAIL}"

    def order(self, context: PromiseContext) -> tuple[bool | None, str]:
        retries = self.settings.setting_of("retries")
        if retries is None:
            return None, self.settings.unstated("retries")
        if self.settings.number("retries") == 0:
            return True, f"{retries.text}: one connection and subject"
        return (
            False,
            f"{retries.text}: a publish without a listener is sent again, after later ones",
        )

    def dedup(self, context: PromiseContext) -> tuple[bool | None, str]:
        """Return whether servers remove duplicates: they compare message ids within a window."""
        found = self.settings.setting_of("message_id")
        if found is None:
            return None, self.settings.unstated("message_id")
        if not found.is_true:
            return False, f"{found.text}: the servers do not compare messages"
        window = min((_window_s(topic) for topic in context.topics), default=_WINDOW_S)
        longest = _ATTEMPTS * ((self.settings.seconds("send_timeout") or 0.0) + 0.5)
        text = f"{found.text}, within duplicate_window={window:g}s"
        if longest > window:
            return None, f"{text}; an application may send again for {longest:g} s"
        return True, text


def _window_s(topic: TopicPlan) -> float:
    """The stream's ``duplicate_window``, in nanoseconds as its JSON has it.

    Raises:
        ScenarioError: no number.
    """
    said = native(topic.config.get("duplicate_window", "0"))
    if not isinstance(said, int):
        raise ScenarioError(
            f"topics.{topic.name}.config.duplicate_window={said}: must be nanoseconds"
        )
    return said / 1e9 or _WINDOW_S


read_producer = NatsProducerSettings


def read_consumer(
    consuming: Consuming, settings: ClientSettings, producers: Sequence[ClientSettings]
) -> ConsumerPromise:
    """A durable consumer that clients pull from, or an ordered one of a client's own.

    Raises:
        ScenarioError: an ordered consumer that acknowledges, or a number that is none.
    """
    kind, confirmed = settings.setting_of("consumer"), settings.setting_of("acks_confirmed")
    wait, most = settings.setting_of("ack_wait"), settings.setting_of("max_deliver")
    limit = settings.number("max_deliver") or -1
    ends = f"; {limit} times at most: {most.text}" if most and limit > 0 else ""
    is_ordered = kind is not None and kind.value.lower() == "ordered"
    if is_ordered and consuming.settle != "none":
        raise ScenarioError(
            f"{kind.text if kind else ''}: acknowledges nothing", hint="settle: none"
        )
    order: Literal["stream", "none"] = "stream" if is_ordered else "none"
    stated = {
        "order": kind.text if kind else "",
        "ack_timeout": f"{wait.text}{ends}" if wait else "",
        "ack": confirmed.text if confirmed else "",
        "max_deliver": most.text if most else "",
    }
    names = {"order": "consumer", "ack_timeout": "ack_wait", "ack": "acks_confirmed"}
    is_queue = any(NATS.removes_settled(topic.config) for topic in consuming.topics)
    return ConsumerPromise(
        subscription="exclusive" if is_ordered else "queue" if is_queue else "shared",
        order=order,
        ack_timeout_s=0.0 if is_ordered else settings.seconds("ack_wait") or 0.0,
        acks_confirmed=confirmed is None or confirmed.is_true,
        nack_delay_s=0.0,  # the servers give a refused message again at once
        max_deliveries=max(limit, 0) if most else None,
        because={
            name: text or settings.unstated(names.get(name, name)) for name, text in stated.items()
        },
        unknown=[name for name in ("order", "ack_timeout", "ack") if not stated[name]],
    )
