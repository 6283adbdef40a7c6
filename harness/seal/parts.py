"""Keeps what was sealed of a run during the run: a line of ``sealed/parts.jsonl`` for each of its
parts.

A part is written, then its line, and only then are its raw segments removed. So after a kill at any
moment every row is in a part that has a line, or in a segment that no line counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Final

from harness.contracts import read_rows
from harness.contracts.seal import SealedFile, TableReport, WorkerReport
from harness.records import TABLE_NAMES
from harness.rundir import RunDir, append_jsonl
from harness.seal.parquet import sync_folder
from harness.seal.segments import Segment

#: After the last answer in a segment of sends it is kept so long: a client may answer a call twice.
SECOND_ANSWER_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPart:
    """One part.

    Attributes:
        taken: how many segments of a worker, table and owner (`key_of`) are in it and those before
            it.
        ordinals: by consumer session, rows of its journal so far.
        names: kind and text of the names that are new in it, in the order of their ids.
        pipelines: producer instances that sent for pipelines.
        files, tables, workers: as of `SealReport`, of this part.
        log_ends: by stream id, the position after the last row of the log in it.
    """

    part: int
    taken: dict[str, int]
    ordinals: dict[int, int]
    names: list[tuple[str, str]]
    pipelines: list[int]
    files: dict[str, SealedFile]
    tables: dict[str, TableReport]
    workers: dict[str, WorkerReport]
    log_ends: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SealedSoFar:
    """All parts of a run, in order."""

    parts: list[SealedPart] = field(default_factory=list)

    @classmethod
    def read(cls, run: RunDir) -> SealedSoFar:
        """No part where nothing was sealed during the run.

        Raises:
            UsageError: the file is damaged.
        """
        return cls(read_rows(run.sealed_parts, SealedPart))

    @property
    def next_part(self) -> int:
        """The number of the part that is sealed next."""
        return len(self.parts)

    @property
    def names(self) -> list[tuple[str, str]]:
        return [name for part in self.parts for name in part.names]

    @property
    def ordinals(self) -> Counter[int]:
        """The number of rows that each stream or lane has in the parts so far."""
        return Counter(self.parts[-1].ordinals if self.parts else {})

    @property
    def pipelines(self) -> set[int]:
        """Numbers of the instances that sent for pipelines in the parts so far."""
        return {number for part in self.parts for number in part.pipelines}

    def taken(self, segment: Segment) -> int:
        """How many segments of its worker, table and owner are sealed."""
        return self.parts[-1].taken.get(key_of(segment), 0) if self.parts else 0

    def worker(self, name: str) -> WorkerReport:
        """Return the report about a worker from all parts."""
        rows: Counter[str] = Counter()
        damage: Counter[str] = Counter()
        found = [part.workers[name] for part in self.parts if name in part.workers]
        for each in found:
            rows.update(each.rows)
            damage.update(each.damage)
        return WorkerReport(
            segments=sum(e.segments for e in found), rows=dict(rows), damage=dict(damage)
        )

    def append(self, run: RunDir, part: SealedPart) -> None:
        """Write the line of a part that is on disk."""
        append_jsonl(run.sealed_parts, asdict(part), sync=True)
        sync_folder(run.sealed)
        self.parts.append(part)


def key_of(segment: Segment) -> str:
    """``producer-1/sends-1``."""
    return f"{segment.worker}/{TABLE_NAMES[segment.table]}-{segment.owner}"


def all_taken(before: SealedSoFar, segments: Iterable[Segment]) -> dict[str, int]:
    """`SealedPart.taken` once these are sealed, too."""
    taken = Counter(before.parts[-1].taken if before.parts else {})
    taken.update(key_of(segment) for segment in segments)
    return dict(taken)
