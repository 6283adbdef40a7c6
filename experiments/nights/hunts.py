"""Hunts in a night: a cell that hunts, what it found in words, and its row in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from analysis.findings import Status
from experiments.history.rounds import Found, Labels, Round
from experiments.hunt.hunting import HuntRequest
from experiments.nights.matrix import Cell, HuntCell
from experiments.nights.night import Ended
from harness.rundir import Document, RunDir

#: In the folder of runs: the corpora of hunts that name none.
CORPORA: Final = "corpus"


def hunt_request(
    cell: Cell, hunted: HuntCell, run_dir: Path, *, seed: int, offline: bool
) -> HuntRequest:
    """Return what a cell asks of `hunt`; its corpus is the same every night."""
    corpus = Path(hunted.corpus) if hunted.corpus else run_dir / CORPORA / cell.slug
    return HuntRequest(
        scenario="" if hunted.is_calm else cell.scenario,
        client="@".join(part for part in (cell.client, cell.client_version) if part),
        system="",
        variant="",
        overrides=cell.overrides,
        seed=seed,
        budget_s=hunted.budget_s,
        rounds=None,
        corpus=corpus,
        known=hunted.known,
        reference=hunted.reference,
        resume=None,
        offline=offline,
        runtime=cell.runtime,
        master=None,
    )


def hunt_reasons(document: Document) -> list[str]:
    """Return what a hunt found, a line each."""
    return [_found_text(each) for each in _violations(document)]


def _violations(document: Document) -> Sequence[Document]:
    """Return what broke a promise, without lines of logs."""
    return [each for each in document["found"] if each["is_violation"]]


def _found_text(found: Document) -> str:
    text = f"{', '.join(found['what'])} in {found['shown']} of {len(found['rounds'])} rounds"
    if found["reference_judged"]:
        shown = f"{found['reference_shown']} of {found['reference_judged']}"
        text += f", with the reference client in {shown}"
    return f"{text}: {found['file']}"


def hunt_round(
    folder: RunDir, cell: Cell, labels: Labels, ended: Ended, document: Document
) -> Round:
    """Return the row of a hunt: one for all its rounds, with their numbers as exposure."""
    numbers = {
        f"hunt_{name}": int(document[name])
        for name in ("judged", "features", "new_features", "entries", "new_entries")
    }
    found = [
        Found(
            cls=cls,
            status=Status.VIOLATION,
            count=each["shown"],
            sentence=_found_text(each),
            said=_found_text(each),
        )
        for each in _violations(document)
        for cls in each["what"]
    ]
    return Round(
        **asdict(labels),
        key=f"{labels.night} {labels.suite} {labels.cell} {labels.round}",
        scenario=cell.scenario,
        client=cell.client,
        client_version=cell.client_version or None,
        system=cell.system,
        broker_version=cell.broker_version or None,
        seed=ended.seed,
        folder=str(folder.root),
        started=ended.started,
        ended=ended.ended,
        duration_s=ended.duration_s,
        verdict=None if ended.verdict == "broken" else ended.verdict,
        exit_code=ended.exit_code,
        reasons=list(ended.reasons),
        found=found,
        exposure=numbers,
        command=ended.command,
    )
