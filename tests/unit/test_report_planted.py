"""Every surface on results that the real kernels gave: planted captures, judged without Spark."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from analysis.findings import Result, Verdict
from analysis.report.documents import SCHEMA_FOLDER, read_result, write_result
from analysis.report.html import run_page
from analysis.report.junit import run_xml
from analysis.report.terminal import console, print_result
from analysis.report.trace import trace
from harness.rundir import read_json
from tests.planted.judged import judge_here
from tests.planted.streams import STREAMS, PlantedStream
from tests.planted.tiny import History


def terminal(result: Result) -> str:
    out = io.StringIO()
    print_result(console(out), result)
    return out.getvalue()


@pytest.mark.parametrize("stream", STREAMS, ids=lambda s: s.name)
def test_every_surface_shows_what_was_planted(stream: PlantedStream, tmp_path: Path) -> None:
    run = stream.history().write(tmp_path / "run")
    result = judge_here(run)
    write_result(run, result)
    assert read_result(run) == result
    schema = json.loads((SCHEMA_FOLDER / "run.json").read_text())
    jsonschema.validate(read_json(run.result), schema)
    text, page, xml = terminal(result), run_page(result), ET.fromstring(run_xml(result))
    if stream.cls:
        assert stream.cls in text
        assert f" {stream.cls}</span>" in page
        (case,) = [c for c in xml.iter("testcase") if c.get("name") == stream.cls]
        assert len(case), "the class is not told"
    for finding in result.findings:
        for witness in finding.witnesses:
            assert witness.message in page
            found = trace(run, witness.message)
            assert found.message.partition(".")[0] == witness.message.partition(".")[0]


def test_premature_reads_as_it_is_written_everywhere(tmp_path: Path) -> None:
    h = History().sent(6).log(0, 3, 1, 2, 3, 4, 5).deliver(0, 3, 1, 2, 3, 4, 5).commit(7)
    result = judge_here(h.write(tmp_path / "run"))
    assert result.verdict is Verdict.FAIL
    assert "... 0 [3] 1 2 3 4 ..." in terminal(result)
    assert "... 0 [3] 1 2 3 4 ..." in run_page(result)
    assert "... 0 [3] 1 2 3 4 ..." in run_xml(result)


def test_a_lost_message_reads_as_missing(tmp_path: Path) -> None:
    h = History().fault("kill", "kafka-1", at_ms=1, until_ms=3)
    h.sent(6).log(0, 1, 4, 5).deliver(0, 1, 4, 5).commit(4)
    result = judge_here(h.write(tmp_path / "run"))
    text = terminal(result)
    assert "... 0 1 [2] (3) 4 5 ..." in text
    assert "1/0/2 on orders-0" in text
    assert "kill kafka-1 #1 +" in text
