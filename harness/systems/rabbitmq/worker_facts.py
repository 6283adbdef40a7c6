"""``[promises]`` of a worker.toml of a client of RabbitMQ."""

from __future__ import annotations

from harness.scenario.part import Part
from harness.workers.facts import SettingFacts, TimeFacts


class RabbitMqFacts(Part):
    """Settings of a client of RabbitMQ.

    Attributes:
        persistence: the delivery mode of messages, 1 or 2.
        confirms: the producer waits for the confirm of the broker.
        transacted: messages in a transaction; 0 = none.
        deduplication: messages have a producer's name and a number, and a stream stores each once.
        mandatory: a message that no queue takes comes back.
        requeue: a message that a consumer refuses goes back to its queue; else the queue gives it
            up.
        send_timeout: a publish without a confirm is given up after it.
        stream_offset: where a consumer of a stream begins: first or next; none = it consumes
            queues.
    """

    persistence: SettingFacts | None = None
    confirms: SettingFacts | None = None
    transacted: SettingFacts | None = None
    deduplication: SettingFacts | None = None
    mandatory: SettingFacts | None = None
    requeue: SettingFacts | None = None
    send_timeout: TimeFacts | None = None
    stream_offset: SettingFacts | None = None


FACTS = RabbitMqFacts
