"""The morning's report: one sentence, new findings first, and the same on every surface."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from experiments.history.changes import Standing
from experiments.history.compare import compare_nights
from experiments.history.decision import Decision
from experiments.history.page import suite_page
from experiments.history.report import (
    SuiteReport,
    new_cells,
    night_of,
    read_report,
    report_of,
    word_of,
)
from experiments.history.rounds import Found
from experiments.history.store import History
from experiments.history.summary import (
    SCHEMA_FILE,
    document,
    junit_xml,
    markdown,
    schema,
    write_report,
)
from harness.errors import FailOn
from tests.history_samples import LOST, a_night, a_round, regressed
from tests.report_samples import HOSTILE

NOT_RUN = {"pulsar-storm": "no time left of 3h"}


@pytest.fixture(scope="module")
def report() -> SuiteReport:
    return report_of("nightly", a_night(11), regressed(), NOT_RUN)


def test_the_headline_is_one_sentence_that_names_what_is_new(report: SuiteReport) -> None:
    assert report.headline == (
        "1 fail, 1 broken, 2 pass: acked-lost is new in kafka-storm since night-11 (0 of 33 "
        "rounds, then 3 of 3); p99 of slower went from 81 ms to 240 ms at night-10"
    )
    assert report.verdict == "fail"
    assert new_cells(report.fresh, report.cells) == {"kafka-storm"}


def test_a_red_cell_that_never_ran_before_is_new() -> None:
    rounds = [a_round(0), a_round(1), a_round(1, cell="fresh", hit=True)]
    report = report_of("nightly", a_night(1), rounds, {})
    assert new_cells(report.fresh, report.cells) == {"fresh"}


def test_a_quiet_morning_says_so() -> None:
    quiet = report_of("nightly", a_night(1), [a_round(0), a_round(1)], {})
    assert (quiet.headline, quiet.verdict) == ("1 pass: nothing new", "pass")
    assert report_of("nightly", a_night(0), [a_round(0)], {}).headline == "1 pass: the first night"


def test_other_versions_than_the_night_before_are_said_first_everywhere(tmp_path: Path) -> None:
    rounds = [
        a_round(0, client="sarama", client_version="2.15.1"),
        a_round(1, client="sarama", client_version="2.16.1", hit=True),
    ]
    report = report_of("nightly", a_night(1), rounds, {})
    (change,) = report.versions
    assert (change.before, change.after) == ("2.15.1", "2.16.1")
    assert report.headline.startswith(f"{change.text}; 1 fail")
    assert change.text in suite_page(report, tmp_path, {})
    (said,) = ET.fromstring(junit_xml(report)).iter("property")
    assert said.get("value") == change.text
    assert "2.15.1 to 2.16.1" in markdown(report).splitlines()[2]


def test_a_night_that_was_ended_early_is_no_pass(tmp_path: Path) -> None:
    with History.open(tmp_path / "history.sqlite") as history:
        history.add(a_round(0))
        history.add(a_round(1))
        known = read_report(history, "nightly", a_night(1), unplayed={"other": "ended early"})
        assert (known.verdict, known.exit_code) == ("unknown", 3)
        assert known.headline.startswith("ended early, 1 cell not played to the end; 1 pass")
        begun = [("nightly", a_night(2))]
        assert night_of(history, begun=begun) == ("nightly", a_night(2))
        assert (
            read_report(history, "nightly", a_night(2), unplayed={"all": "ended early"}).exit_code
            == 3
        )


def test_the_page_says_why_a_cell_is_red_and_when_nothing_could_be_tested(tmp_path: Path) -> None:
    red = a_round(
        0, verdict="fail", exit_code=1, reasons=["latency_max: 195 ms, at most 1 ms required"]
    )
    page = suite_page(report_of("nightly", a_night(0), [red], {}), tmp_path, {})
    assert "latency_max: 195 ms, at most 1 ms required" in page
    assert "Nothing could be tested this morning" in page
    assert "last 1 night" not in page
    later = [*regressed(), replace(red, night=a_night(11))]
    tested = " ".join(
        suite_page(report_of("nightly", a_night(11), later, {}), tmp_path, {}).split()
    )
    assert "1 class of a cell and 3 figures were tested" in tested


def test_on_the_first_night_nothing_is_still_there() -> None:
    rounds = [a_round(0, number, hit=True) for number in (1, 2, 3)]
    first = report_of("nightly", a_night(0), rounds, {}, fail_on="new")
    assert [row.state.standing.value for row in first.findings] == ["first seen"]
    assert first.headline == "1 fail: the first night; acked-lost first seen in a"
    assert (first.exit_code, first.verdict) == (1, "fail")
    second = [*rounds, *(a_round(1, number, hit=True) for number in (1, 2, 3))]
    (row,) = report_of("nightly", a_night(1), second, {}, fail_on="new").findings
    assert row.state.standing is Standing.STILL


WORDS_OF = {"pass": {}, "fail": {"hit": True}, "unknown": {"verdict": "unknown", "exit_code": 3},
            "broken": {"verdict": None, "exit_code": 4}}  # fmt: skip


@pytest.mark.parametrize("fail_on", ["any", "new", "none"])
@pytest.mark.parametrize("night", [0, 1])
@pytest.mark.parametrize("word", WORDS_OF)
def test_page_summary_junit_json_and_exit_code_say_one_thing(
    word: str, night: int, fail_on: FailOn, tmp_path: Path
) -> None:
    """A cell that is red since the first night, green, unknown or broken, beside a green one."""
    rounds = [a_round(at, cell=cell, **(WORDS_OF[word] if cell == "a" else {}))
              for at in range(night + 1) for cell in ("a", "b")]  # fmt: skip
    made = report_of("nightly", a_night(night), rounds, {}, fail_on=fail_on)
    is_known = fail_on == "none" or (fail_on == "new" and word == "fail" and night == 1)
    code = 0 if is_known else {"pass": 0, "fail": 1, "unknown": 3, "broken": 4}[word]
    verdict = {0: "pass", 1: "fail"}.get(code, "unknown")
    assert (made.exit_code, made.verdict) == (code, verdict)
    suite = ET.fromstring(junit_xml(made))[0]
    kind = {0: "skipped" if word != "pass" else None, 1: "failures"}.get(code, "errors")
    wanted = {name: str(int(name == kind)) for name in ("failures", "errors", "skipped")}
    assert {name: suite.get(name) for name in wanted} == wanted
    assert (document(made)["exit_code"], document(made)["verdict"]) == (code, verdict)
    assert markdown(made).startswith(f"## nightly: {verdict}\n")
    page = suite_page(made, tmp_path, {})
    assert f'<section class="banner {verdict}"' in page
    assert f"exit code {code}" in page


@pytest.mark.parametrize(
    ("words", "broken", "fail_on", "new", "code"),
    [
        ({"a": "fail", "b": "broken"}, {4}, "any", (), 1),
        ({"a": "fail", "b": "broken"}, {4}, "new", (), 4),
        ({"a": "broken", "b": "broken", "c": "unknown"}, {4, 5}, "new", (), 5),
        ({"a": "fail", "b": "unknown"}, set(), "new", (), 3),
        ({"a": "fail", "b": "fail"}, set(), "new", ("b",), 1),
        ({"a": "not run"}, set(), "any", (), 3),
        ({}, set(), "any", (), 3),
        ({"a": "fail", "b": "broken"}, {4}, "none", ("a",), 0),
    ],
)
def test_the_most_urgent_decides(
    words: dict[str, str], broken: set[int], fail_on: FailOn, new: tuple[str, ...], code: int
) -> None:
    assert Decision.from_words(words, broken, new, fail_on).exit_code == code


def test_a_red_cell_that_was_never_judged_before_is_new() -> None:
    rounds = [a_round(0, verdict="unknown", exit_code=3), a_round(1, hit=True)]
    assert report_of("nightly", a_night(1), rounds, {}, fail_on="new").exit_code == 1


def test_a_night_in_which_nothing_ran_is_no_pass() -> None:
    made = report_of("nightly", a_night(0), [], {"a": "no time"})
    suite = ET.fromstring(junit_xml(made))[0]
    assert (made.exit_code, made.verdict, made.counts, suite.get("errors")) == (
        3, "unknown", "no cell ran", "1",
    )  # fmt: skip


def test_a_case_of_junit_takes_as_long_as_its_rounds() -> None:
    ends = {"started": "2026-11-22T01:00:00+00:00", "ended": "2026-11-22T01:00:07.5+00:00"}
    rounds = [a_round(0, 1, duration_s=61.25), a_round(0, 2, verdict=None, exit_code=4, **ends)]
    suite = ET.fromstring(junit_xml(report_of("nightly", a_night(0), rounds, {})))[0]
    assert (suite.get("time"), suite[0].get("time")) == ("68.750", "68.750")


def test_what_a_variant_is_expected_to_show_need_not_show_in_all_rounds_of_a_night() -> None:
    rounds = [a_round(0, 1, expect=LOST), a_round(0, 2, hit=True, expect=LOST)]
    (cell,) = report_of("nightly", a_night(0), rounds, {}).cells
    assert cell.word == "pass"
    (cell,) = report_of("nightly", a_night(0), rounds[:1], {}).cells
    assert (cell.word, cell.rounds[0].reasons) == (
        "unknown", ["acked-lost, which it is expected to show, did not show"],
    )  # fmt: skip


def test_a_finding_has_its_witness_and_the_command_that_repeats_it(report: SuiteReport) -> None:
    (row,) = report.findings
    assert (row.state.standing, row.state.cls, row.state.cell) == (
        Standing.NEW,
        LOST,
        "kafka-storm",
    )
    assert row.found is not None
    assert (row.found.message, row.seed, row.command) == (
        "1/3/88121",
        1103,
        "brokerstorm run s --seed 1103",
    )


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
    rounds = [
        a_round(0),
        a_round(1, hit=True),
        a_round(2),
        a_round(2, 2, hit=True, is_sticky=True, seed=7),
    ]
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
    assert "<script>alert" not in suite_page(report, tmp_path, {})
    ET.fromstring(junit_xml(report))


def test_the_page_links_the_reports_that_are_there(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    (run / "report.html").write_text("")
    rounds = [a_round(0, hit=True, folder=str(run)), a_round(0, 2, folder=str(tmp_path / "gone"))]
    made = report_of("nightly", a_night(0), rounds, {})
    page = write_report(made, tmp_path / "out")["page"].read_text()
    assert 'href="../runs/r1/report.html"' in page
    assert "gone/report.html" not in page


def test_a_folder_to_publish_has_all_that_its_page_links(tmp_path: Path) -> None:
    folders = [tmp_path / night / "r1" for night in ("n0", "n1")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "report.html").write_text(str(folder))
    rounds = [a_round(at, hit=at == 0, folder=str(folder)) for at, folder in enumerate(folders)]
    page = write_report(
        report_of("nightly", a_night(1), rounds, {}), tmp_path / "out", publish=True
    )["page"]
    links = {link for link in re.findall(r'href="([^"#]+)"', page.read_text()) if ":" not in link}
    published = page.parent.rename(tmp_path / "elsewhere")
    assert {(published / link).read_text() for link in links} == {str(folder) for folder in folders}
    assert all((published / link).resolve().is_relative_to(published) for link in links)


def test_an_earlier_night_is_told_as_it_was_that_morning(tmp_path: Path) -> None:
    def facts(made: SuiteReport) -> dict[str, Any]:
        return {key: value for key, value in document(made).items() if key != "not_run"}

    with History.open(tmp_path / "h.sqlite") as history:
        rounds = regressed()
        for row in rounds:
            history.add(row)
        early = [row for row in rounds if row.night <= a_night(10)]
        alone = report_of("nightly", a_night(10), early, {})
        assert facts(read_report(history, *night_of(history, night=a_night(10)))) == facts(alone)


def test_two_nights_are_compared_cell_by_cell() -> None:
    before = [
        a_round(0, number, latency_ms={"p99": 80.0}, versions={"lib": "2.1"})
        for number in (1, 2, 3)
    ]
    after = [
        a_round(1, number, hit=number < 3, latency_ms={"p99": 160.0}, versions={"lib": "2.2"})
        for number in (1, 2, 3)
    ]
    new = [a_round(1, cell="fresh")]
    found = compare_nights((a_night(0), before), (a_night(1), [*after, *new]))
    assert found.cautions == ("lib of a differs: 2.1 and 2.2",)
    assert [(row.section, row.name, row.a, row.b, row.change) for row in found.rows] == [
        ("a", "result", "pass", "fail", None),
        ("a", "rounds", 3, 3, 0),
        ("a", LOST, 0, 2, 2),
        ("a", "p99", 80.0, 160.0, 80.0),
        ("fresh", "result", None, "pass", None),
        ("fresh", "rounds", None, 1, None),
    ]
