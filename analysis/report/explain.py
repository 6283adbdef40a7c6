"""Explains an anomaly class: its row of `analysis.classes` in sentences."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.capture.context import INPUT_ONCE, INPUT_ORDER, REDELIVERY_ORDER
from analysis.classes import (
    ALWAYS,
    APPLICATION,
    CAPTURE,
    CLASSES,
    INFORMATION,
    PRECONDITIONS,
    anomaly_class,
)

_PROMISES = {
    "delivery": "delivery: an acknowledged message is kept",
    "order": "order: first copies of a lane's messages keep the order in which they were sent",
    "dedup": "dedup: a message is stored once, however often the client sends it again",
    REDELIVERY_ORDER: "order of redelivered messages: JMS leaves it open, a scenario may require order",
    INPUT_ONCE: "one output an input: promised where positions are in the transaction of the outputs",
    INPUT_ORDER: "outputs in the order of their inputs: promised where positions are in the transaction",
    ALWAYS: "a rule that holds under any settings: it is always a violation",
    CAPTURE: "none: it is a gap in the capture and makes the verdict unknown",
    APPLICATION: "none: it is an error of the application, which did not look at a result",
    INFORMATION: "none: informational",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """``breaks``: promises, any one of which makes it a violation; ``evidence``: what must be known
    before it counts as proved (unmet: suspect, the verdict is unknown)."""

    name: str
    sentence: str
    example: str
    explanation: str
    breaks: tuple[str, ...]
    evidence: tuple[str, ...]
    unit: str
    splits: dict[str, str]


def explain(name: str) -> Explanation:
    """The class of that name.

    Raises:
        UsageError: there is none; the hint names the nearest.
    """
    entry = anomaly_class(name)
    splits = {
        key: split.text + (f" (always {split.status.value})" if split.status is not None else "")
        for key, split in entry.splits.items()
    }
    if entry.split_by:
        splits["by cause"] = entry.split_by
    return Explanation(
        name=entry.name,
        sentence=entry.sentence,
        example=entry.example,
        explanation=entry.explanation,
        breaks=tuple(_PROMISES[kind] for kind in entry.breaks),
        evidence=tuple(PRECONDITIONS[key] for key in entry.needs),
        unit=entry.unit,
        splits=splits,
    )


def every_class() -> list[Explanation]:
    """All classes, the weightiest first."""
    return [explain(name) for name in CLASSES]
