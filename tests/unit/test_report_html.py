"""The page without a browser: what it holds, that nothing hostile gets out of its place, its
size."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.findings import HangRow, Result, TimeSeries, ValidityCheck
from analysis.report.charts import charts
from analysis.report.html import campaign_page, run_page, write_run_page
from analysis.report.windows import condensed
from harness.rundir import RunDir, write_json, write_jsonl
from tests.report_samples import (
    HOSTILE,
    campaign,
    failing,
    fault_rows,
    lost_finding,
    passing,
    unknown,
)

MAX_BYTES = 2_000_000
LARGE_STEPS = 20_000


class Page(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._raw = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._raw = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._raw = False

    def handle_data(self, data: str) -> None:
        if not self._raw:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def hostile_result() -> Result:
    """Text of an attacker wherever text from outside can stand."""
    breakout = "</script><script>alert(1)</script><!--" + HOSTILE
    witness = replace(
        lost_finding().witnesses[0], error=breakout, sentence=breakout, where=breakout
    )
    finding = replace(
        lost_finding(),
        promise=breakout,
        evidence=breakout,
        witnesses=(witness,),
        split={breakout: 3},
    )
    fault = replace(fault_rows()[0], target=breakout, evidence=breakout)
    return failing(
        scenario=breakout,
        variant=breakout,
        reasons=[breakout],
        command=breakout,
        findings=[finding],
        faults=[fault, replace(fault, id=9, skipped=breakout)],
        coverage=[ValidityCheck(breakout, False, breakout)],
        environment={breakout: breakout},
        run_id=breakout,
    )


@cache
def failing_page() -> str:
    return run_page(failing())


def test_a_group_that_was_given_no_message_of_the_log_has_no_delays() -> None:
    page = run_page(replace(failing(), given={"billing": 8, "empty": 0}))
    row = page.partition("<td>empty</td>")[2].partition("</tr>")[0]
    assert re.findall(r"<td>(.*?)</td>", row) == ["0", "not counted", "–", "–", "–"]


def test_page_holds_the_verdict_the_coverage_and_each_witness() -> None:
    text = Page(failing_page()).text
    for part in (
        "1,486 acked-lost in 7 episodes: acknowledged, and not in the log",
        "Validity checks",
        "3 of 3 faults took effect while messages were in flight",
        "1/3/88121",
        "breaks delivery: required by the scenario",
        "kill leader-of:orders #1 +12 ms",
        "00:08.012 to 00:30.200: 1,480 near kill leader-of:orders #1 , 2 near leader-move orders #3",
        "orders-3 (1,200), orders-4 (280) and 2 more",
        "without an acknowledgement for up to 5.1 s, all at once for 5.0 s from 00:20.000",
        "1,748,554 rows in the log, 24 of them probes",
        "2026-11-20 20:44 UTC",
        "kafka 4.1.2 · confluent-kafka 2.16.1",
        "billing 1,748,530 420",
        "15 assignments of a partition or topic · 61 confirmed acknowledgements or commits",
        "brokerstorm run kafka-acks1 --variant unsafe --seed 7",
    ):
        assert part in text, part


def test_page_says_what_was_looked_for_and_what_a_class_means() -> None:
    text = Page(failing_page()).text
    absent = text.partition("Tested and not found:")[2].partition(".")[0]
    assert "phantom" in absent
    assert "acked-lost" not in absent
    assert "What acked-lost means" in text


def test_the_head_of_a_campaign_says_what_each_variant_showed() -> None:
    text = " ".join(Page(campaign_page(campaign())).text.split())
    assert (
        "unsafe: acked-lost 1,486 (acknowledged, and not in the log), premature-then-repeat 3 "
        "(stored too early and then again in its place); safe: clean"
    ) in text


def test_sequence_marks_the_witness_in_words_too() -> None:
    page = Page(failing_page())
    labels = [
        a.get("aria-label") for tag, a in page.tags if tag == "ol" and a.get("class") == "seq"
    ]
    assert "... 0 1 [4] 2 3 4 5 ..." in labels
    assert "here" in page.text
    assert "missing" in page.text
    assert "again" in page.text


def test_on_fail_the_checks_fold_to_a_line_and_the_charts_of_the_finding_come_before_all_details() -> (
    None
):
    def order(html: str) -> tuple[bool, list[str]]:
        tags = Page(html).tags
        (opened,) = [
            "open" in a for tag, a in tags if tag == "details" and a.get("class") == "coverage"
        ]
        return opened, [a["id"] or "" for tag, a in tags if tag == "section" and a.get("id")]

    assert order(failing_page()) == (
        False,
        [
            "coverage",
            "when",
            "findings",
            "consumers",
            "timeline",
            "latency",
            "faults",
            "environment",
        ],
    )
    assert order(run_page(unknown()))[0]
    assert order(run_page(passing())) == (
        True,
        ["coverage", "findings", "consumers", "timeline", "latency", "faults", "environment"],
    )
    assert "2 of 3 failed: faults, audit" in Page(run_page(unknown())).text


def test_a_finding_of_an_older_result_has_no_chart_and_is_told_by_its_witnesses() -> None:
    bare = replace(lost_finding(), by_stream=(), by_fault=())
    page = Page(run_page(failing(findings=[bare])))
    assert "chart-lanes" in [a.get("id") for tag, a in page.tags if tag == "figure"]
    assert "first shown at 00:08.012" in page.text


def test_violations_are_open_and_permitted_ones_closed() -> None:
    page = Page(failing_page())
    shown = {
        a["class"]: "open" in a
        for tag, a in page.tags
        if tag == "details" and "finding" in (a.get("class") or "")
    }
    assert shown == {"finding violation": True, "finding permitted": False}


@pytest.mark.parametrize(
    "result",
    [failing(), passing(), unknown(), hostile_result()],
    ids=["fail", "pass", "unknown", "hostile"],
)
def test_page_asks_the_network_for_nothing(result: Result) -> None:
    page = Page(run_page(result, files=[("result.json", "all of it")]))
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "data"):
            target = attributes.get(name) or ""
            assert not re.match(r"(?i)\s*(https?:|//|javascript:|file:)", target), (tag, target)
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert (policy or "").startswith("default-src 'none'")


def test_hostile_text_stays_text() -> None:
    html = run_page(hostile_result())
    page, twin = Page(html), Page(failing_page())
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert len(scripts) == len([1 for tag, _ in twin.tags if tag == "script"])
    assert "alert('x')" in page.text
    assert "<script>alert(1)" not in html
    assert "{{ 7*7 }}" in page.text


SCHEMES = (
    "javascript:alert(1)//",
    "data:text/html,x",
    "//leak.invalid/x",
    "/etc/passwd",
    "../../x",
    "\tjavascript:x",
)


@pytest.mark.parametrize("path", SCHEMES)
def test_a_path_from_a_result_is_a_link_only_below_the_run(path: str) -> None:
    hang = HangRow(worker="p", kind="hang", t_s=1.0, text="x", stacks=path)
    run = replace(campaign().variants[0].runs[0], path=path)
    variant = replace(campaign().variants[0], runs=[run])
    for html in (
        run_page(failing(hangs=[hang])),
        campaign_page(replace(campaign(), variants=[variant])),
    ):
        links = [a["href"] or "" for tag, a in Page(html).tags if tag == "a"]
        assert [each for each in links if not each.startswith(("#", "./"))] == []
        assert not any(path.strip() in each for each in links)


def test_the_policy_names_each_script_of_the_page_and_no_other() -> None:
    html = failing_page()
    policy = next(
        a["content"] or "" for tag, a in Page(html).tags if tag == "meta" and a.get("http-equiv")
    )
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digests = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert len(scripts) == 3
    assert f"script-src {allowed};" in policy
    for part in ("base-uri 'none'", "form-action 'none'"):
        assert part in policy


def test_hostile_campaign_text_stays_text() -> None:
    base = campaign()
    bad = replace(base, scenario=HOSTILE, about=HOSTILE, command=HOSTILE)
    assert "<script>alert('x')" not in campaign_page(bad)


def test_page_is_small_enough_also_after_a_long_run() -> None:
    assert len(failing_page().encode()) < MAX_BYTES
    many = TimeSeries(
        start_s=0,
        step_s=1,
        **{
            name: [50_000] * LARGE_STEPS for name in ("intended", "ok", "fail", "info", "delivered")
        },
        **{name: [12.5] * LARGE_STEPS for name in ("p50_ms", "p99_ms", "delay_p99_ms")},
    )
    faults = [
        replace(fault_rows()[i % 3], id=i, t_s=i * 10.0, until_s=i * 10.0 + 3) for i in range(900)
    ]
    assert len(run_page(failing(timeline=many, faults=faults)).encode()) < MAX_BYTES


def test_every_chart_says_in_words_what_it_shows() -> None:
    for chart in charts(failing()):
        assert chart.summary
    assert [chart.key for chart in charts(passing())] == [
        "lanes", "throughput", "latency", "cpu", "memory", "percentiles"]  # fmt: skip
    assert [chart.key for chart in charts(failing())][:3] == [
        "when-acked-lost",
        "throughput",
        "errors",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {
            "timeline": TimeSeries(start_s=0, step_s=1),
            "percentiles": [],
            "faults": [],
            "findings": [],
        },
        {"timeline": TimeSeries(start_s=-5, step_s=1, intended=[1], ok=[0], p99_ms=[None])},
        {"latency_ms": {"p50": math.nan}, "percentiles": [(0.5, 0.0), (1.0, math.inf)]},
        {"sends": {}, "rate": {}, "rows": {}, "coverage": [], "environment": {}, "duration_s": {}},
    ],
    ids=["nothing", "no ok", "odd numbers", "no figures"],
)
def test_a_run_with_holes_still_has_a_page(changes: dict[str, object]) -> None:
    assert "kafka-acks1" in run_page(failing(**changes))


def test_what_was_told_while_it_ran_stands_on_the_page(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_jsonl(
        run.events,
        [{"t_ns": 66_500_000_000, "kind": "found-so-far", "text": "write-duplicate 3: <b>"}],
    )
    write_json(run.manifest, {"epoch_ns": 5_000_000_000})
    text = Page(write_run_page(run, failing()).read_text()).text
    assert "Reported during the run 01:01.500 write-duplicate 3: <b>" in " ".join(text.split())
    assert "Reported during the run" not in Page(run_page(failing())).text


def test_files_that_are_there_are_linked(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.plan.write_text("{}")
    links = [
        a.get("href")
        for tag, a in Page(write_run_page(run, failing()).read_text()).tags
        if tag == "a"
    ]
    assert "plan.json" in links
    assert "result.json" not in links


def test_campaign_page_links_each_run_and_draws_each_variant() -> None:
    html = campaign_page(campaign(), {"unsafe-1": failing(), "safe-1": passing()})
    page = Page(html)
    links = {a.get("href") for tag, a in page.tags if tag == "a"}
    assert {"./unsafe-1/report.html", "./safe-1/report.html"} <= links
    assert "as expected" in page.text
    assert [a["id"] for tag, a in page.tags if tag == "figure"] == [
        "chart-throughput-0", "chart-counts-acked-lost-0", "chart-throughput-1"]  # fmt: skip
    assert len(campaign_page(campaign())) < 100_000  # no charts, no library


def test_condensed_keeps_every_count_and_the_worst_quantile() -> None:
    timeline = TimeSeries(
        start_s=0, step_s=1, ok=list(range(10)), info=[1] * 10, p99_ms=[None, 5.0, 2.0, *[None] * 7]
    )
    windows = condensed(timeline, 4)
    assert (windows.times, windows.widths_s) == ([0, 3, 6, 9], [3, 3, 3, 1])
    assert (sum(windows.ok), sum(windows.info)) == (45, 10)
    assert windows.p99_ms == [5.0, None, None, None]
    assert windows.rate(windows.info) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("ok", "silence"),
    [
        ([5, 0, 0, 5], (1.0, 2.0)),
        ([5, 5, 5, 5], (0.0, 0.0)),
        ([5, 5, 0, 0], (2.0, 2.0)),
        ([0, 5, 0, 0], (2.0, 2.0)),
    ],
)
def test_longest_silence(ok: list[int], silence: tuple[float, float]) -> None:
    timeline = TimeSeries(start_s=0, step_s=1, intended=[5] * 4 + [0, 0], ok=[*ok, 0, 0])
    assert condensed(timeline, 100).longest_silence() == silence


def test_silence_before_the_load_is_nobodys_outage() -> None:
    timeline = TimeSeries(start_s=-3, step_s=1, intended=[5] * 6, ok=[0, 0, 0, 5, 0, 5])
    assert condensed(timeline, 100).longest_silence() == (1.0, 1.0)
