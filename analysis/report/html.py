"""Writes report.html: one self-contained page; its content security policy blocks network requests.

Jinja escapes all text from outside; the policy holds even if that failed. Charts are Bokeh's, with
its script inlined.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bokeh.document import Document
from bokeh.embed import components
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis.classes import CLASSES
from analysis.findings import Result
from analysis.report import charts, story, words
from analysis.report.campaign_words import (
    answer,
    comparison_rows,
    first_witness,
    outcome_of,
    p_text,
    reproduction_rows,
    sentences,
)
from analysis.report.chart_frame import Chart
from analysis.report.charts import side_by_side
from analysis.report.documents import read_campaign, read_result
from analysis.report.looks import look_of
from analysis.report.result_words import (
    STATUS_GLYPH,
    faults_line,
    finding_heading,
    left_out,
    notes,
    pass_sentence,
)
from analysis.report.trace_logs import logs_of, witness_logs
from analysis.verdict.campaign import Campaign
from harness.contracts import read_document, read_rows
from harness.contracts.rows import FOUND_SO_FAR, EventRow, Manifest
from harness.logs import LogLines
from harness.rundir import RunDir

#: Example messages that the page shows for each class; the others are folded.
SHOWN_WITNESSES = 3
#: Counters of `harness.exposure` that the section on consumers shows, for one and for many.
_CONSUMER_EVENTS = (
    ("assignments", "assignment of a partition or topic", "assignments of a partition or topic"),
    (
        "acks_confirmed",
        "confirmed acknowledgement or commit",
        "confirmed acknowledgements or commits",
    ),
    ("nacks", "refusal", "refusals"),
    ("rollbacks", "rollback", "rollbacks"),
)
FILES = (
    ("result.json", "everything on this page, for scripts"),
    ("junit.xml", "for CI systems"),
    ("scenario.yaml", "the scenario"),
    ("plan.json", "the resolved plan"),
    ("manifest.json", "versions, machine, phases"),
    ("faults.jsonl", "injection, proof and end of every fault"),
    ("events.jsonl", "connects, stalls, exits"),
    ("metrics.jsonl", "CPU and memory for each second"),
    ("sealed/", "every send, log row and delivery, as Parquet files"),
    ("raw/", "worker logs and specs"),
    ("stacks/", "stacks of workers that hung"),
)


def run_page(
    result: Result,
    *,
    files: Sequence[tuple[str, str]] = (),
    up: str = "",
    logs: Mapping[tuple[str, float], LogLines] | None = None,
    meanwhile: Sequence[tuple[float, str]] = (),
) -> str:
    """The page of one run.

    Args:
        logs: lines of the logs around a witness, by its message and time.
        meanwhile: (s since the start of load, text) of what was reported during the run.
        files: (path relative to the page, what it is) of the files to link.
        up: link to the campaign's page, if the run has one.
    """
    found = [finding for finding in result.findings if finding.count]
    drawn = charts.charts(result)
    script, embedded = _embed({chart.key: chart for chart in drawn})
    keys = [chart.key for chart in drawn if chart.key != "percentiles"]
    told = [key for key in keys if key.startswith("when-")]
    of_applications = [key for key in keys if key.startswith("application-")]
    return render(
        "run.html",
        r=result,
        title=f"{result.scenario} · {result.variant}" if result.variant else result.scenario,
        pass_sentence=pass_sentence(result),
        story=_story_of(result),
        started=words.day(result.started),
        checks=sorted(result.coverage, key=lambda item: item.ok),
        tested=_tested(result),
        cards=_cards(result),
        consumer_events=_consumer_events(result.exposure),
        found=found,
        absent=[c for c in CLASSES if c not in {f.cls for f in found} and c not in result.untested],
        untested=words.by_reason(result.untested),
        meanings=CLASSES,
        shown=SHOWN_WITNESSES,
        told=[embedded[key] for key in told],
        timelines=[embedded[key] for key in keys if key not in (*told, *of_applications)],
        flows=[embedded[key] for key in of_applications],
        curve=embedded.get("percentiles"),
        environment=[words.fact(name, value) for name, value in result.environment.items()],
        phases=[(name, words.seconds(value)) for name, value in result.duration_s.items()],
        files=list(files),
        logs=logs or {},
        meanwhile=meanwhile,
        up=up,
        chart_script=script,
    )


def campaign_page(
    campaign: Campaign,
    results: Mapping[str, Result] | None = None,
    logs: Mapping[str, LogLines] | None = None,
) -> str:
    """The page of a campaign: variants side by side, linked to their runs' pages.

    Args:
        results: run path -> result, for charts and the story of a run of each variant: the one with
            the first witness, else the last.
        logs: run path -> lines of the logs around its first witness.
    """
    shown: dict[str, Result] = {}
    for variant in campaign.variants:
        first = first_witness(variant)
        run = first[0] if first else next(reversed(variant.runs), None)
        if run is not None and run.path in (results or {}):
            shown[f"{variant.name}, round {run.round}"] = (results or {})[run.path]
    drawn = side_by_side(list(shown.values()))
    script, embedded = _embed({chart.key: chart for group in drawn for chart in group})
    bug = campaign.reproduction
    return render(
        "campaign.html",
        c=campaign,
        bug=bug,
        told=sentences(campaign, bug) if bug else [],
        answer="" if bug else answer(campaign),
        tested=_tested_in_common(shown.values()),
        p_text=p_text(bug) if bug else "",
        outcome=bug.outcome if bug else outcome_of(campaign),
        comparison=reproduction_rows(campaign, bug) if bug else comparison_rows(campaign.variants),
        witnesses=[
            (v, *first) for v in campaign.variants if (first := first_witness(v)) is not None
        ],
        panels=[
            (name, _story_of(result), [embedded[chart.key] for chart in group])
            for (name, result), group in zip(shown.items(), drawn, strict=True)
        ],
        logs=logs or {},
        chart_script=script,
    )


def write_run_page(run: RunDir, result: Result, *, up: str = "") -> Path:
    """Write report.html of a run and return its path."""
    files = [(name, what) for name, what in FILES if (run.root / name).exists()]
    logs = witness_logs(run, result, SHOWN_WITNESSES)
    page = run_page(result, files=files, up=up, logs=logs, meanwhile=_meanwhile(run))
    run.report.write_text(page, encoding="utf-8")
    return run.report


def _meanwhile(run: RunDir) -> list[tuple[float, str]]:
    """When, on the clock of the load, and what the windows of a run told."""
    told = [row for row in read_rows(run.events, EventRow) if row.kind == FOUND_SO_FAR]
    epoch_ns = read_document(run.manifest, Manifest).epoch_ns if told else 0
    return [((row.t_ns - epoch_ns) / 1e9, row.text) for row in told]


def write_campaign_page(
    run: RunDir, campaign: Campaign, results: Mapping[str, Result] | None = None
) -> Path:
    """Write report.html of a campaign and return its path."""
    logs: dict[str, LogLines] = {}
    for variant in campaign.variants:
        if first := first_witness(variant):
            summary, _, witness = first
            around = logs_of(RunDir(run.root / summary.path), [witness])
            logs[summary.path] = next(iter(around.values()), LogLines())
    run.report.write_text(campaign_page(campaign, results, logs), encoding="utf-8")
    return run.report


def write_pages(run: RunDir) -> None:
    """Write the pages of a run, or of a campaign and its rounds, from what judging left there.

    Raises:
        UsageError: results that are missing, damaged or of another version.
    """
    if not run.campaign.exists():
        write_run_page(run, read_result(run))
        return
    campaign, results = read_campaign(run), {}
    for each in run.rounds():
        if each.result.exists():
            results[each.run_id] = read_result(each)
            write_run_page(each, results[each.run_id], up="../report.html")
    write_campaign_page(run, campaign, results)


def _story_of(result: Result) -> story.FindingStory | None:
    grave = story.grave(result)
    return story.story(grave[0], result.faults) if grave else None


def _cards(result: Result) -> list[dict[str, str]]:
    sends, rate, latency = result.sends, result.rate, result.latency_ms
    unsure = f"{words.count(sends.get('fail', 0))} fail, {words.count(sends.get('info', 0))} info"
    if warm_up := sends.get("warm_up", 0):
        unsure += f"; {words.count(warm_up)} of them warm-up"
    return [
        *_finding_cards(result),
        {"label": "attempted", "value": words.count(sends.get("attempted", 0)), "note": unsure},
        {
            "label": "acknowledged",
            "value": words.count(sends.get("ok", 0)),
            "note": words.log_rows(result.rows),
        },
        {
            "label": "rate",
            "value": words.per_second(rate.get("achieved_per_s", 0.0)),
            "note": ("of " if rate.get("target_per_s") else "") + words.target(rate),
        },
        {
            "label": "latency p99",
            "value": words.millis(latency.get("p99")),
            "note": f"p50 {words.millis(latency.get('p50'))}, max {words.millis(latency.get('max'))}",
        },
        _faults_card(result),
    ]


def _finding_cards(result: Result) -> list[dict[str, str]]:
    """A card for the class that the head of the page is about; more would push the charts down."""
    return [
        {
            "label": finding.cls,
            "value": words.count(finding.count),
            "note": words.plain(finding.sentence),
        }
        for finding in result.violations()[:1]
    ]


def _tested(result: Result) -> str:
    """Versions of brokers and producers: ``kafka 4.1.2 · confluent-kafka 2.16.1``."""
    return " · ".join(words.versions(result.environment))


def _tested_in_common(results: Iterable[Result]) -> str:
    """Versions that all runs have in common, and the time of the first run."""
    lines = [words.versions(result.environment) for result in results]
    same = [fact for fact in lines[0] if all(fact in line for line in lines)] if lines else []
    days = sorted(filter(None, (words.day(result.started) for result in results)))
    return " · ".join([*same, *days[:1]])


def _consumer_events(exposure: Mapping[str, int]) -> list[str]:
    """Return what the consumers did, counted over all groups: ``15 assignments of a partition or
    topic``."""
    return [
        words.plural(exposure[name], one, many)
        for name, one, many in _CONSUMER_EVENTS
        if exposure.get(name)
    ]


def _faults_card(result: Result) -> dict[str, str]:
    value, took_effect, rest = faults_line(result.faults).partition(" took effect")
    note = (
        f"took effect{rest.partition('   slowest')[0]}".replace("   ", ", ") if took_effect else ""
    )
    return {"label": "faults", "value": value, "note": note}


def _embed(drawn: Mapping[str, Chart]) -> tuple[str, dict[str, dict[str, Any]]]:
    """Bokeh's script for all charts, without its tags, and each chart with its div; both are
    Bokeh's own."""
    if not drawn:
        return Markup(""), {}
    document = Document()
    with document.models.freeze():  # else Bokeh walks all figures again at each one that is added
        for chart in drawn.values():
            document.add_root(chart.plot)
    script, divs = components({key: chart.plot for key, chart in drawn.items()}, wrap_script=False)
    embedded = {
        key: {
            "key": key,
            "title": chart.title,
            "summary": chart.summary,
            "header": chart.header,
            "table": chart.table,
            "div": Markup(divs[key]),
        }
        for key, chart in drawn.items()
    }
    return Markup(script), embedded


