"""Judged runs as the command line shows them again: show, compare, list, and the summary of a
campaign."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from analysis.findings import Result
from analysis.report.documents import schemas, write_result
from cli import main
from commands.reading import planned_rounds
from experiments.judging import RoundOutcome, outcome_of, summarize
from experiments.plans import read_plan
from harness.contracts.plan import Plan
from harness.plan.build import build_plans
from harness.rundir import RunDir, point_latest, read_json, write_json
from harness.scenario.file import load_scenario
from tests.report_samples import failing, passing


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def judged(run: RunDir, plan: Plan, result: Result) -> RoundOutcome:
    run.create()
    write_json(run.plan, plan.model_dump())
    write_json(run.manifest, {"status": "complete"})
    named = replace(result, run_id=run.run_id, scenario=plan.scenario, variant=plan.variant)
    write_result(run, named)
    return outcome_of(plan, run, named, number=1)


@pytest.fixture
def campaign(tmp_path: Path) -> RunDir:
    """kafka-quick, both variants as they should be."""
    plans = build_plans(load_scenario("kafka-quick"), seed=7)
    root = RunDir(tmp_path / "20260101-000000-kafka-quick").create()
    results = {"unsafe": failing(), "safe": passing()}
    rounds = [judged(RunDir(root.root / f"{p.variant}-1"), p, results[p.variant]) for p in plans]
    summarize(
        root,
        plans,
        rounds,
        command="brokerstorm run kafka-quick --seed 7",
        about="why",
        duration_s=9.0,
    )
    point_latest(root)
    return root


@pytest.mark.long
def test_a_campaign_is_shown_again(
    campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = answer(capsys, "show", "--run-dir", str(tmp_path))
    assert code == 0, "both variants came out as expected"
    assert "unsafe" in out
    assert "acked-lost" in out
    assert "brokerstorm run kafka-quick --seed 7" in out
    assert campaign.report.exists()
    assert campaign.junit.exists()
    code, out, _ = answer(capsys, "show", "--run-dir", str(tmp_path), "--json")
    document = json.loads(out)
    jsonschema.validate(document, schemas()["campaign.json"])
    assert [(v["name"], v["as_expected"]) for v in document["variants"]] == [
        ("unsafe", True),
        ("safe", True),
    ]


@pytest.mark.long
def test_one_round_of_a_campaign(
    campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = answer(capsys, "show", "latest/unsafe-1", "--run-dir", str(tmp_path), "--json")
    assert code == 1
    jsonschema.validate(json.loads(out), schemas()["run.json"])
    code, _, _ = answer(capsys, "show", "latest/safe-1", "--run-dir", str(tmp_path))
    assert code == 0


def test_a_missing_round_leaves_the_campaign_undecided(tmp_path: Path) -> None:
    plans = build_plans(load_scenario("kafka-quick"), seed=7)
    root = RunDir(tmp_path / "cut-short").create()
    only = judged(RunDir(root.root / "unsafe-1"), plans[0], failing())
    summary = summarize(root, plans, [only], command="brokerstorm run x", about="", duration_s=1.0)
    assert [variant.rounds for variant in summary.variants] == [1, 0]
    assert summary.exit_code == 3
    assert [run.run_id for run in root.rounds()] == ["unsafe-1"]


@pytest.mark.long
def test_compare_takes_two_runs_or_two_campaigns(
    campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["--run-dir", str(tmp_path)]
    code, out, _ = answer(capsys, "compare", "latest/unsafe-1", "latest/safe-1", *base)
    assert code == 0
    assert "acked-lost" in out
    code, _, err = answer(capsys, "compare", "latest", "latest/safe-1", *base)
    assert code == 2
    assert "latest/unsafe-1, latest/safe-1" in err
    code, out, _ = answer(capsys, "compare", "latest", "latest", *base, "--json")
    assert code == 0
    document = json.loads(out)
    jsonschema.validate(document, schemas()["compare.json"])
    assert {row["section"] for row in document["rows"]} == {"unsafe", "safe"}


def test_what_was_typed_wins_over_the_environment(
    campaign: RunDir,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BROKERSTORM_RUN_DIR", str(tmp_path / "elsewhere"))
    assert answer(capsys, "--run-dir", str(tmp_path), "show")[0] == 0
    assert answer(capsys, "show", "--run-dir", str(tmp_path))[0] == 0
    assert answer(capsys, "show")[0] == 2


def test_copied_runs_have_a_latest_one_without_the_link(
    campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latest").unlink()
    for name in ("show", "show latest", "show latest/safe-1"):
        assert answer(capsys, *name.split(), "--run-dir", str(tmp_path))[0] == 0, name
    RunDir(tmp_path / "mine").create()
    write_json(RunDir(tmp_path / "mine").manifest, {"status": "complete"})
    code, _, err = answer(capsys, "show", "--run-dir", str(tmp_path))
    assert code == 2
    assert "has several runs and no link 'latest'" in err
    assert campaign.run_id in err


def test_a_printed_command_is_one_line_however_long(
    campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = read_json(campaign.campaign)
    command = shlex.join(
        ["brokerstorm", "run", "kafka-quick", "--set", f"faults=[{'{fault: kill}, ' * 20}]"]
    )
    write_json(campaign.campaign, document | {"command": command})
    _, out, _ = answer(capsys, "show", "--run-dir", str(tmp_path))
    (line,) = [line for line in out.splitlines() if line.startswith("repeat ")]
    assert shlex.split(line)[1:] == shlex.split(command)


@pytest.mark.long
def test_replay_needs_a_single_run(
    campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = answer(capsys, "run", "--replay", "latest", "--run-dir", str(tmp_path))
    assert code == 2
    assert f"{campaign.root.name}/unsafe-1, {campaign.root.name}/safe-1" in err


@pytest.mark.long
def test_the_list_says_how_each_variant_came_out(
    campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = answer(capsys, "list", "runs", "--run-dir", str(tmp_path))
    assert "unsafe as expected, safe as expected" in out


@pytest.mark.long
def test_html_says_where_the_page_is(
    campaign: RunDir,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    code, out, _ = answer(capsys, "show", "--html", "--run-dir", str(tmp_path))
    assert (code, out.strip()) == (0, str(campaign.report))
    assert opened == [campaign.report.as_uri()]


@pytest.mark.long
@pytest.mark.parametrize(
    "text", ["{not json", '{"schema_version": 99}', "[]", '{"schema_version": 1}']
)
def test_damaged_results_are_a_line(
    text: str, campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (campaign.root / "safe-1" / "result.json").write_text(text)
    code, out, err = answer(capsys, "show", "latest/safe-1", "--run-dir", str(tmp_path))
    assert (code, out) == (2, "")
    assert "result.json" in err
    assert "Traceback" not in err


@pytest.mark.long
@pytest.mark.parametrize("text", ["{not json", "{}", '{"schema_version": 1}'])
def test_damaged_plans_are_a_line(
    text: str, campaign: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (campaign.root / "safe-1" / "plan.json").write_text(text)
    code, _, err = answer(capsys, "run", "--replay", "latest/safe-1", "--run-dir", str(tmp_path))
    assert code == 2
    assert "plan.json" in err
    assert len(err.splitlines()[0]) < 300
    assert "Traceback" not in err


@pytest.mark.long
def test_rounds_that_were_never_run_are_not_forgotten(tmp_path: Path) -> None:
    plans = build_plans(load_scenario("kafka-quick"), seed=7)
    root = RunDir(tmp_path / "cut-short").create()
    for plan in plans:
        write_json(RunDir(root.root / f"{plan.variant}-1").plan, plan.model_dump())
    only = judged(RunDir(root.root / "unsafe-1"), plans[0], failing())
    summarize(root, plans, [only], command="brokerstorm run x", about="", duration_s=1.0)
    assert [read_plan(run).variant for run in planned_rounds(root)] == ["unsafe", "safe"]
