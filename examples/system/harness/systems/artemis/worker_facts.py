"""``[promises]`` of a worker.toml of an Artemis client."""

from __future__ import annotations

from harness.scenario.part import Part
from harness.workers.facts import SettingFacts


class ArtemisFacts(Part):
    """``persistent``: a message outlives the broker. ``receipt``: a send waits for the broker's
    answer."""

    persistent: SettingFacts | None = None
    receipt: SettingFacts | None = None


FACTS = ArtemisFacts
