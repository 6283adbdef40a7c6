"""The end of a run on the console: order, content, and plain text wherever colour is not wanted."""

from __future__ import annotations

import io
import os
import pty
import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.findings import Result
from analysis.report.compare import compare
from analysis.report.explain import every_class, explain
from analysis.report.terminal import console, print_result
from analysis.report.terminal_campaign import print_campaign
from analysis.report.terminal_lookups import (
    print_class_list,
    print_comparison,
    print_explanation,
    print_trace,
)
from analysis.report.trace import trace
from analysis.verdict.campaign import Campaign, VariantResult
from tests.planted.tiny import History
from tests.report_samples import HOSTILE, campaign, failing, fault_rows, passing, unknown

REPORT = Path("runs/latest/report.html")


def said(result: Result, *, verbose: bool = False) -> str:
    out = io.StringIO()
    print_result(console(out), result, report=REPORT, verbose=verbose)
    return out.getvalue()


def told(judged: Campaign) -> str:
    out = io.StringIO()
    print_campaign(console(out), judged, report=REPORT)
    return out.getvalue()


def test_verdict_and_reason_come_first() -> None:
    lines = said(failing()).splitlines()
    assert lines[0].split()[:4] == ["FAIL", "kafka-acks1", "·", "unsafe"]
    assert lines[1].strip() == "1,486 acked-lost in 7 episodes: acknowledged, and not in the log"


def test_everything_a_reader_needs_is_there() -> None:
    text = said(failing())
    for part in (
        "1,750,000 attempted   1,749,580 ok   0 fail   420 info (318 stored, 102 not)",
        "acked-lost             violation  1,486  breaks delivery: required by the scenario",
        "write-duplicate        permitted    142",
        "... 0 1 [4] 2 3 4 5 ...",
        "... 88119 88120 [88121] (88122) 88190 88191 ...",
        "kill leader-of:orders #1 +12 ms",
        "3 of 3 took effect, all undone   longest outage 5.1 s   slowest recovery 6.7 s",
        "49,998/s of 50,000/s   outside outages 99.98 % of what was due",
        "p50 13 ms   p99 3.9 s   p99.9 4.4 s   max 5.1 s",
        "brokerstorm trace 1/3/88121 runs/latest",
        "brokerstorm run kafka-acks1 --variant unsafe --seed 7",
        str(REPORT),
    ):
        assert part in text, part
    assert text.splitlines()[-1].split() == ["exit", "1"]


def test_classes_that_a_load_cannot_show_are_one_line() -> None:
    untested = {
        "stall": "not applicable: no consumer read",
        "phantom": "not shown that the audit is complete",
    }
    untested |= {"rollback-order": "not applicable: no transactions"}
    lines = [line.strip() for line in said(replace(failing(), untested=untested)).splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("not tested"))
    assert lines[at].endswith("phantom (not shown that the audit is complete)")
    assert lines[at + 1] == "2 classes that this load cannot show: see the report"


def test_verbose_tells_what_it_ran_with() -> None:
    result = replace(failing(), environment={"producer p-1": "confluent-kafka 2.15.0; acks=1"})
    assert "producer p-1" not in said(result)
    assert "producer p-1: confluent-kafka 2.15.0; acks=1" in said(result, verbose=True)


def test_permitted_findings_are_counted_but_not_spelt_out() -> None:
    assert "70212" not in said(failing())


def test_a_clean_run_says_what_it_showed() -> None:
    text = said(passing())
    assert text.startswith(" PASS ")
    assert "every promise that the settings make was kept through 3 faults" in text
    assert "finding" not in text
    first, *others = passing().faults
    in_vain = replace(passing(), faults=[replace(first, effective=False), *others])
    assert "kept through 2 faults" in said(in_vain)


def test_unknown_names_every_gap_and_what_is_missing() -> None:
    text = said(unknown())
    assert "when-it-says-unknown.md: what to do" in text
    assert text.startswith(" UNKNOWN ")
    assert "? 1 of 2 faults took effect; pause kafka-3 changed nothing" in text
    assert "? orders-3 read to 41,203 of 48,000 (stall)" in text
    assert "not proved: the audit of orders-3 stopped" in text
    assert "1 of 2 took effect, all undone, 1 skipped" in text


def test_a_fault_left_behind_stands_out() -> None:
    faults = [replace(fault_rows()[0], healed=False)]
    assert "1 NOT UNDONE" in said(failing(faults=faults))


def test_a_run_that_never_sent_anything_can_be_shown() -> None:
    empty = failing(
        sends={},
        rate={},
        latency_ms={},
        findings=[],
        faults=[],
        rows={},
        coverage=[],
        duration_s={},
    )
    assert "0 attempted" in said(empty)
    assert re.search(r"^latency +–$", said(empty), re.MULTILINE)


