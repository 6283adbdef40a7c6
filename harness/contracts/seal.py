"""seal.json: what sealing made of the raw capture, and the checksum of every file that judging
reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal


class Damage(StrEnum):
    """The kinds of damage to a worker's raw capture; the value is the key in seal.json."""

    TORN_ROWS = "torn_rows"  # begun, never finished
    SHORT_FILES = "short_files"  # smaller than header and capacity say
    BAD_MAGIC = "bad_magic"  # not a segment of this format: left out
    FOREIGN_RUN = "foreign_run"  # a segment of another run: left out
    UNREADABLE = "unreadable"  # segment files that the disk does not give back: left out
    MISSING_SEGMENTS = "missing_segments"  # numbers left out in 0, 1, 2 ...
    UNKNOWN_NAMES = "unknown_names"  # ids used but never named
    BAD_HEADERS = "bad_headers"  # rows marked ok whose header is not ours: sealed as foreign


#: Damage that means missing rows; other kinds cost a header.
_HOLES: Final = (
    Damage.TORN_ROWS,
    Damage.SHORT_FILES,
    Damage.BAD_MAGIC,
    Damage.UNREADABLE,
    Damage.MISSING_SEGMENTS,
    Damage.UNKNOWN_NAMES,
)
_SAY: Final[dict[str, str]] = {
    Damage.TORN_ROWS: "rows begun but not finished",
    Damage.SHORT_FILES: "segment files cut short",
    Damage.BAD_MAGIC: "segment files of another format, left out",
    Damage.UNREADABLE: "segment files that cannot be read, left out",
    Damage.FOREIGN_RUN: "segment files of another run, left out",
    Damage.MISSING_SEGMENTS: "segment files missing",
    Damage.UNKNOWN_NAMES: "ids that names.jsonl does not explain",
    Damage.BAD_HEADERS: "rows marked intact whose header is not ours",
}


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A sealed file as it was written: what a reader holds it against.

    ``rows``: of a table; of a JSON-lines file its lines. ``sha256``: of the whole file, in
    hexadecimal.
    """

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """Rows taken in, files written and their size. Rows that went to every bucket count once."""

    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """The capture of one worker: rows by table, and `Damage` by kind (zeros are left out)."""

    segments: int
    rows: dict[str, int]
    damage: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealReport:
    """The content of seal.json. ``files``: by path below sealed/; ``documents``: of the run, by
    name."""

    schema_version: Literal[1] = 1
    rows: dict[str, int]
    tables: dict[str, TableReport]
    workers: dict[str, WorkerReport]
    files: dict[str, SealedFile] = field(default_factory=dict)
    documents: dict[str, SealedFile] = field(default_factory=dict)
    wall_s: float
    cpu_s: float

    @property
    def damaged_workers(self) -> set[str]:
        """Return the workers whose raw capture had missing or torn parts."""
        return {
            name for name, worker in self.workers.items() if any(map(worker.damage.get, _HOLES))
        }

    def damage(self, worker: str) -> dict[str, int]:
        """Damage of a worker; empty for an unknown one and for none."""
        report = self.workers.get(worker)
        return report.damage if report else {}

    def problems(self) -> list[str]:
        """One sentence for each kind of damage of each worker; of a kind of a later version its
        name."""
        return [
            f"{name}: {count} {_SAY.get(kind, kind)}"
            for name, worker in self.workers.items()
            for kind, count in worker.damage.items()
        ]
