"""Documents of a run folder that nobody of ours wrote: one line of error or a verdict, never a
traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analysis.capture.capture import Capture
from analysis.report.documents import read_campaign, read_result, write_result
from analysis.report.trace import trace
from commands.inventory import _run as listed
from experiments.bundle.secrets import Redactor
from harness.contracts import read_document, read_rows
from harness.contracts.plan import Plan
from harness.errors import UsageError
from harness.importing.source import ImportSource
from harness.rundir import RunDir, read_json, read_jsonl, write_json
from harness.seal.seal import load_report
from tests.planted.judged import judge_here
from tests.planted.tiny import History
from tests.unit.test_sealed_documents import DOCUMENTS, sealed_run


@dataclass
class Event:
    worker: str
    t_ns: int


WRONG: tuple[Any, ...] = (None, "x", [], {}, [None], 10**30, -1.5, {"a": None})
FILES = (*DOCUMENTS, "sealed/seal.json", "result.json")


def nested(depth: int) -> str:
    return '{"a": ' + "[" * depth + "]" * depth + "}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = sealed_run(History().sent(4).log(0, 1, 3), tmp_path_factory.mktemp("hostile") / "run")
    write_result(made, judge_here(made))
    return made


def damaged(text: str) -> Iterator[str]:
    """Whole values of another kind, and each field of it as another kind."""
    yield from (nested(100), nested(5_000), nested(100_000), "null", "[]", '"text"', "12", "")
    whole = json.loads(text if text.startswith("{\n") else text.partition("\n")[0])
    rest = "" if text.startswith("{\n") else text.partition("\n")[2]
    for key in whole:
        yield from (f"{json.dumps(whole | {key: value})}\n{rest}" for value in WRONG)


def used(run: RunDir, name: str) -> None:
    """What commands do with a run: judge, show, trace, list, seal again; the result is only
    read."""
    uses: tuple[Callable[[RunDir], object], ...] = (read_result,)
    if name != run.result.name:
        uses = (judge_here, load_report, lambda run: read_document(run.plan, Plan))
    for use in (*uses, lambda run: trace(run, "1/0/2")):
        with suppress(UsageError):
            use(run)
    assert listed(run)["run_id"] == run.run_id


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_document_is_one_line_of_error_or_unknown(run: RunDir, name: str) -> None:
    path = run.root / name
    before = path.read_text()
    seal = run.seal_report.read_text()
    unsealed = json.loads(seal) | {"files": {}, "documents": {}}
    try:
        for text in damaged(before):
            if name != "sealed/seal.json":
                write_json(run.seal_report, unsealed)  # else its checksum speaks first
            path.write_text(text)
            used(run, name)
    finally:
        run.seal_report.write_text(seal)
        path.write_text(before)


@pytest.mark.parametrize(
    "text", ["null", "[]", nested(5_000), '{"runs": "abc"}', '{"runs": [1]}', '{"variants": 3}']
)
def test_a_damaged_campaign_is_listed_and_refused(tmp_path: Path, text: str) -> None:
    run = RunDir(tmp_path / "c")
    run.root.mkdir()
    run.campaign.write_text(text)
    assert "unreadable" in listed(run)["status"] or '"runs"' in text
    for use in (RunDir.rounds, read_campaign):
        with pytest.raises(UsageError):
            use(run)


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "import.yaml"
    os.mkfifo(pipe)
    for read in (read_json, read_jsonl):
        with pytest.raises(UsageError, match="not a regular file"):
            read(pipe)
    with pytest.raises(UsageError, match=r"import\.yaml is not a regular file"):
        ImportSource.open(str(tmp_path))


def test_a_row_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"worker": "p-1", "t_ns": 1}\n{"worker": "p-1", "t_ns": "soon"}\n')
    with pytest.raises(UsageError, match=r"rows\.jsonl, line 2 .*t_ns"):
        read_rows(path, Event)


def test_deep_json_goes_through_the_redactor(tmp_path: Path) -> None:
    redactor = Redactor({"MY_PASSWORD": "envPw-0006"})
    for depth in (100, 900, 5_000):
        text = '{"password": ' + "[" * depth + '"envPw-0006"' + "]" * depth + "}"
        redactor.collect("plan.json", text)
        assert "envPw" not in redactor.redacted("plan.json", text)[0]


def test_half_a_character_becomes_one_that_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"a\\ud800": ["\\udc80b", "\\ud83d\\ude00", 1]}')
    assert read_json(path) == {
        "a\N{REPLACEMENT CHARACTER}": ["\N{REPLACEMENT CHARACTER}b", "\U0001f600", 1]
    }


def test_a_folder_in_the_place_of_a_part_is_named(tmp_path: Path) -> None:
    made = sealed_run(History().sent(4).log(0, 1, 3), tmp_path / "run")
    part = next(made.sealed.glob("*/bucket=*/part-*.parquet"))
    part.unlink()
    part.mkdir()
    with pytest.raises(UsageError, match=rf"{part.name} is not a file"):
        Capture.find(made)
