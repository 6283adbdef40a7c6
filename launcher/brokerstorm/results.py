"""Holds what a run found as data, and asserts that it found nothing.

Made from the JSON documents of the command (docs/reference/json.md), which hold more: `Run.document`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["pass", "fail", "unknown"]
Document = Mapping[str, Any]
#: Exit code -> what it says of all runs together.
_VERDICTS: Mapping[int, Verdict] = {0: "pass", 1: "fail", 3: "unknown"}


@dataclass(frozen=True, slots=True)
class Witness:
    """One concrete message, call or window that shows a class of anomalies.

    Attributes:
        message: ``instance/lane/seq``; `brokerstorm trace` takes it.
        where: its partition, topic or queue.
        sentence: what happened to it.
        t_s: seconds since the start of load.
    """

    message: str
    where: str
    sentence: str
    t_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A class of anomalies with everything found of it.

    Attributes:
        cls: its name; `brokerstorm explain` says what it means.
        status: violation, suspect, permitted, application-error or info.
        count: messages, or windows.
        promise: the promise that it breaks, and where that comes from.
    """

    cls: str
    status: str
    count: int
    sentence: str
    promise: str
    witnesses: tuple[Witness, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a run, or one that was injected into a cluster that is up.

    Attributes:
        t_s: seconds into the load; 0 on a cluster without one.
        effective: it was proved to take effect; ``evidence`` says how.
        healed: it was undone, and the cluster was seen whole again.
        skipped: why it was not injected; empty = it was.
        targets: what was hit, by name; of one injected into a cluster.
        applied: it still is: nothing has healed it yet; likewise.
    """

    kind: str
    target: str
    effective: bool
    healed: bool
    evidence: str
    skipped: str
    t_s: float = 0.0
    targets: tuple[str, ...] = ()
    applied: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run and its verdict.

    Attributes:
        variant: of a scenario with variants; else empty.
        reasons: why it is no pass.
        findings: violations first.
        folder: capture, logs and report.html.
        document: everything, as in result.json.
    """

    name: str
    variant: str
    verdict: Verdict
    reasons: tuple[str, ...]
    findings: tuple[Finding, ...]
    faults: tuple[Fault, ...]
    folder: Path
    document: Document = field(repr=False)

    @property
    def violations(self) -> tuple[Finding, ...]:
        """What made the verdict *fail*."""
        return tuple(each for each in self.findings if each.status == "violation" and each.count)

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


@dataclass(frozen=True, slots=True)
class Result:
    """What was asked for: one run, or all rounds of all variants.

    Attributes:
        verdict: of one run, its own; of several, pass means that every variant did as the scenario expects.
        seed: runs with it have the same faults.
        folder: of one run, its own; of several, the one that theirs lie in.
    """

    verdict: Verdict
    exit_code: int
    scenario: str
    seed: int
    runs: tuple[Run, ...]
    folder: Path
    document: Document = field(repr=False)

    @property
    def report(self) -> Path:
        return self.folder / "report.html"


def result_of(document: Document, run_dir: Path) -> Result:
    """The document of `brokerstorm run` as data; runs of a campaign are read from its folder."""
    folder = run_dir / str(document.get("campaign_id") or document["run_id"])
    if "campaign_id" in document:
        folders = [folder / str(path) for path in document["runs"]]
        runs = tuple(_run(json.loads((each / "result.json").read_text()), each) for each in folders)
    else:
        runs = (_run(document, folder),)
    return Result(
        verdict=_VERDICTS[int(document["exit_code"])],
        exit_code=int(document["exit_code"]),
        scenario=str(document["scenario"]),
        seed=int(document["seed"]),
        runs=runs,
        folder=folder,
        document=document,
    )


def _run(document: Document, folder: Path) -> Run:
    return Run(
        name=str(document["run_id"]),
        variant=str(document["variant"]),
        verdict=_VERDICTS[int(document["exit_code"])],
        reasons=tuple(document["reasons"]),
        findings=tuple(map(_finding, document["findings"])),
        faults=tuple(map(fault_of, document["faults"])),
        folder=folder,
        document=document,
    )


def fault_of(row: Document) -> Fault:
    """A row of result.json, or the document of `brokerstorm inject`."""
    known = {name: row[name] for name in Fault.__slots__ if name in row}
    return Fault(**known | {"targets": tuple(row.get("targets", ()))})


def _finding(row: Document) -> Finding:
    return Finding(
        cls=row["class"],
        status=row["status"],
        count=row["count"],
        sentence=row["sentence"],
        promise=row["promise"],
        witnesses=tuple(
            Witness(**{name: each[name] for name in Witness.__slots__}) for each in row["witnesses"]
        ),
    )


def assert_clean(result: Result) -> None:
    """Every run passed: no promise was broken, and the run could have shown it.

    A run that is *unknown* proves nothing, so it is not clean; nor is a variant that breaks a promise as its
    scenario expects.

    Raises:
        AssertionError: with what was found, the first message that shows it, and where to look.
    """
    __tracebackhide__ = True
    told = [_told(run) for run in result.runs if run.verdict != "pass"]
    if told or not result.runs:
        raise AssertionError("\n".join(told) or f"{result.scenario}: no run was finished")


def _told(run: Run) -> str:
    lines = [f"{run.name}: {run.verdict}"]
    for finding in run.violations:
        lines.append(f"  {finding.count:,} {finding.cls}: {finding.sentence} ({finding.promise})")
        if finding.witnesses:
            first = finding.witnesses[0]
            lines.append(f"    first {first.message} on {first.where} at {first.t_s:.3f} s: {first.sentence}")
            lines.append(f"    brokerstorm trace {first.message} {run.folder}")
    if not run.violations:
        lines += [f"  {reason}" for reason in run.reasons]
    return "\n".join([*lines, f"  report {run.report}"])
