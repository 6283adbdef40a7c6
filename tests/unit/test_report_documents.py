"""The --json documents against their published schemas, and result.json read back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from analysis.findings import Finding, Status, Verdict
from analysis.report import documents
from analysis.report.campaign_words import comparison_rows
from analysis.report.compare import compare
from analysis.report.explain import every_class
from analysis.report.trace import trace
from analysis.verdict.campaign import Expectation, RunSummary, VariantResult
from harness.errors import UsageError
from harness.rundir import RunDir, read_json, write_json
from tests.planted.tiny import History
from tests.report_samples import campaign, failing, passing, unknown


def check(document: dict[str, Any], schema: str) -> None:
    """Against the published file, after a round trip through text."""
    loaded = json.loads((documents.SCHEMA_FOLDER / schema).read_text())
    jsonschema.Draft202012Validator.check_schema(loaded)
    text = json.dumps(document, allow_nan=False)
    jsonschema.validate(json.loads(text), loaded, cls=jsonschema.Draft202012Validator)


def test_rounds_that_were_not_played_leave_a_clean_variant_undecided() -> None:
    """What was found is found; that nothing was found is said only when every round was looked
    at."""
    clean, lossy = rounds(passing()), rounds(failing())
    whole = VariantResult.from_runs("safe", "clean", clean)
    cut = VariantResult.from_runs("safe", "clean", clean, not_played=["safe-2"])
    assert (whole.outcome, cut.outcome) == (Expectation.MET, Expectation.UNDECIDED)
    shown = VariantResult.from_runs("unsafe", "acked-lost", lossy, not_played=["unsafe-2"])
    assert shown.outcome is Expectation.MET
    assert ("not played", ["safe-2", "unsafe-2"]) in comparison_rows([cut, shown])
    assert "not played" not in dict(comparison_rows([whole]))


def test_published_schemas_are_what_the_code_says() -> None:
    made = documents.schemas()
    published = {
        path.name: json.loads(path.read_text()) for path in documents.SCHEMA_FOLDER.iterdir()
    }
    assert published == json.loads(json.dumps(made)), "run `make docs`"


@pytest.mark.parametrize("result", [failing(), passing(), unknown()], ids=lambda r: r.verdict.value)
def test_run_document(result: Any) -> None:
    document = documents.run_document(result)
    check(document, "run.json")
    for key in ("schema_version", "run_id", "verdict", "exit_code", "reasons"):
        assert key in document
    assert set(document["sends"]) >= {"attempted", "ok", "fail", "info"}
    assert set(document["rate"]) >= {"target_per_s", "achieved_per_s"}
    assert all(set(f) >= {"class", "status", "count", "witnesses"} for f in document["findings"])
    assert all(
        set(f) >= {"kind", "target", "t_s", "effective", "healed"} for f in document["faults"]
    )


def test_campaign_document() -> None:
    document = documents.campaign_document(campaign())
    check(document, "campaign.json")
    wanted = {"name", "expect", "as_expected", "rounds", "hits", "first_witness_s", "runs"}
    assert all(set(variant) >= wanted for variant in document["variants"])
    assert document["runs"] == ["unsafe-1", "safe-1"]
    assert [v["first_witness_s"] for v in document["variants"]] == [8.012, None]


def test_first_witness_is_of_the_expected_class_even_if_another_came_earlier() -> None:
    run = rounds(failing())[0]
    assert run.first_witness("clean") == ("acked-lost", run.witnesses["acked-lost"])
    late = VariantResult.from_runs("unsafe", "premature-then-repeat", [run])
    assert late.first_witness_s == 30.112


def test_reference_page_names_every_schema_and_status() -> None:
    text = Path(__file__).parents[2].joinpath("docs/reference/json.md").read_text()
    for name in (*documents.schemas(), *Status, *Verdict, *Expectation):
        assert f"`{name}`" in text, name


def test_other_documents(tmp_path: Path) -> None:
    run = History().sent(3).log(0, 1, 2).deliver(0, 1, 2).write(tmp_path / "run")
    check(documents.trace_document(trace(run, "1/0/1")), "trace.json")
    check(documents.comparison_document(compare(failing(), passing())), "compare.json")
    check(documents.explanation_document(every_class()), "explain.json")


def test_a_schema_refuses_what_it_should() -> None:
    document = documents.run_document(failing())
    for broken in (
        {**document, "verdict": "maybe"},
        {k: v for k, v in document.items() if k != "exit_code"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            check(broken, "run.json")


def test_nan_never_reaches_the_text(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    odd = failing(latency_ms={"p50": math.nan, "max": 3.0}, percentiles=[(0.5, math.inf)])
    documents.write_result(run, odd)
    assert "NaN" not in run.result.read_text()
    document = read_json(run.result)
    assert document["latency_ms"] == {"max": 3.0}
    assert document["percentiles"] == [[0.5, None]]


def test_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    documents.write_result(run, failing())
    assert documents.read_result(run) == failing()


def test_campaign_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    documents.write_campaign(run, campaign())
    assert documents.read_campaign(run) == campaign()
    assert [r.root.name for r in run.rounds()] == ["unsafe-1", "safe-1"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema_version": 99}, "schema_version is 99, this version reads 1"),
        ({"verdict": "maybe"}, "verdict"),
        ({"faults": 3}, "faults"),
    ],
)
def test_a_result_that_cannot_be_read_says_where(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    run = RunDir(tmp_path)
    documents.write_result(run, failing())
    write_json(run.result, {**read_json(run.result), **change})
    with pytest.raises(UsageError, match=says) as caught:
        documents.read_result(run)
    assert "analyze" in caught.value.hint


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"findings": []}'])
def test_json_of_another_shape_is_a_usage_error(tmp_path: Path, text: str) -> None:
    run = RunDir(tmp_path)
    run.result.write_text(text)
    with pytest.raises(UsageError):
        documents.read_result(run)


def test_what_was_never_judged_says_so(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with pytest.raises(UsageError, match="has not been judged"):
        documents.read_result(run)
    write_json(run.campaign, {"schema_version": 1, "runs": ["a-1"], "command": "x"})
    with pytest.raises(UsageError, match="has not been judged"):
        documents.read_campaign(run)


def rounds(*results: Any) -> list[RunSummary]:
    return [
        RunSummary.from_result(r, path=f"v-{i}", round_number=i)
        for i, r in enumerate(results, start=1)
    ]


@pytest.mark.parametrize(
    ("expect", "results", "outcome", "hits"),
    [
        ("clean", [passing()], "as expected", 0),
        ("clean", [passing(), failing()], "not as expected", 1),
        ("clean", [passing(), unknown()], "unknown", 0),
        ("clean", [], "unknown", 0),
        ("acked-lost", [failing()], "as expected", 1),
        ("acked-lost", [passing(), failing()], "as expected", 1),
        ("acked-lost", [passing()], "not as expected", 0),
        ("acked-lost", [unknown()], "unknown", 0),
        ("phantom", [failing()], "not as expected", 0),
    ],
)
def test_what_a_variant_showed_against_what_it_should(
    expect: str, results: list[Any], outcome: str, hits: int
) -> None:
    variant = VariantResult.from_runs("v", expect, rounds(*results))
    assert (variant.outcome.value, variant.hits) == (outcome, hits)
    assert variant.as_expected is (outcome == "as expected")


def excused(status: Status) -> Any:
    """A run that passes and shows a class that breaks no promise."""
    one = Finding(
        cls="write-duplicate", status=status, count=3, sentence="", promise="", evidence=""
    )
    return passing(findings=[one])


@pytest.mark.parametrize("status", [Status.PERMITTED, Status.APPLICATION_ERROR, Status.INFO])
def test_a_variant_may_expect_what_breaks_no_promise(status: Status) -> None:
    met = status is not Status.INFO
    expecting = VariantResult.from_runs("v", "write-duplicate", rounds(excused(status)))
    assert (expecting.hits, expecting.as_expected) == (int(met), met)
    clean = VariantResult.from_runs("v", "clean", rounds(excused(status)))
    assert (clean.hits, clean.as_expected) == (0, True)
    assert clean.runs[0].verdict is Verdict.PASS


def test_the_most_urgent_exit_code_wins() -> None:
    base = campaign()
    assert base.exit_code == 0
    assert campaign(met=False).exit_code == 1
    for code in (5, 130, 4):
        runs = rounds(failing(exit_code=code))
        variants = [VariantResult.from_runs("unsafe", "acked-lost", runs), *base.variants[1:]]
        assert type(base)(**{**_fields(base), "variants": variants}).exit_code == code


def _fields(judged: Any) -> dict[str, Any]:
    return {name: getattr(judged, name) for name in judged.__dataclass_fields__}
