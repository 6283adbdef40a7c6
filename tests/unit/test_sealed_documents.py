"""A document that judging reads is under seal: a plan or manifest that is gone or changed proves
nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from analysis.findings import Verdict
from harness.errors import UsageError
from harness.rundir import RunDir, append_jsonl, read_json, read_jsonl, write_json, write_jsonl
from harness.seal.seal import sealed_documents, write_sealed_rows
from tests.planted.judged import judge_here
from tests.planted.streams import STREAMS
from tests.planted.tiny import EPOCH_NS, History

S = 1_000_000_000
Change = Callable[[str], str | None]


def _edited(text: str) -> str:
    """A promise less, a worker less, one more number: the document can still be read."""
    if text.startswith("{\n"):
        document = json.loads(text)
        for name in ("producers", "workers"):
            document[name] = []
        return json.dumps(document, indent=1)
    first, _, rest = text.partition("\n")
    row = json.loads(first) | {"t_ns": 1, "id": 1, "end": 1}
    return f"{json.dumps(row)}\n{rest}"


CHANGES: Mapping[str, Change] = {
    "removed": lambda text: None,
    "emptied": lambda text: "",
    "cut": lambda text: text[: 2 * len(text) // 3],
    "without its last line": lambda text: "".join(text.splitlines(keepends=True)[:-1]),
    "without its first line": lambda text: text.partition("\n")[2],
    "edited": _edited,
}
DOCUMENTS = (
    *("plan.json", "manifest.json", "faults.jsonl", "events.jsonl", "metrics.jsonl"),
    *("sealed/names.jsonl", "sealed/log_bounds.jsonl", "sealed/leaderships.jsonl"),
)
FAULTS = [
    {
        "id": 1,
        "event": "inject",
        "kind": "client-kill",
        "target": "c-1",
        "targets": ["c-1"],
        "t_ns": EPOCH_NS,
    },
    {"id": 1, "event": "effect", "effective": True, "t_ns": EPOCH_NS + 1},
    {"id": 1, "event": "heal", "t_ns": EPOCH_NS + S},
    {"id": 1, "event": "healed", "ok": True, "undone": True, "t_ns": EPOCH_NS + S},
]


def sealed_run(history: History, root: Path) -> RunDir:
    """As `History.write`, with every document that a run has, under seal."""
    history.led("kafka-1", 0, at_ms=0.0)
    history.plan = history.plan.model_copy(update={"rate_per_s": 0.0})
    run = history.write(root)
    write_json(run.plan, read_json(run.plan) | {"faults": [{"fault": "client-kill"}]})
    write_jsonl(run.faults, FAULTS)
    write_jsonl(run.events, [{"t_ns": EPOCH_NS, "kind": "note", "worker": "p-1"}] * 3)
    write_jsonl(run.metrics, [{"t_ns": EPOCH_NS + S, "worker": "p-1", "late_max_ns": 1}] * 3)
    files = {
        path.name: write_sealed_rows(path, read_jsonl(path)) for path in run.sealed.glob("*.jsonl")
    }
    said = {name: asdict(file) for name, file in files.items()}
    beside = {name: asdict(file) for name, file in sealed_documents(run).items()}
    tables = {
        p.relative_to(run.sealed).as_posix(): {
            "rows": 1,
            "bytes": p.stat().st_size,
            "sha256": _sum(p),
        }
        for p in run.sealed.glob("*/*/*.parquet")
    }
    write_json(
        run.seal_report, read_json(run.seal_report) | {"files": said | tables, "documents": beside}
    )
    return run


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def passed(tmp_path: Path) -> RunDir:
    return sealed_run(
        History().sent(6).log(*range(6)).deliver(*range(6)).commit(6), tmp_path / "passed"
    )


@pytest.fixture
def failed(tmp_path: Path) -> RunDir:
    history = next(s for s in STREAMS if s.name == "acked-loss-last-two").history()
    return sealed_run(history, tmp_path / "failed")


def test_as_they_were_sealed_both_are_judged(passed: RunDir, failed: RunDir) -> None:
    assert (judge_here(passed).verdict, judge_here(failed).verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_one_that_changed_proves_nothing(
    passed: RunDir, failed: RunDir, name: str, change: str
) -> None:
    for run in (passed, failed):
        path = run.root / name
        before = path.read_text()
        after = CHANGES[change](before)
        if after is None:
            path.unlink()
        else:
            path.write_text(after)
        if after == before or not before:
            continue
        try:
            result = judge_here(run)
        except UsageError:
            continue  # it cannot be read at all
        assert result.verdict is Verdict.UNKNOWN
        assert result.findings == []
        what = "is missing" if after is None else "is not the file that was sealed"
        assert any(f"{name} {what}" in reason for reason in result.reasons), result.reasons
        untrue = ("the run ended before", "no message was sent")
        assert not any(text in reason for reason in result.reasons for text in untrue)


def test_rows_are_counted(passed: RunDir) -> None:
    passed.faults.write_text(CHANGES["without its last line"](passed.faults.read_text()) or "")
    assert any(
        "faults.jsonl is not the file that was sealed: 3 of 4 rows" in r
        for r in judge_here(passed).reasons
    )


def test_a_heal_after_the_run_may_be_added_and_nothing_else(passed: RunDir) -> None:
    """`clean` heals what a killed harness left, be the run sealed by then or not."""
    append_jsonl(passed.faults, {"id": 1, "event": "heal", "t_ns": EPOCH_NS + 9 * S})
    append_jsonl(
        passed.faults,
        {"id": 1, "event": "healed", "ok": True, "undone": True, "t_ns": EPOCH_NS + 9 * S},
    )
    assert judge_here(passed).verdict is Verdict.PASS
    append_jsonl(passed.faults, {**FAULTS[0], "id": 2})
    assert judge_here(passed).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], "faults.jsonl has no row, and 1 faults were planned"),
        (FAULTS[1:], "lacks the first row of fault #1"),
    ],
)
def test_a_capture_without_checksums_is_held_against_its_plan(
    failed: RunDir, rows: list[dict[str, object]], text: str
) -> None:
    write_json(failed.seal_report, read_json(failed.seal_report) | {"files": {}, "documents": {}})
    write_jsonl(failed.faults, rows)
    result = judge_here(failed)
    assert (result.verdict, result.findings) == (Verdict.UNKNOWN, [])
    assert any(text in reason for reason in result.reasons)
