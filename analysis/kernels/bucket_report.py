"""The report of one judged bucket, sent back to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.kernels.across import StreamRows
from analysis.kernels.partial import Partial
from analysis.series import Series


@dataclass(frozen=True, slots=True)
class BucketReport:
    """The answer of a task. ``error``: why it failed. ``damage``: its files are not those that were
    sealed, and nothing else in the answer counts.

    ``streams``: what it has of which stream. ``contradictions``: a sentence for each place with two
    messages.
    """

    bucket: int
    partial: Partial | None = None
    series: Series | None = None
    rows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    damage: tuple[str, ...] = ()
    streams: StreamRows | None = None
    contradictions: tuple[str, ...] = ()
