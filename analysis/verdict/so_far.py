"""Says what can be told of a run while it goes on: what is certain by now, and what is open until the end.

A part of a run is judged by the same kernels as the whole. What they see directly in it stays, whatever comes
later. That something is absent is certain only in the end: the log may be truncated until then. Deliveries
wait for the end: journals of several members of a group are not cut at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from analysis.findings import Finding

#: Seen directly in the log and in sends, or from two rows that both stay.
CERTAIN: Final = frozenset(
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
    """Of one class: how many messages, and whether it is certain."""

    cls: str
    count: int
    is_certain: bool
    first: str

    @property
    def text(self) -> str:
        """For people."""
        state = "" if self.is_certain else ", open until the end"
        return f"{self.cls} {self.count:,}{state}: {self.first}"


def so_far(findings: Iterable[Finding]) -> list[SoFar]:
    """What to tell of the findings in a part of a run."""
    told = []
    for each in findings:
        is_certain = each.cls in CERTAIN and each.status == "violation"
        if is_certain or (each.cls in OPEN and each.status in ("violation", "suspect")):
            first = each.witnesses[0].sentence if each.witnesses else each.sentence
            told.append(SoFar(each.cls, each.count, is_certain, first))
    return told
