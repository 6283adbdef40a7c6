"""Says what one machine of several seals of a run: the rows of its own workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.clock_line import ClockLine
from harness.contracts.rows import NameRow, TransactionRow
from harness.contracts.seal import Damage, SealedFile, TableReport, WorkerReport

#: Ids of names that a share alone has, from the last one that all know: so many for each.
OWN_NAMES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class MachineShare:
    """The task of one machine in sealing.

    Attributes:
        part: number of its files in each bucket, from 1; `part-0` belongs to the machine that has
            the run.
        names: kind and text of the run's names so far, in the order of their ids.
        clock: puts its times on the line of that machine; None = it is the same clock.
    """

    part: int = 0
    names: Sequence[tuple[str, str]] = ()
    clock: ClockLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareReport:
    """The result of one machine's sealing: the figures of `SealReport`, and the rows of small
    files.

    ``left``: where the files lie on its machine, if they could not be written where the run is.
    """

    tables: dict[str, TableReport] = field(default_factory=dict)
    workers: dict[str, WorkerReport] = field(default_factory=dict)
    files: dict[str, SealedFile] = field(default_factory=dict)
    names: list[NameRow] = field(default_factory=list)
    transactions: list[TransactionRow] = field(default_factory=list)
    left: str = ""

    @classmethod
    def missing(cls, workers: Sequence[str], left: str = "") -> ShareReport:
        """Return the report on a machine whose rows did not arrive."""
        gone = {str(Damage.MISSING_SEGMENTS): 1}
        return cls(
            workers={name: WorkerReport(segments=0, rows={}, damage=gone) for name in workers},
            left=left,
        )


def together(
    tables: Mapping[str, TableReport], shares: Sequence[ShareReport]
) -> dict[str, TableReport]:
    """The tables of a run whose files come from several machines."""
    return {
        name: TableReport(
            rows=sum(each.rows for each in found),
            files=sum(each.files for each in found),
            bytes=sum(each.bytes for each in found),
        )
        for name, own in tables.items()
        for found in [[own, *(share.tables[name] for share in shares if name in share.tables)]]
    }
