"""JUnit XML as CI systems read it: counts, failures and errors where they belong."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from analysis.classes import CLASSES
from analysis.report.junit import campaign_xml, run_xml
from tests.report_samples import HOSTILE, campaign, failing, lost_finding, passing, unknown


def case(root: ET.Element, name: str) -> ET.Element:
    found = [element for element in root.iter("testcase") if element.get("name") == name]
    assert len(found) == 1, name
    return found[0]


def kinds(element: ET.Element) -> list[str]:
    return [child.tag for child in element]


@pytest.mark.parametrize(
    ("result", "failures", "errors"), [(failing(), 2, 0), (passing(), 0, 0), (unknown(), 0, 2)]
)
def test_counts(result: object, failures: int, errors: int) -> None:
    root = ET.fromstring(run_xml(result))  # type: ignore[arg-type]
    (suite,) = root
    for element in (root, suite):
        assert int(element.get("tests", "")) == len(CLASSES) + 1 == len(suite.findall("testcase"))
        assert int(element.get("failures", "")) == failures == len(list(root.iter("failure")))
        assert int(element.get("errors", "")) == errors == len(list(root.iter("error")))


def test_violation_is_a_failure_with_its_witnesses() -> None:
    failure = case(ET.fromstring(run_xml(failing())), "premature-then-repeat").find("failure")
    assert failure is not None
    assert "premature-then-repeat: 3 in 1 episode" in (failure.get("message") or "")
    assert "... 0 1 [4] 2 3 4 5 ..." in (failure.text or "")


def test_suspect_and_a_gap_in_coverage_are_errors_never_green() -> None:
    root = ET.fromstring(run_xml(unknown()))
    assert kinds(case(root, "acked-lost")) == ["error"]
    assert kinds(case(root, "coverage")) == ["error"]


def test_permitted_passes_and_says_so() -> None:
    element = case(ET.fromstring(run_xml(failing())), "write-duplicate")
    assert kinds(element) == ["system-out"]


def test_a_class_that_could_not_be_shown_is_skipped_with_the_reason() -> None:
    root = ET.fromstring(
        run_xml(replace(passing(), untested={"stall": "not applicable: no consumer read"}))
    )
    (skipped,) = case(root, "stall")
    assert (skipped.tag, skipped.get("message")) == ("skipped", "not applicable: no consumer read")
    assert root.get("skipped") == "1"


def test_every_class_looked_for_is_a_case() -> None:
    root = ET.fromstring(run_xml(passing()))
    for cls in CLASSES:
        assert kinds(case(root, cls)) == []


def test_hostile_text_stays_text() -> None:
    witness = replace(lost_finding().witnesses[0], sentence=HOSTILE + "\x00\ud800\uffff]]>")
    bad = replace(lost_finding(), witnesses=(witness,))
    root = ET.fromstring(run_xml(failing(findings=[bad], scenario=HOSTILE, command=HOSTILE)))
    assert "<script>" in (case(root, "acked-lost")[0].text or "")
    assert not list(root.iter("script"))


def test_campaign_expected_violation_is_no_failure() -> None:
    root = ET.fromstring(campaign_xml(campaign(), [("unsafe", failing()), ("safe", passing())]))
    assert [suite.get("name") for suite in root] == [
        "brokerstorm.kafka-acks1",
        "brokerstorm.kafka-acks1.unsafe",
        "brokerstorm.kafka-acks1.safe",
    ]
    assert kinds(case(root[0], "unsafe is acked-lost")) == []
    assert kinds(case(root[1], "acked-lost")) == ["system-out"]


def test_campaign_not_as_expected_fails() -> None:
    root = ET.fromstring(campaign_xml(campaign(met=False), []))
    assert kinds(case(root, "unsafe is acked-lost")) == ["failure"]
    assert kinds(case(root, "safe is clean")) == []
