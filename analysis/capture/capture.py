"""The sealed files of a run: which buckets there are, how large, and whether any is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from harness.errors import UsageError
from harness.records import SEALED
from harness.rundir import RunDir, read_json

_BUCKET = re.compile(r"/(\w+)/bucket=(\d+)/[^/]+\.parquet$")


@dataclass(frozen=True, slots=True)
class Capture:
    """Sealed tables below ``root_uri`` (a path, or a URI that pyarrow.fs knows).

    ``bytes_of``: size by (table, bucket). ``sealed``: what seal.json says was written.
    """

    root_uri: str
    bytes_of: Mapping[tuple[str, int], int]
    sealed: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def find(cls, run: RunDir, root_uri: str | None = None) -> Capture:
        """List what is there.

        Raises:
            UsageError: the run was never sealed, or the place cannot be read.
        """
        if not run.seal_report.exists():
            raise UsageError(
                f"{run.root} is not sealed: {run.seal_report.name} is missing",
                hint="`brokerstorm analyze` seals a run first if it still has its raw segments",
            )
        root = root_uri or str(run.root)
        try:
            filesystem, path = _filesystem(root)
            infos = filesystem.get_file_info(pafs.FileSelector(f"{path}/sealed", recursive=True))
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"cannot read the sealed tables in {root}: {error}") from error
        sizes: dict[tuple[str, int], int] = {}
        for info in infos:
            match = _BUCKET.search(info.path)
            if match and match[1] in SEALED:
                key = (match[1], int(match[2]))
                sizes[key] = sizes.get(key, 0) + info.size
        return cls(root, sizes, read_json(run.seal_report))

    def buckets(self) -> tuple[int, ...]:
        """Buckets with any rows, largest first, so that the last task to start is a short one."""
        total: dict[int, int] = {}
        for (_, bucket), size in self.bytes_of.items():
            total[bucket] = total.get(bucket, 0) + size
        return tuple(sorted(total, key=lambda bucket: (-total[bucket], bucket)))

    def missing(self, rows: Mapping[str, int]) -> list[str]:
        """What seal.json promises and judging did not find: files, rows by table, damaged segments."""
        gone = []
        for table, report in (self.sealed.get("tables") or {}).items():
            files = sum(1 for name, _ in self.bytes_of if name == table)
            if files < report["files"]:
                gone.append(f"{report['files'] - files} of {report['files']} {table} files")
        for table, count in (self.sealed.get("rows") or {}).items():
            found = rows.get(table, 0)  # rows of every bucket count once when sealed: more is no sign
            if found < count:
                gone.append(f"{count - found:,} of {count:,} {table} rows")
        return gone


def _filesystem(root: str) -> tuple[Any, str]:
    if "://" in root:
        filesystem, path = pafs.FileSystem.from_uri(root)
        return filesystem, str(path)
    return pafs.LocalFileSystem(), root
