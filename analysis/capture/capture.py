"""Finds the sealed files of a run: which buckets there are, how large, and whether any is missing
or changed.

Whoever reads a sealed file holds it against the checksum in seal.json first. A file that is gone or
is not the one that was sealed makes its bucket unjudged, never a finding: a row that was recorded
and is gone looks like a loss.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from analysis.capture.left_out import LeftOut, read_left_out
from harness.contracts import read_document
from harness.contracts.seal import SealedFile, SealReport
from harness.errors import UsageError
from harness.filesystems import filesystem_of, origin_of
from harness.records import SEALED
from harness.rundir import MOST_ROWS_BYTES, RunDir, read_bytes

_BUCKET = re.compile(r"/(\w+)/bucket=(\d+)/[^/]+\.parquet$")


@dataclass(frozen=True, slots=True)
class Capture:
    """Sealed tables below ``root_uri`` (a path, or a URI that pyarrow.fs knows).

    ``bytes_of``: size by (table, bucket). ``files_of``: number of files by table. ``sealed``: what
    seal.json says was written. ``left_out``: what the bundle that it came from does not hold.
    """

    root_uri: str
    bytes_of: Mapping[tuple[str, int], int]
    sealed: SealReport
    left_out: LeftOut = field(default_factory=LeftOut)
    files_of: Mapping[str, int] = field(default_factory=dict)

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
        # executors work in other folders
        root = root_uri or origin_of(run) or str(run.root.absolute())
        try:
            filesystem, path = filesystem_of(root)
            infos = filesystem.get_file_info(pafs.FileSelector(f"{path}/sealed", recursive=True))
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"cannot read the sealed tables in {root}: {error}") from error
        sizes: dict[tuple[str, int], int] = {}
        files = dict.fromkeys(SEALED, 0)
        for info in infos:
            match = _BUCKET.search(info.path)
            if match and match[1] in SEALED:
                key = (match[1], int(match[2]))
                if not info.is_file:
                    raise UsageError(f"{info.path} is not a file: a part of a table is missing")
                sizes[key] = sizes.get(key, 0) + info.size
                files[match[1]] += 1
        return cls(
            root, sizes, read_document(run.seal_report, SealReport), read_left_out(run), files
        )

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of every sealed file by its path below ``sealed``; empty where seal.json holds
        none."""
        return {path: file.sha256 for path, file in self.sealed.files.items()}

    def buckets(self) -> tuple[int, ...]:
        """Buckets that have or had any rows, largest first, so that the last task to start is a
        short one."""
        total: dict[int, int] = {}
        for (_, bucket), size in self.bytes_of.items():
            total[bucket] = total.get(bucket, 0) + size
        for path in self.checksums:
            if match := _BUCKET.search(f"/{path}"):
                total.setdefault(int(match[2]), 0)
        return tuple(sorted(total, key=lambda bucket: (-total[bucket], bucket)))

    def largest(self) -> int:
        """Rows of the bucket that was sealed with most, in all tables; 0 where seal.json does not
        say."""
        rows: dict[str, int] = {}
        for path, file in self.sealed.files.items():
            if match := _BUCKET.search(f"/{path}"):
                rows[match[2]] = rows.get(match[2], 0) + file.rows
        return max(rows.values(), default=0)

    def missing(self, rows: Mapping[str, int]) -> list[str]:
        """Return the files and rows, by table, that seal.json declares and judging did not find."""
        gone = []
        for table, report in self.sealed.tables.items():
            files = self.files_of.get(table, 0)
            if files < report.files:
                gone.append(f"{report.files - files} of {report.files} {table} files")
        for table, count in self.sealed.rows.items():
            # rows of every bucket count once when sealed: more proves nothing
            found = rows.get(table, 0)
            if found < count:
                gone.append(f"{count - found:,} of {count:,} {table} rows")
        return gone

    def torn(self) -> list[str]:
        """Records that were damaged before they were sealed, by worker."""
        damaged = sorted(self.sealed.damaged_workers)
        return [f"rows of {worker}, with damaged segments" for worker in damaged]

    def changed_documents(self, run: RunDir) -> list[str]:
        """The small files that judging reads (plan, manifest, faults, events, metrics, names,
        bounds) and that are gone or are not those that were sealed."""
        paths = [path for path in self.checksums if not _BUCKET.search(f"/{path}")]
        found = [
            _damage_of(pafs.LocalFileSystem(), str(run.sealed), path, self.checksums)
            for path in paths
        ]
        found += [_damage_beside(run, name, file) for name, file in self.sealed.documents.items()]
        return [text for text in found if text]


def _damage_beside(run: RunDir, name: str, sealed: SealedFile) -> str:
    """Return the damage of a document of the run; empty if it is as it was when the run was sealed.

    A fault that outlived its run is healed later, by `clean`, which says so at the end of
    faults.jsonl.
    """
    try:
        data = read_bytes(run.root / name, MOST_ROWS_BYTES)
    except UsageError as error:
        return f"{name} is missing" if not (run.root / name).exists() else str(error)
    later = (
        [line for line in data[sealed.bytes :].split(b"\n") if line]
        if name == run.faults.name
        else []
    )
    if later and not all(b'"event": "heal' in line for line in later):
        later = []
    if hashlib.sha256(data[: sealed.bytes] if later else data).hexdigest() == sealed.sha256:
        return ""
    rows, had = data.count(b"\n"), sealed.rows
    counted = f": {rows:,} of {had:,} rows" if rows != had else ""
    return f"{name} is not the file that was sealed{counted}"


def bucket_parts(filesystem: Any, root: str, table: str, bucket: int) -> list[str]:
    """Paths of all files that hold a table's rows of one bucket, in the order they were sealed in.

    There may be many: a long run is sealed during the load, and other machines seal their own rows.
    A table without rows in this bucket has none.
    """
    selector = pafs.FileSelector(f"{root}/sealed/{table}/bucket={bucket:02d}", allow_not_found=True)
    found = (info for info in filesystem.get_file_info(selector) if info.is_file)
    paths = (info.path for info in found if info.path.endswith(".parquet"))
    return sorted(paths, key=lambda path: (len(path), path))  # part-10 comes after part-9


def damaged_files(root_uri: str, bucket: int, checksums: Mapping[str, str]) -> list[str]:
    """A sentence for each file of a bucket that is gone, is not as it was sealed, or was not sealed
    at all.

    Without ``checksums`` (a capture that was imported, or sealed before there were any) nothing is
    known.
    """
    if not checksums:
        return []
    filesystem, root = filesystem_of(root_uri)
    folder = f"{root}/sealed"
    paths = {path for path in checksums if f"/bucket={bucket:02d}/" in path}
    for table in SEALED:
        parts = bucket_parts(filesystem, root, table, bucket)
        paths |= {path.removeprefix(f"{folder}/") for path in parts}
    found = (_damage_of(filesystem, folder, path, checksums) for path in sorted(paths))
    return [text for text in found if text]


def _damage_of(filesystem: Any, folder: str, path: str, checksums: Mapping[str, str]) -> str:
    """Return the damage of the file ``path`` below the sealed ``folder``; empty if it is as it was
    when the run was sealed.
    """
    try:
        with filesystem.open_input_stream(f"{folder}/{path}") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return f"sealed/{path} is missing"
    except OSError as error:
        return f"sealed/{path} cannot be read: {error}"
    return "" if found == checksums.get(path) else f"sealed/{path} is not the file that was sealed"
