"""Writes the morning's report for machines and CI: Markdown for a job summary, JUnit, JSON and its
schema."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaValue

from analysis.report import words
from analysis.report.documents import finite
from analysis.report.junit import counted, junit_document, xml_text
from experiments.history.changes import Standing
from experiments.history.page import write_suite_page
from experiments.history.report import CellRow, FindingRow, SuiteReport, change_text
from harness.rundir import DIALECT, Document, write_json

SCHEMA_FILE: Final = Path(__file__).with_name("schemas") / "report.json"
#: With this, GitHub (Gitea and Forgejo too) names the file that a job appends its summary to.
SUMMARY_FILE: Final = "GITHUB_STEP_SUMMARY"
#: Rows of a table of the summary, which CI systems cut at a megabyte and people sooner.
_MOST_ROWS: Final = 50


def write_report(report: SuiteReport, folder: Path, *, publish: bool = False) -> dict[str, Path]:
    """Write page, summary, JUnit and JSON into a folder; and the summary to where a CI system wants
    it.

    Args:
        publish: with the runs' reports that the page links.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        "page": write_suite_page(report, folder / "report.html", publish=publish),
        "summary": folder / "summary.md",
        "junit": folder / "junit.xml",
        "json": folder / "report.json",
    }
    text = markdown(report)
    made["summary"].write_text(text, encoding="utf-8")
    made["junit"].write_text(junit_xml(report), encoding="utf-8")
    write_json(made["json"], document(report))
    if wanted := os.environ.get(SUMMARY_FILE):
        with open(wanted, "a", encoding="utf-8") as file:
            file.write(text)
    return made


# ----- JSON ---------------------------------------------------------------------------------------


def document(report: SuiteReport) -> Document:
    """The public JSON document."""
    made: Document = finite(asdict(report))
    return made


def schema() -> JsonSchemaValue:
    """JSON Schema of `document`."""
    made = TypeAdapter(SuiteReport).json_schema(mode="serialization")
    made["properties"] |= {"schema_version": {"const": 1}, "kind": {"const": "suite-report"}}
    made["required"] = [*made["required"], "kind", "schema_version"]
    return {
        "$schema": DIALECT,
        **made,
        "title": "brokerstorm suite report",
        "description": "one morning",
    }


# ----- Markdown -----------------------------------------------------------------------------------


def markdown(report: SuiteReport) -> str:
    """The summary of a CI job."""
    lines = [f"## {_cell(report.suite)}: {report.verdict}", "", _cell(report.headline), ""]
    lines += [f"- {_cell(each.text)}" for each in report.versions]
    lines += [""] if report.versions else []
    lines += [f"- {_cell(note)}" for note in report.notes]
    tonight = [each for each in report.hunts if each.night == report.night]
    lines += [f"- {_cell(each.cell)}: {each.text}" for each in tonight]
    lines += [""] if tonight else []
    if report.findings:
        lines += ["| | class | cell | rounds | since | example |", "|---|---|---|---|---|---|"]
        lines += [_finding_line(row) for row in report.findings[:_MOST_ROWS]]
        lines += [*_more(len(report.findings)), ""]
    figures = [change for change in report.fresh if change.kind == "figure"]
    for change in figures:
        whose = f" (the machine's: {_cell(change.machine)})" if change.machine else ""
        lines.append(f"- {_cell(change_text(change))}{whose}")
    lines += [""] if figures else []
    red = [row for row in report.cells if row.word not in ("pass", "not run")]
    if red:
        lines += ["| cell | tonight | why |", "|---|---|---|"]
        lines += [
            f"| {_cell(row.cell)} | {row.word}{'' if row.counts else ' (not counted)'} | {_cell(_why(row))} |"
            for row in red[:_MOST_ROWS]
        ]
        lines += [*_more(len(red)), ""]
    if report.not_run:
        lines += [f"<details><summary>{len(report.not_run)} not run</summary>", ""]
        lines += [f"- {_cell(cell)}: {_cell(why)}" for cell, why in report.not_run.items()]
        lines += ["", "</details>", ""]
    repeat = [row for row in report.findings if row.state.standing is Standing.NEW and row.command]
    if repeat:
        lines += [
            "Repeat:",
            "",
            "```text",
            *(words.plain(row.command) for row in repeat),
            "```",
            "",
        ]
    return "\n".join(lines)


