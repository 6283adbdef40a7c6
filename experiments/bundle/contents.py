"""Collects what goes into a bundle: the documents and logs of a run or campaign, and the sealed
files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from analysis.capture.capture import Capture
from analysis.capture.left_out import LeftOut
from analysis.findings import Result
from analysis.report.documents import read_campaign, read_result
from analysis.verdict.campaign import Campaign
from experiments.bundle.names import is_of_a_bundle, stays_with_the_run
from harness.contracts import read_document
from harness.contracts.plan import Plan
from harness.errors import UsageError
from harness.log_stamp import Stamp
from harness.logs import log_files
from harness.rundir import RunDir, read_json

#: Made again when a bundle is opened, or of no use elsewhere.
_NOT_TAKEN: Final = frozenset({"bundle.json", "issue.md", "left-out.json"})
_NO_FOLDERS: Final = frozenset({"ledger", "calibration", "data", "tmp"})
#: Of a larger log only the end is looked at.
MOST_LOG_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class JudgedRound:
    """A run, or one round of a campaign. ``prefix``: of its files in the bundle, empty or
    ``unsafe-1/``."""

    prefix: str
    run: RunDir
    result: Result
    plan: Plan
    capture: Capture

    @property
    def buckets(self) -> frozenset[int]:
        """Return the buckets that exist and may be taken or left out."""
        return frozenset(self.capture.buckets()) - self.capture.left_out.buckets

    def bucket_bytes(self, buckets: frozenset[int]) -> int:
        """Return the size of some buckets, in bytes."""
        return sum(size for (_, number), size in self.capture.bytes_of.items() if number in buckets)

    def sealed_files(self, buckets: frozenset[int]) -> Iterator[tuple[str, Path]]:
        """Name in the bundle, and the file, of every table of these buckets."""
        for table, number in sorted(self.capture.bytes_of):
            if number in buckets:
                for path in sorted(self.run.bucket_folder(table, number).glob("*.parquet")):
                    yield self.prefix + path.relative_to(self.run.root).as_posix(), path

    def left_out(self, kept: frozenset[int]) -> LeftOut:
        """Return what the bundle declares if it holds only the buckets ``kept``."""
        earlier = self.capture.left_out
        gone = (self.buckets - kept) | earlier.buckets
        if not gone:
            return LeftOut()
        # A bundle of a bundle: the result of the whole run is the one that came with it.
        before = dict(earlier.before) if earlier else read_json(self.run.result)
        found = ", ".join(
            f"{finding['class']} {finding['count']:,}"
            for finding in before["findings"]
            if finding["count"]
        )
        text = (
            f"the bundle leaves out {len(gone)} of {len(self.capture.buckets())} buckets of the capture "
            f"({_streams_of(self.plan, gone)}); the whole was judged {before['verdict']}, "
            f"{f'with {found}' if found else 'with no finding'}"
        )
        return LeftOut(gone, text, before)


@dataclass(frozen=True, slots=True)
class Judged:
    """A run or a campaign with all that is known of it."""

    root: RunDir
    rounds: list[JudgedRound]
    campaign: Campaign | None = None


@dataclass(slots=True)
class Texts:
    """Text files by their name in the bundle; of others, why they are not in it."""

    files: dict[str, str] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)
    omitted: dict[str, str] = field(default_factory=dict)


def read_judged(root: RunDir) -> Judged:
    """A finished run or campaign.

    Raises:
        UsageError: not sealed, not judged, damaged.
    """
    if not root.campaign.exists():
        return Judged(root, [_round(root, "")])
    campaign = read_campaign(root)
    rounds = [_round(run, f"{run.run_id}/") for run in root.rounds() if run.manifest.exists()]
    if not rounds:
        raise UsageError(f"{root.root} contains no run with captured data")
    return Judged(root, rounds, campaign)


def _round(run: RunDir, prefix: str) -> JudgedRound:
    return JudgedRound(
        prefix, run, read_result(run), read_document(run.plan, Plan), Capture.find(run)
    )


def read_texts(root: RunDir) -> Texts:
    """Every text file of a run or campaign that a bundle may hold, except the ones that are
    generated; with a round of a campaign, the scenario and the logs of the cluster as well."""
    texts = Texts()
    found = [(path, root) for path in _files(root.root)]
    above = RunDir(root.root.parent)
    if above.campaign.exists():
        found += [
            (path, above) for path in (above.scenario, *_files(above.cluster)) if path.is_file()
        ]
    for path, run in found:
        name = path.relative_to(run.root).as_posix()
        if is_of_a_bundle(name):
            _take(texts, path, name)
        elif "/applications/" in f"/{name}":
            texts.omitted[name] = "what an application wrote may hold data of its users"
        elif not stays_with_the_run(name):
            texts.omitted[name] = "no bundle may hold a file of this name"
    return texts


def _files(root: Path) -> Iterator[Path]:
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if name not in _NO_FOLDERS)
        for name in sorted(names):
            path = Path(folder) / name
            is_taken = name not in _NOT_TAKEN and path.suffix != ".parquet"
            if is_taken and path.is_file() and not path.is_symlink():
                yield path


def _take(texts: Texts, path: Path, name: str) -> None:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if is_log(name) and size > MOST_LOG_BYTES:
                texts.omitted[name] = f"all but its last {MOST_LOG_BYTES >> 20} MiB: too large"
                file.seek(size - MOST_LOG_BYTES)
            data = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if b"\0" in data:
        texts.omitted[name] = "it is not text"
    else:
        texts.files[name], texts.paths[name] = data.decode("utf-8", "surrogateescape"), path


def is_log(name: str) -> bool:
    """A log of a broker or a client, which may be cut."""
    return "/logs/" in name or name.endswith("/stderr.log")


def is_talk(name: str) -> bool:
    """Return whether a file is a message of a worker to the running harness, which is not read
    later."""
    return name.endswith("/stdout.jsonl")


def stamps_of(judged: Judged) -> dict[Path, tuple[Stamp, ...]]:
    """How the lines of each log begin."""
    return {log.path: log.stamps for each in judged.rounds for log in log_files(each.run)}


def _streams_of(plan: Plan, buckets: frozenset[int]) -> str:
    """The streams whose lanes are in some buckets, the first of them by name."""
    names: list[str] = []
    for group in plan.lane_groups:
        if group.mode == "partition":
            lanes = range(group.count)
            names += [
                f"{group.topic}-{at}" for at in lanes if group.bucket(group.first + at) in buckets
            ]
        elif buckets & set(group.buckets):
            names.append(group.topic)
    shown = list(dict.fromkeys(names))
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(shown[:3]) + more
