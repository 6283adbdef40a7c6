"""``[promises]`` of a worker.toml of a client of NATS."""

from __future__ import annotations

from harness.scenario.part import Part
from harness.workers.facts import SettingFacts, TimeFacts


class NatsFacts(Part):
    """Settings of a client of JetStream.

    Attributes:
        send_timeout: a publish without an answer is given up after it.
        retries: how often a publish that no server received is sent again; each follows later ones.
        message_id: messages have an id that tells the servers what is sent twice (`Nats-Msg-Id`).
        consumer: ``durable`` or ``ordered``.
        ack_wait: what is not acknowledged by then is handed out again.
        max_deliver: how often at most; -1 = without end.
        acks_confirmed: the client waits for the answer to an acknowledgement.
    """

    send_timeout: TimeFacts | None = None
    retries: SettingFacts | None = None
    message_id: SettingFacts | None = None
    consumer: SettingFacts | None = None
    ack_wait: TimeFacts | None = None
    max_deliver: SettingFacts | None = None
    acks_confirmed: SettingFacts | None = None


FACTS = NatsFacts