def _finding_line(row: FindingRow) -> str:
    state = row.state
    interval = f"{words.percent(state.rate.low)} to {words.percent(state.rate.high)}"
    cells = [
        f"**{state.standing.value}**" if state.standing is Standing.NEW else state.standing.value,
        state.cls,
        _cell(state.cell),
        f"{state.rate.hits} of {state.rate.rounds} ({interval})",
        _cell(state.since),
        _cell(row.found.said or row.found.sentence) if row.found else "",
    ]
    return f"| {' | '.join(cells)} |"


def _more(rows: int) -> list[str]:
    return ["", f"and {rows - _MOST_ROWS} more"] if rows > _MOST_ROWS else []


def _why(row: CellRow) -> str:
    return "; ".join(dict.fromkeys(reason for each in row.rounds for reason in each.reasons))


def _cell(text: str) -> str:
    """Text from outside in a table of Markdown: no markup, no column of its own."""
    plain = words.plain(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{char}" if char in "\\|`*_[]#!" else char for char in plain)


# ----- JUnit --------------------------------------------------------------------------------------


def junit_xml(report: SuiteReport) -> str:
    """One suite with a case a cell. Among the cells that count, *fail* is a failure, *unknown* and
    *broken* are errors; what does not count (`SuiteReport.fail_on`) or did not run is skipped, with
    the reason."""
    suite = ET.Element("testsuite", name=xml_text(report.suite))
    if report.versions:
        properties = ET.SubElement(suite, "properties")
        for each in report.versions:
            ET.SubElement(properties, "property", name="version changed", value=xml_text(each.text))
    found: dict[str, list[FindingRow]] = {}
    for row in report.findings:
        found.setdefault(row.state.cell, []).append(row)
    for cell in report.cells:
        if cell.word == "not run" and not report.not_run.keys().isdisjoint(_names(cell.cell)):
            continue  # said below, with the reason
        case = _case(suite, report, cell.cell, cell.duration_s)
        _outcome(case, cell, found.get(cell.cell, []), report.fail_on)
    for name, why in report.not_run.items():
        ET.SubElement(_case(suite, report, name, 0.0), "skipped", message=xml_text(why))
    if report.exit_code and not any(cell.counts for cell in report.cells):
        case = _case(suite, report, report.night, 0.0)
        ET.SubElement(case, "error", type=report.verdict, message="no cell ran")
    return junit_document([counted(suite, sum(cell.duration_s for cell in report.cells))])


def _case(suite: ET.Element, report: SuiteReport, name: str, seconds: float) -> ET.Element:
    names = {"classname": xml_text(report.suite), "name": xml_text(name), "time": f"{seconds:.3f}"}
    return ET.SubElement(suite, "testcase", names)


def _names(cell: str) -> tuple[str, str]:
    """A cell, and the cell of the suite whose variant it is."""
    return cell, cell.rpartition("/")[0]


def _outcome(case: ET.Element, cell: CellRow, found: list[FindingRow], fail_on: str) -> None:
    if cell.word == "not run":
        ET.SubElement(case, "skipped", message="it did not run this night")
    elif cell.word != "pass":
        standings = [f"{row.state.standing.value} {row.state.cls}" for row in found]
        message = "; ".join(standings) or _why(cell) or cell.word
        kind = "failure" if cell.word == "fail" else "error"
        if not cell.counts:
            kind, message = (
                "skipped",
                f"{cell.word}, which does not count with fail_on {fail_on}: {message}",
            )
        element = ET.SubElement(case, kind, message=xml_text(message))
        if cell.counts:
            element.set("type", cell.word)
        lines = [
            f"seed {each.seed}: {each.word}, {'; '.join(each.reasons)}" for each in cell.rounds
        ]
        lines += [each.command for each in cell.rounds if each.word != "pass" and each.command]
        element.text = xml_text("\n".join(lines), keep_lines=True)