def test_a_pipe_gets_no_escape_codes_no_trailing_blanks_and_at_most_100_columns() -> None:
    for text in (said(failing()), told(campaign())):
        assert "\x1b" not in text
        assert all(line == line.rstrip() for line in text.splitlines())
        assert max(map(len, text.splitlines())) <= 100


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    finding = failing().findings[0]
    hostile = replace(finding.witnesses[0], error=HOSTILE, sentence=HOSTILE, where=HOSTILE)
    bad = replace(
        finding, witnesses=(hostile,), promise=HOSTILE, evidence=HOSTILE, sentence=HOSTILE
    )
    text = said(
        failing(findings=[bad], reasons=[HOSTILE], command=HOSTILE, coverage=[], scenario=HOSTILE)
    )
    assert "\x1b" not in text
    assert "[bold]" in text  # not taken for markup


@pytest.mark.parametrize(
    ("color", "variables", "coloured"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_only_on_a_terminal_that_wants_it(
    color: bool, variables: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", **variables}.items():
        monkeypatch.setenv(name, value)
    parent, child = pty.openpty()
    with os.fdopen(child, "w") as terminal:
        print_result(console(terminal, color=color), passing())
    shown = os.read(parent, 1 << 16).decode()
    assert ("\x1b[" in shown) is coloured


def test_force_color_does_not_put_codes_into_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    path = tmp_path / "summary.txt"
    with path.open("w") as file:
        print_result(console(file), failing())
    assert "\x1b" not in path.read_text()


def test_an_ascii_stream_does_not_break_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "summary.txt"
    with path.open("w", encoding="ascii") as file:
        print_result(console(file), failing())
    assert "FAIL" in path.read_text()


def test_campaign_puts_variants_side_by_side() -> None:
    lines = told(campaign()).splitlines()
    assert lines[0].split()[:3] == ["AS", "EXPECTED", "kafka-acks1"]
    by_label = {line.split("  ")[0]: line for line in lines}
    assert by_label["expected"].split()[1:] == ["acked-lost", "clean"]
    assert "acked-lost 1,486" in by_label["found"]
    assert by_label["found"].rstrip().endswith("clean")
    assert by_label["result"].count("✓ as expected") == 2
    assert lines[-1].split() == ["exit", "0"]


def test_campaign_names_the_first_lost_message() -> None:
    text = told(campaign())
    assert "first acked-lost in unsafe: 1/3/88121 on orders-3" in text
    assert "[88121]" in text
    assert "brokerstorm trace 1/3/88121 runs/latest/unsafe-1" in text


def test_campaign_that_came_out_otherwise_says_which_and_why() -> None:
    text = told(campaign(met=False))
    assert text.startswith(" NOT AS EXPECTED ")
    assert "✗ unsafe: expected acked-lost, found clean" in text
    assert text.splitlines()[-1].split() == ["exit", "1"]


def test_campaign_without_a_finished_round_is_undecided() -> None:
    judged = replace(campaign(), variants=[VariantResult.from_runs("safe", "clean", [])])
    text = told(judged)
    assert text.startswith(" UNKNOWN ")
    assert "no round was finished" in text
    assert text.splitlines()[-1].split() == ["exit", "3"]


def test_trace_tells_the_story_in_order(tmp_path: Path) -> None:
    h = History().fault("kill", "kafka-1", at_ms=2, until_ms=900)
    h.send(0, at_ms=5).send(1, at_ms=10, took_ms=2, due_ms=9).log(0, 1).deliver(0, 1, at_ms=50)
    out = io.StringIO()
    print_trace(console(out), trace(h.write(tmp_path / "run"), "1/0/1"))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("1/0/1   lane orders-0 · p-1")
    whats = [line.split()[1] for line in lines if line.startswith("00:0")]
    assert whats == ["fault", "send", "ok", "deliver", "fault"]
    assert any("... 0 [1] ..." in line for line in lines)


def test_explain_has_meaning_example_promise_and_evidence() -> None:
    out = io.StringIO()
    print_explanation(console(out), explain("acked-lost"))
    text = out.getvalue()
    for label in ("example", "meaning", "breaks", "needs", "splits", "counted"):
        assert f"\n{label}" in text
    assert "stored 3 _ 5" in text


def test_every_class_is_listed() -> None:
    out = io.StringIO()
    print_class_list(console(out), every_class())
    assert all(entry.name in out.getvalue() for entry in every_class())


def test_comparison_shows_what_changed() -> None:
    out = io.StringIO()
    print_comparison(console(out), compare(failing(), passing()))
    text = out.getvalue()
    assert text.startswith("! variant differs: unsafe and safe")
    assert "-1,486" in text
    assert "changed" in text