class _Unindented(PackageLoader):
    """Templates without their indentation, which would be repeated with every row of a table."""

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool] | None]:
        """Return a template without indentation, which would only make pages larger."""
        text, path, is_fresh = super().get_source(environment, template)
        return re.sub(r"^ +", "", text, flags=re.MULTILINE), path, is_fresh


def _environment() -> Environment:
    made = Environment(
        loader=_Unindented("analysis.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["plain"] = words.plain
    made.globals |= {
        "count": words.count,
        "clock": words.clock,
        "seconds": words.seconds,
        "millis": words.millis,
        "ago": words.ago,
        "beyond": words.beyond,
        "attribution": words.attribution,
        "causes_heading": words.causes_heading,
        "causes_by_fault": words.causes_by_fault,
        "colour_of": lambda kind: look_of(kind).colour,
        "sequence_text": lambda steps: words.sequence(steps, 200),
        "heading": finding_heading,
        "lines": lambda texts: "\n".join(map(words.frame, texts)),
        "glyphs": STATUS_GLYPH,
        "left_out": left_out,
        "notes": notes,
        "sources": lambda logs: ", ".join(dict.fromkeys(line.source for line in logs.lines)),
        "address": _address,
    }
    return made


def _address(path: str) -> str:
    """The link to a file below the page's folder, by its path. A result may come from a stranger:
    empty for a path that leads elsewhere."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        return ""
    return "./" + quote(path, errors="replace")


def render(template: str, **values: Any) -> str:
    """A page of the house: a template with the shared style, scripts and filters.

    ``chart_script``: Bokeh's for the charts of the page; empty where it has none.
    """
    scripts = [template_source("page.js")]
    if chart_script := values.pop("chart_script"):
        bokeh = Resources(mode="inline", components=["bokeh"]).js_raw[0]
        scripts = [Markup(bokeh), chart_script, *scripts]
    return (
        _environment()
        .get_template(template)
        .render(
            style=template_source("style.css"),
            scripts=scripts,
            script_policy=" ".join(map(_allowed, scripts)),
            **values,
        )
    )


def _allowed(script: str) -> str:
    """A script as the policy of the page names it: the browser runs no other."""
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def template_source(name: str) -> Markup:
    """A style or script of the templates, as a page holds it."""
    environment = _environment()
    return (
        Markup(environment.loader.get_source(environment, name)[0])
        if environment.loader
        else Markup("")
    )
