"""The morning's report: one sentence, new findings first, and the same on every surface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from history.changes import Standing
from history.page import suite_page
from history.report import SuiteReport, read_report, report_of, word_of
from history.rounds import Found
from history.store import History
from history.summary import SCHEMA_FILE, document, junit_xml, markdown, schema, write_report
from tests.history_samples import LOST, a_night, a_round, regressed
from tests.report_samples import HOSTILE

NOT_RUN = {"pulsar-storm": "no time left of 3h"}


@pytest.fixture(scope="module")
def report() -> SuiteReport:
    return report_of("nightly", a_night(11), regressed(), NOT_RUN)


def test_the_headline_is_one_sentence_that_names_what_is_new(report: SuiteReport) -> None:
    assert report.headline == (
        "1 fail, 1 broken, 2 pass: acked-lost is new in kafka-storm since night-11 (0 of 33 rounds, then"
        " 3 of 3); p99 of slower went from 81 ms to 240 ms at night-10"
    )
    assert report.verdict == "fail"
    assert report.new_cells == {"kafka-storm"}


def test_a_red_cell_that_never_ran_before_is_new() -> None:
    rounds = [a_round(0), a_round(1), a_round(1, cell="fresh", hit=True)]
    assert report_of("nightly", a_night(1), rounds, {}).new_cells == {"fresh"}


def test_a_quiet_morning_says_so() -> None:
    quiet = report_of("nightly", a_night(1), [a_round(0), a_round(1)], {})
    assert (quiet.headline, quiet.verdict) == ("1 pass: nothing new", "pass")
    assert report_of("nightly", a_night(0), [a_round(0)], {}).headline == "1 pass: the first night"


def test_a_finding_has_its_witness_and_the_command_that_repeats_it(report: SuiteReport) -> None:
    (row,) = report.findings
    assert (row.state.standing, row.state.cls, row.state.cell) == (Standing.NEW, LOST, "kafka-storm")
    assert row.found is not None
    assert (row.found.message, row.seed, row.command) == ("1/3/88121", 1103, "brokerstorm run s --seed 1103")


def test_the_matrix_has_the_worst_cells_first_and_a_word_a_night(report: SuiteReport) -> None:
    assert [(row.cell, row.word) for row in report.cells] == [
        ("kafka-storm", "fail"),
        ("broken", "broken"),
        ("slower", "pass"),
        ("steady", "pass"),
    ]
    assert report.cells[0].strip == ["pass"] * 11 + ["fail"]
    assert report.cells[1].strip == ["not run"] * 11 + ["broken"]
    assert report.cells[0].rate_per_s is None


def test_a_variant_that_shows_what_it_is_expected_to_passes() -> None:
    other = Found(cls="write-duplicate", status="violation", count=1)
    shows = a_round(0, hit=True, expect=LOST)
    assert word_of(shows) == "pass"
    assert word_of(a_round(0, expect=LOST)) == "unknown"
    assert word_of(a_round(0, hit=True, expect=LOST, found=[*shows.found, other])) == "fail"
    assert word_of(a_round(0, hit=True, expect="clean")) == "fail"


def test_a_sticky_seed_says_what_it_showed() -> None:
    rounds = [a_round(0), a_round(1, hit=True), a_round(2), a_round(2, 2, hit=True, is_sticky=True, seed=7)]
    (row,) = report_of("nightly", a_night(2), rounds, {}).findings
    assert row.sticky == ["seed 7: shows it again"]


def test_the_document_is_as_its_schema_says(report: SuiteReport) -> None:
    published = json.loads(SCHEMA_FILE.read_text())
    assert published == json.loads(json.dumps(schema())), "run `make docs`"
    jsonschema.Draft202012Validator.check_schema(published)
    text = json.dumps(document(report), allow_nan=False)
    jsonschema.validate(json.loads(text), published, cls=jsonschema.Draft202012Validator)


def test_junit_has_a_case_a_cell(report: SuiteReport) -> None:
    suite = ET.fromstring(junit_xml(report))[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    failure = suite.find("testcase[@name='kafka-storm']/failure")
    assert failure is not None
    assert failure.get("message") == "new acked-lost"
    assert "brokerstorm run s --seed 1103" in str(failure.text)


def test_the_summary_is_added_to_the_file_that_ci_names(
    report: SuiteReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = tmp_path / "step.md"
    wanted.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(wanted))
    made = write_report(report, tmp_path / "out")
    assert wanted.read_text() == "before\n" + made["summary"].read_text()
    assert "| **new** | acked-lost | kafka-storm | 3 of 3 (29.2 % to 100 %) |" in wanted.read_text()
    assert "pulsar-storm: no time left of 3h" in wanted.read_text()


def test_hostile_names_make_no_markup_and_no_column(tmp_path: Path) -> None:
    name = "a|b\n" + HOSTILE
    report = report_of("nightly", a_night(11), regressed(cell=name), {name: name})
    rows = [line for line in markdown(report).splitlines() if line.startswith("| **new**")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 7
    assert "<script" not in markdown(report)
    assert "<script>alert" not in suite_page(report, tmp_path)
    ET.fromstring(junit_xml(report))


def test_the_page_links_the_reports_that_are_there(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    (run / "report.html").write_text("")
    rounds = [a_round(0, hit=True, folder=str(run)), a_round(0, 2, folder=str(tmp_path / "gone"))]
    page = suite_page(report_of("nightly", a_night(0), rounds, {}), tmp_path / "out")
    assert 'href="../runs/r1/report.html"' in page
    assert "gone/report.html" not in page


def test_an_earlier_night_is_told_as_it_was_that_morning(tmp_path: Path) -> None:
    def facts(made: SuiteReport) -> dict[str, Any]:
        return {key: value for key, value in document(made).items() if key != "not_run"}

    with History.open(tmp_path / "h.sqlite") as history:
        rounds = regressed()
        for row in rounds:
            history.add(row)
        early = [row for row in rounds if row.night <= a_night(10)]
        alone = report_of("nightly", a_night(10), early, {})
        assert facts(read_report(history, night=a_night(10))) == facts(alone)
