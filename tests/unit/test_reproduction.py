"""Is a bug reproduced? Arms of rounds as they might come, and what has to be said of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from analysis.report.documents import (
    SCHEMA_FOLDER,
    campaign_document,
    read_campaign,
    write_campaign,
)
from analysis.report.html import campaign_page
from analysis.report.junit import campaign_xml
from analysis.report.terminal import console
from analysis.report.terminal_repro import print_reproduction
from analysis.verdict.campaign import Campaign, Proved, Question, RunSummary
from analysis.verdict.reproduction import ReproductionAnswer, answer
from experiments.bundle.contents import Judged
from experiments.bundle.issue import _hit_rate, _main
from harness.rundir import RunDir
from tests.report_samples import failing, passing, unknown

QUESTION = Question(
    bug="acks1-loses",
    report="https://example.org/issues/1",
    pair="old-new",
    expect="acked-lost",
    affected="old",
    fixed="new",
    counter="sends_open_at_fault",
    floor=100,
    rounds=4,
    quick=False,
)
QUICK = replace(QUESTION, quick=True)
MET = {"sends_open_at_fault": 1234}


def runs(pattern: str) -> list[RunSummary]:
    """A letter a round: hit, clean, unknown, exposed too little (clean), not told of its
    exposure."""
    made = {
        "h": failing(exposure=MET),
        "c": passing(exposure=MET),
        "u": unknown(exposure=MET),
        "e": passing(exposure={"sends_open_at_fault": 99}),
        "n": passing(exposure={}),
    }
    return [
        RunSummary.from_result(made[letter], path=f"r-{number}", round_number=number)
        for number, letter in enumerate(pattern, start=1)
    ]


def witnessed(sighted: str | None, unread: str = "") -> RunSummary:
    """A round with the class, in which the text of the bug was looked for."""
    return RunSummary.from_result(
        failing(exposure=MET), path="r-1", round_number=1, sighting=(sighted or "", unread)
    )


def test_another_bug_of_the_class_is_no_hit() -> None:
    question = replace(QUESTION, witness="SendMessages")
    hit, other = witnessed("p-1 waits in SendMessages"), witnessed("")
    found = answer(question, [hit] * 4, [other] * 4)
    assert found.reproduction.outcome is Proved.REPRODUCED
    assert [arm.hits for arm in found.arms] == [4, 0]
    assert not found.arms[1].as_expected, "what is another bug is not clean"
    assert answer(question, [other] * 4, [other] * 4).reproduction.outcome is Proved.NOT_REPRODUCED


def test_a_round_without_the_evidence_to_tell_bugs_apart_does_not_count() -> None:
    question = replace(QUESTION, witness="SendMessages")
    unsure = witnessed("", "no stacks of producer-1 were available")
    found = answer(question, [unsure] * 4, runs("cccc"))
    assert found.reproduction.outcome is Proved.UNKNOWN
    assert (
        "not known whether 'SendMessages' is in it: no stacks of producer-1"
        in found.reproduction.why
    )
    # Nothing is left open where the text was found, or where the class was not.
    assert answer(question, [witnessed("a log")] * 4, runs("cccc")).reproduction.reproduced


def test_a_bug_that_needs_no_fault_needs_no_exposure() -> None:
    question = replace(QUESTION, counter="", floor=0)
    assert asked(question, "hhhh", "nnnn").reproduction.reproduced


def asked(question: Question, affected: str, fixed: str) -> ReproductionAnswer:
    return answer(question, runs(affected), runs(fixed), versions=("1.0.0", "1.0.1"))


@pytest.mark.parametrize(
    ("affected", "fixed", "outcome", "why"),
    [
        ("hhhh", "cccc", Proved.REPRODUCED, "4 of 4 against 0 of 4"),
        (
            "hhch",
            "cccc",
            Proved.NOT_REPRODUCED,
            "3 of 4 against 0 of 4 may be chance: p 0.143 is above 0.05",
        ),
        (
            "cccc",
            "cccc",
            Proved.NOT_REPRODUCED,
            "no acked-lost in the affected version: 0 of 4 against 0 of 4",
        ),
        (
            "hhhh",
            "cchc",
            Proved.NOT_REPRODUCED,
            "acked-lost in the fixed version too: 4 of 4 against 1 of 4",
        ),
        ("hhhh", "ccc", Proved.UNKNOWN, "3 of 4 rounds of new count"),
        ("hheehh", "cccc", Proved.REPRODUCED, "4 of 4 against 0 of 4"),
        (
            "hhh",
            "cccu",
            Proved.UNKNOWN,
            "3 of 4 rounds of old count, 3 of 4 rounds of new count; could not",
        ),
        ("hhhh", "ccce", Proved.UNKNOWN, "sends_open_at_fault 99, at least 100 needed"),
        ("hhhh", "cccn", Proved.UNKNOWN, "no worker reports sends_open_at_fault"),
        ("", "", Proved.UNKNOWN, "0 of 4 rounds of old count"),
    ],
)
def test_what_the_rounds_prove(affected: str, fixed: str, outcome: Proved, why: str) -> None:
    found = asked(QUESTION, affected, fixed)
    assert found.reproduction.outcome is outcome
    assert why in found.reproduction.why
    complete = outcome is not Proved.UNKNOWN
    assert (found.reproduction.p_value is not None) == complete
    assert all((arm.rate is not None) == complete for arm in found.arms)


@pytest.mark.parametrize(
    ("affected", "fixed", "outcome"),
    [
        ("h", "c", Proved.SEEN),
        ("cch", "c", Proved.SEEN),
        ("h", "h", Proved.NOT_REPRODUCED),
        ("cccc", "", Proved.NOT_REPRODUCED),
        ("h", "", Proved.UNKNOWN),
        ("h", "e", Proved.UNKNOWN),
        ("cc", "", Proved.UNKNOWN),
    ],
)
def test_an_early_stop_has_neither_rate_nor_p(affected: str, fixed: str, outcome: Proved) -> None:
    found = asked(QUICK, affected, fixed)
    assert found.reproduction.outcome is outcome
    assert found.reproduction.p_value is None
    assert [arm.rate for arm in found.arms] == [None, None]


def campaign(question: Question, affected: str, fixed: str) -> Campaign:
    found = asked(question, affected, fixed)
    return Campaign(
        campaign_id="20261121-100000-acks1-loses",
        scenario="acks1-loses",
        about="acks=1 loses acknowledged messages",
        seed=7,
        variants=list(found.arms),
        duration_s={"all": 60.0},
        command="brokerstorm repro acks1-loses --seed 7",
        reproduction=found.reproduction,
    )


@pytest.mark.parametrize(
    ("question", "affected", "fixed", "exit_code", "reproduced"),
    [
        (QUESTION, "hhhh", "cccc", 0, True),
        (QUESTION, "cccc", "cccc", 1, False),
        (QUESTION, "hhhh", "ccc", 3, None),
        (QUICK, "h", "c", 0, None),
    ],
)
def test_the_document(
    tmp_path: Path,
    question: Question,
    affected: str,
    fixed: str,
    exit_code: int,
    reproduced: bool | None,
) -> None:
    whole = campaign(question, affected, fixed)
    document = campaign_document(whole)
    jsonschema.validate(document, json.loads((SCHEMA_FOLDER / "campaign.json").read_text()))
    assert document["exit_code"] == whole.exit_code == exit_code
    assert (document["bug"], document["reproduced"]) == ("acks1-loses", reproduced)
    assert [(v["version"], v["role"]) for v in document["variants"]] == [
        ("1.0.0", "affected"),
        ("1.0.1", "fixed"),
    ]
    write_campaign(RunDir(tmp_path), whole)
    assert read_campaign(RunDir(tmp_path)) == whole


def shown(whole: Campaign) -> str:
    out = io.StringIO()
    print_reproduction(console(out, color=False), whole)
    return out.getvalue()


def test_the_summary_sets_the_arms_side_by_side() -> None:
    text = shown(campaign(QUESTION, "hhehh", "cccc"))
    for words in (
        "REPRODUCED",
        "https://example.org/issues/1",
        "affected: old",
        "fixed: new",
        "1.0.0",
        "4, and 1 not counted",
        "100 %  [39.8 %, 100 %]",
        "0 %  [0 %, 60.2 %]",
        "1,234  (floor 100)",
        "0.029  (Fisher's exact test, two-sided)",
        "first acked-lost in old",
    ):
        assert words in text, words


def test_the_summary_of_an_early_stop_says_so() -> None:
    text = shown(campaign(QUICK, "h", "c"))
    assert "SEEN" in text
    assert "stopped early, so neither rate nor p" in text
    assert "rate [95 %]" not in text
    assert "Fisher" not in text


def test_the_page_and_junit_say_the_same() -> None:
    whole = campaign(QUESTION, "hhehh", "cccc")
    page = campaign_page(whole)
    for words in (
        "reproduced",
        "affected: old",
        "[39.8 %, 100 %]",
        "0.029",
        "not counted: sends_open_at_fault",
    ):
        assert words in page, words
    suite = ET.fromstring(campaign_xml(whole, []))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")
    for question, affected, fixed, key in (
        (QUESTION, "cccc", "cccc", "failures"),
        (QUESTION, "hhhh", "ccc", "errors"),
    ):
        assert ET.fromstring(campaign_xml(campaign(question, affected, fixed), [])).get(key) == "1"


def test_the_report_to_paste_says_what_the_arms_are(tmp_path: Path) -> None:
    known = campaign(QUESTION, "hhhh", "cccc")
    arms = [replace(arm, about=f"acks of {arm.name}") for arm in known.variants]
    judged = Judged(root=RunDir(tmp_path), rounds=[], campaign=replace(known, variants=arms))
    assert "| about | acks of old | acks of new |" in "\n".join(_hit_rate(judged))


def test_the_report_to_paste_is_about_the_class_that_was_looked_for(tmp_path: Path) -> None:
    judged = Judged(root=RunDir(tmp_path), rounds=[], campaign=campaign(QUESTION, "hhhh", "cccc"))
    lost = next(iter(failing().violations()))
    died = replace(lost, cls="client-died")
    result = replace(failing(), findings=[died, lost])
    assert _main(judged, result) == lost
    assert _main(replace(judged, campaign=None), result) == died
