"""``[promises]`` of a worker.toml of a client of Qpid."""

from __future__ import annotations

from harness.scenario.part import Part
from harness.workers.facts import SettingFacts, TimeFacts


class QpidFacts(Part):
    """Settings of a client of Qpid. ``settled``: a send outside a transaction waits for the
    broker."""

    persistence: SettingFacts | None = None
    transacted: SettingFacts | None = None
    settled: SettingFacts | None = None
    send_timeout: TimeFacts | None = None


FACTS = QpidFacts
