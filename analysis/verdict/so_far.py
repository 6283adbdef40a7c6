"""Reports what is known of a run while it lasts: what the log shows, and what is open until the
end.

A part of a run is judged by the same kernels as the whole. Nothing of it is certain before the end:
until then the log may be cut, and rows that show an anomaly go with what was cut off. That
something is absent is open anyway. Deliveries wait for the end: journals of several members of a
group are not cut at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from analysis.findings import Finding

#: Seen directly in rows of the log and of sends: true as long as the log keeps those rows.
SEEN: Final = frozenset(
    {
        "corrupt",
        "wrong-partition",
        "false-nack",
        "premature-then-repeat",
        "producer-reorder",
        "client-sequence-regression",
        "write-duplicate",
    }
)
#: Absent where the log was read, of what was acknowledged.
OPEN: Final = frozenset({"acked-lost", "dedup-silent-loss"})


@dataclass(frozen=True, slots=True)
class SoFar:
    """Messages of one class. ``is_seen``: the log shows them; else they are absent where it was
    read."""

    cls: str
    count: int
    is_seen: bool
    first: str

    @property
    def text(self) -> str:
        """For people."""
        state = "unless the log is cut later" if self.is_seen else "open until the end"
        return f"{self.cls} {self.count:,}, {state}: {self.first}"


def so_far(findings: Iterable[Finding]) -> list[SoFar]:
    """Return what to report about the findings in a part of a run."""
    told = []
    for each in findings:
        is_seen = each.cls in SEEN and each.status == "violation"
        if is_seen or (each.cls in OPEN and each.status in ("violation", "suspect")):
            first = each.witnesses[0].sentence if each.witnesses else each.sentence
            told.append(SoFar(each.cls, each.count, is_seen, first))
    return told
