"""``[promises]`` of a worker.toml of a Pulsar client."""

from __future__ import annotations

from harness.scenario.part import Part
from harness.workers.facts import SettingFacts, TimeFacts


class PulsarFacts(Part):
    """Settings of a Pulsar client.

    ``subscription_mode``: Durable or NonDurable. ``max_redeliver``: redeliveries after which its
    dead letter policy takes a message; 0 = it has none.
    """

    send_timeout: TimeFacts | None = None
    batching: SettingFacts | None = None
    batcher: SettingFacts | None = None
    subscription: SettingFacts | None = None
    subscription_mode: SettingFacts | None = None
    ack_timeout: TimeFacts | None = None
    ack_receipt: SettingFacts | None = None
    batch_index_ack: SettingFacts | None = None
    nack_delay: TimeFacts | None = None
    max_redeliver: SettingFacts | None = None


FACTS = PulsarFacts
