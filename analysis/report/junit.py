"""Writes JUnit XML: one test suite per run, a case per class that was looked for, coverage and
threshold.

A violation or a missed threshold is a *failure*; a suspect class, a validity check that does not
hold or a threshold of a figure that was not measured is an *error* (the run could not show it), so
that no CI system mistakes "nothing was proved" for green; a class that the run could not have shown
is *skipped*, with the reason. Permitted and informational findings pass and say so in
``system-out``. In a campaign a further case per variant says whether it came out as expected, and
the violations that a variant is expected to show do not count as failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from analysis.classes import CLASSES
from analysis.findings import Finding, Result, Status, Threshold
from analysis.report import words
from analysis.report.result_words import finding_heading, rate_line, witness_facts
from analysis.verdict.campaign import (
    CLEAN,
    Campaign,
    Expectation,
    Proved,
    Reproduction,
    VariantResult,
)
from harness.rundir import RunDir

SHOWN_WITNESSES = 5


def run_xml(result: Result) -> str:
    """``<testsuites>`` with the one suite of a run."""
    return junit_document([_suite(result)])


def campaign_xml(campaign: Campaign, results: Sequence[tuple[str, Result]]) -> str:
    """A suite of the variants' expectations, then one a run.

    Args:
        results: (variant name, result) of every round.
    """
    expected = {variant.name: variant.expect for variant in campaign.variants}
    suites = [_expectations(campaign)]
    suites += [_suite(result, allowed=expected.get(variant, CLEAN)) for variant, result in results]
    return junit_document(suites)


def write_run_xml(run: RunDir, result: Result) -> Path:
    """Write the JUnit file of a run, and return its path."""
    run.junit.write_text(run_xml(result), encoding="utf-8")
    return run.junit


def write_campaign_xml(
    run: RunDir, campaign: Campaign, results: Sequence[tuple[str, Result]]
) -> Path:
    """Write the JUnit file of a scenario with variants or rounds, and return its path."""
    run.junit.write_text(campaign_xml(campaign, results), encoding="utf-8")
    return run.junit


def junit_document(suites: Sequence[ET.Element]) -> str:
    """The whole file, with the sums of its suites."""
    root = ET.Element("testsuites", name="brokerstorm")
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    root.set("time", f"{sum(float(suite.get('time', '0')) for suite in suites):.3f}")
    root.extend(suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(result: Result, *, allowed: str = CLEAN) -> ET.Element:
    name = ".".join(filter(None, ("brokerstorm", result.scenario, result.variant)))
    suite = ET.Element("testsuite", name=xml_text(name))
    properties = ET.SubElement(suite, "properties")
    facts = {"run_id": result.run_id, "seed": str(result.seed), "verdict": result.verdict.value}
    facts["rate"] = rate_line(result.rate)
    for key, value in {**facts, "command": result.command, **result.environment}.items():
        ET.SubElement(properties, "property", name=xml_text(key), value=xml_text(value))
    by_class: dict[str, list[Finding]] = {}
    for finding in result.findings:
        if finding.count:
            by_class.setdefault(finding.cls, []).append(finding)
    for cls in dict.fromkeys([*CLASSES, *by_class]):
        case = _class_case(suite, name, cls, by_class.get(cls, []), is_expected=cls == allowed)
        if cls in result.untested:
            ET.SubElement(case, "skipped", message=xml_text(result.untested[cls]))
    _coverage_case(suite, name, result, is_decided=allowed in _proved_classes(result))
    for threshold in result.thresholds:
        _threshold_case(suite, name, threshold)
    return counted(suite, sum(result.duration_s.values()))


def _proved_classes(result: Result) -> set[str]:
    """Classes that were proved, violation or not."""
    return {finding.cls for finding in (*result.violations(), *result.excused())}


def _class_case(
    suite: ET.Element, name: str, cls: str, findings: list[Finding], *, is_expected: bool
) -> ET.Element:
    case = ET.SubElement(suite, "testcase", classname=xml_text(name), name=xml_text(cls), time="0")
    told = []
    for finding in findings:
        text = _body(finding)
        if finding.status is Status.VIOLATION and not is_expected:
            _problem(case, "failure", finding, text)
        elif finding.status is Status.SUSPECT:
            _problem(case, "error", finding, text)
        else:
            told.append(f"{'expected' if is_expected else finding.status.value}: {text}")
    if told:
        ET.SubElement(case, "system-out").text = xml_text("\n".join(told), keep_lines=True)
    return case


def _coverage_case(suite: ET.Element, name: str, result: Result, *, is_decided: bool) -> None:
    """Gaps make it an error, unless the run has shown what its variant was to show."""
    case = ET.SubElement(suite, "testcase", classname=xml_text(name), name="coverage", time="0")
    gaps = [words.plain(item.text) for item in result.coverage if not item.ok]
    if gaps and not is_decided:
        element = ET.SubElement(case, "error", type="unknown", message=xml_text("; ".join(gaps)))
        element.text = xml_text("\n".join(gaps), keep_lines=True)
    elif gaps:
        ET.SubElement(case, "system-out").text = xml_text("\n".join(gaps), keep_lines=True)


def _threshold_case(suite: ET.Element, name: str, threshold: Threshold) -> None:
    """Not measured is an error: nothing was shown."""
    title = f"require {threshold.title}"
    case = ET.SubElement(
        suite, "testcase", classname=xml_text(name), name=xml_text(title), time="0"
    )
    text = xml_text(words.plain(threshold.text))
    if threshold.held:
        ET.SubElement(case, "system-out").text = text
    elif threshold.held is None:
        ET.SubElement(case, "error", type="unknown", message=text)
    else:
        ET.SubElement(case, "failure", type="missed", message=text)


def _expectations(campaign: Campaign) -> ET.Element:
    name = f"brokerstorm.{campaign.scenario}"
    suite = ET.Element("testsuite", name=xml_text(name))
    if campaign.reproduction is not None:
        _bug_case(suite, name, campaign.reproduction)
        return counted(suite, 0.0)
    for variant in campaign.variants:
        _variant_case(suite, name, variant)
    return counted(suite, 0.0)


def _bug_case(suite: ET.Element, name: str, reproduction: Reproduction) -> None:
    question, outcome = reproduction.question, reproduction.outcome
    title = f"{question.bug} {question.pair} is reproduced"
    case = ET.SubElement(
        suite, "testcase", classname=xml_text(name), name=xml_text(title), time="0"
    )
    text = f"{outcome.value}: {reproduction.why}"
    if outcome in (Proved.REPRODUCED, Proved.SEEN):
        ET.SubElement(case, "system-out").text = xml_text(text)
        return
    kind = "error" if outcome is Proved.UNKNOWN else "failure"
    ET.SubElement(case, kind, type=outcome.value, message=xml_text(text))


def _variant_case(suite: ET.Element, name: str, variant: VariantResult) -> None:
    title = f"{variant.name} is {variant.expect}"
    case = ET.SubElement(
        suite, "testcase", classname=xml_text(name), name=xml_text(title), time="0"
    )
    if variant.outcome is Expectation.MET:
        return
    kind = "failure" if variant.outcome is Expectation.NOT_MET else "error"
    hits = f"{variant.hits} of {words.plural(variant.rounds, 'round')} with a hit"
    message = f"{variant.outcome.value}: expected {variant.expect}, {hits}"
    message += f"; not played: {', '.join(variant.not_played)}" if variant.not_played else ""
    element = ET.SubElement(case, kind, type=variant.outcome.value, message=xml_text(message))
    reasons = [reason for run in variant.runs for reason in run.reasons]
    element.text = xml_text("\n".join([message, *reasons]), keep_lines=True)


def _problem(case: ET.Element, kind: str, finding: Finding, text: str) -> None:
    message = f"{finding_heading(finding)}: {finding.sentence}"
    element = ET.SubElement(case, kind, type=finding.status.value, message=xml_text(message))
    element.text = xml_text(text, keep_lines=True)


def _body(finding: Finding) -> str:
    lines = [finding_heading(finding), finding.sentence]
    lines += [f"promise: {finding.promise}", f"evidence: {finding.evidence}"]
    if heading := words.causes_heading(finding):
        lines += [f"cause: {heading}", *words.causes_by_fault(finding)]
    for witness in finding.witnesses[:SHOWN_WITNESSES]:
        around = words.sequence(witness.around, 100)
        lines.append(
            f"{words.witness_line(witness, finding.sentence)}  {around}  {witness_facts(witness)}"
        )
    return "\n".join(words.plain(line) for line in lines)


def counted(suite: ET.Element, seconds: float) -> ET.Element:
    """A suite with the numbers of its cases."""
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set(
        "errors", str(sum(c.find("error") is not None and c.find("failure") is None for c in cases))
    )
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    suite.set("time", f"{seconds:.3f}")
    return suite


def xml_text(value: str, *, keep_lines: bool = False) -> str:
    """Without the characters that XML 1.0 does not have."""
    lines = value.split("\n") if keep_lines else [value]
    cleaned = [words.plain(line) for line in lines]
    return "\n".join(
        "".join(c for c in line if c < "\ud800" or "\ue000" <= c <= "\ufffd" or c > "\uffff")
        for line in cleaned
    )
