"""``[promises]`` of a worker.toml of a Kafka client."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.scenario.part import Part
from harness.workers.facts import SettingFacts, TimeFacts


class IdempotenceFacts(SettingFacts):
    """Kafka's idempotent producer, and what the client does about settings that contradict it.

    Attributes:
        most_in_flight: requests in flight that still go with it.
        unasked: with idempotence on by default only, the client drops it or refuses to start.
        checks_defaults: the client holds its own defaults against it, too: each has to be changed
            by hand.
        keeps_order: a call that is tried again holds later calls up. Without it, settings promise
            order only where nothing is tried again.
    """

    most_in_flight: int = 5
    unasked: Literal["dropped", "refused"] = "dropped"
    checks_defaults: bool = False
    keeps_order: bool = True


class KafkaFacts(Part):
    """Settings of a Kafka client. What is left out is not known, and then the promise is not.

    ``group``: of what type it is, ``consumer`` or ``share`` (KIP-932); the others are of the
    latter. ``each_attempt``: where no time limits a whole send, the times that each of its attempts
    may take.
    """

    acks: SettingFacts | None = None
    idempotence: IdempotenceFacts | None = None
    in_flight: SettingFacts | None = None
    retries: SettingFacts | None = None
    isolation: SettingFacts | None = None
    group: SettingFacts | None = None
    share_isolation: SettingFacts | None = None
    share_session: TimeFacts | None = None
    send_timeout: TimeFacts | None = None
    each_attempt: list[TimeFacts] = Field(default_factory=list)


FACTS = KafkaFacts
