"""Results of runs as data, and `assert_clean`.

They are made from the JSON documents of the command line (docs/reference/json.md). `Run.document`
has the complete one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Verdict = Literal["pass", "fail", "unknown"]
Document = Mapping[str, Any]
#: Verdict of all runs together, by exit code.
_VERDICTS: Mapping[int, Verdict] = {0: "pass", 1: "fail", 3: "unknown"}


@dataclass(frozen=True, slots=True)
class Witness:
    """An example of a finding: one message, one call or one time window.

    Attributes:
        message: Identity of the message, ``instance/lane/seq``; an argument of ``brokerstorm
            trace``.
        where: Partition, topic or queue of the message.
        sentence: Description of what happened to the message.
        t_s: Seconds since the start of the load.
    """

    message: str
    where: str
    sentence: str
    t_s: float


@dataclass(frozen=True, slots=True)
class Finding:
    """All hits of one class of anomalies in a run.

    Attributes:
        cls: Name of the class. ``brokerstorm explain CLASS`` describes it.
        status: ``violation``, ``suspect``, ``permitted``, ``application-error`` or ``info``.
        count: Number of messages or time windows.
        sentence: Description of the class in one sentence.
        promise: The promise that was broken, and the setting or requirement that makes it.
        witnesses: Some examples.
    """

    cls: str
    status: str
    count: int
    sentence: str
    promise: str
    witnesses: tuple[Witness, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a run, or a fault that `Cluster.inject` injected.

    Attributes:
        kind: Kind of fault, one of ``brokerstorm list faults``.
        target: Target as the scenario names it.
        effective: Whether the fault provably took effect.
        healed: Whether the fault was undone and the cluster worked again afterwards.
        evidence: Proof that the fault took effect.
        skipped: Reason why the fault was not injected. Empty if it was injected.
        t_s: Start in seconds since the start of the load. 0 for a cluster without a load.
        targets: Names of the nodes or clients that were hit. Only set by `Cluster.inject`.
        applied: Whether the fault is still active. Only set by `Cluster.inject`.
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
    """A run and its verdict.

    Attributes:
        name: Name of the run.
        variant: Name of the variant. Empty if the scenario has no variants.
        verdict: ``pass``, ``fail`` or ``unknown``.
        reasons: Reasons why the verdict is not *pass*. Empty for *pass*.
        findings: All classes that were found, violations first.
        faults: All faults, in the order of their start.
        folder: Folder with the captured data, logs and ``report.html``.
        document: The complete result.json.
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
        """The findings that made the verdict *fail*."""
        return tuple(each for each in self.findings if each.status == "violation" and each.count)

    @property
    def report(self) -> Path:
        """Path of the report, an HTML page."""
        return self.folder / "report.html"


@dataclass(frozen=True, slots=True)
class Result:
    """Result of `run`: one run, or all runs of all variants.

    Attributes:
        verdict: Verdict of a single run. For several runs, ``pass`` means that every variant gave
            the result that the scenario expects.
        exit_code: Exit code of the command line.
        scenario: Name of the scenario.
        seed: Seed of the faults. Runs with the same seed have the same faults.
        runs: All runs.
        folder: Folder of a single run, or the folder that contains the folders of all runs.
        document: The complete JSON document of the command.
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
        """Path of the report, an HTML page."""
        return self.folder / "report.html"


def result_of(document: Document, run_dir: Path) -> Result:
    """Convert the JSON document of ``brokerstorm run``. Runs of a campaign are read from its
    folder."""
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
    """Convert a fault of result.json, or the JSON document of ``brokerstorm inject``."""
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
    """Check that every run passed, which means that no promise was broken and that the run could
    have shown it.

    An *unknown* run proves nothing, so it is not clean. Neither is a variant that breaks a promise,
    even if the scenario expects it.

    Raises:
        AssertionError: A run did not pass. The message lists the findings with the first example of
            each, and the path of the report.
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
            lines.append(
                f"    first {first.message} on {first.where} at {first.t_s:.3f} s: {first.sentence}"
            )
            lines.append(f"    brokerstorm trace {first.message} {run.folder}")
    if not run.violations:
        lines += [f"  {reason}" for reason in run.reasons]
    return "\n".join([*lines, f"  report {run.report}"])
