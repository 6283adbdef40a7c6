"""The rounds of `repro`: their order, which are run again, and where it stops."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from analysis.findings import Result
from analysis.report.documents import write_result
from analysis.verdict.campaign import Campaign
from experiments.campaign import CampaignRunner
from experiments.experiment import Prepared
from experiments.judging import arm_versions, client_version
from experiments.plans import read_scenario
from experiments.repro import rounds as repro
from experiments.repro.request import ReproRequest, replaced_versions
from harness.contracts.plan import Plan
from harness.errors import EnvironmentNotReady, UsageError
from harness.progress.view import BaseProgress
from harness.rundir import RunDir
from harness.scenario.file import variants
from harness.toolchains.own_builds import own_build
from tests.lent import settings
from tests.report_samples import failing, passing, unknown

TEXT = """
name: lost
rounds: 4
bug:
  report: https://example.org/issues/1
  exposure: {counter: faults_effective, floor: 3}
  pairs:
    old-new: {affected: old, fixed: new}
load: {duration: 5s}
variants:
  old: {expect: acked-lost, override: {load: {producers: {p: {client_version: 1.0.0}}}}}
  new: {override: {load: {producers: {p: {client_version: 1.0.1}}}}}
"""
MET, NOT_MET = {"faults_effective": 3}, {"faults_effective": 2}
UNEXPOSED = passing(exposure=NOT_MET)
HIT, CLEAN = failing(exposure=MET), passing(exposure=MET)
Script = Callable[[Plan, str], Result]


class Played:
    """A campaign whose rounds come out as a script says; keeps what was asked of it."""

    is_stopped = False

    def __init__(self, script: Script) -> None:
        self.script = script
        self.plans: list[Plan] = []
        self.names: list[str] = []
        self.closed = 0
        self.progress = Notes()

    def run_round(
        self, plan: Plan, run: RunDir, *, is_last: bool = False, command: str = ""
    ) -> Result:
        result = replace(self.script(plan, run.run_id), run_id=run.run_id)
        self.plans.append(plan)
        self.names.append(run.run_id)
        write_result(run.create(), result)
        return result

    def with_rates(self, plans: list[Plan], root: RunDir) -> list[Plan]:
        return plans

    def close(self) -> None:
        self.closed += 1


class Notes(BaseProgress):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def _print(self, text: str) -> None:
        self.lines.append(text)


def request(file: Path, **changes: Any) -> ReproRequest:
    values: dict[str, Any] = {
        "bug": str(file), "pair": "", "rounds": None, "quick": False, "seed": 7, "overrides": (),
        "client_jars": None, "keep_up": False, "offline": False, "runtime": "auto", "master": None,
    }  # fmt: skip
    return ReproRequest(**{**values, **changes})


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Prepared]:
    checked: Any = SimpleNamespace(warnings=(), require=lambda: checked)
    monkeypatch.setattr(repro, "preflight", lambda *_, **_more: checked)
    file = tmp_path / "lost.yaml"
    file.write_text(TEXT)

    def ask(**changes: Any) -> Prepared:
        return repro.prepare_repro(settings(tmp_path / "runs"), request(file, **changes))

    return ask


def go(asked: Prepared, script: Script) -> tuple[Played, list[str], Campaign]:
    """What was played, told, and what it says together."""
    played = Played(script)
    summary = asked.play(cast("CampaignRunner", played))
    assert isinstance(summary, Campaign)
    return played, played.progress.lines, summary


def by_arm(plan: Plan, name: str) -> Result:
    return HIT if plan.variant == "old" else CLEAN


def test_the_arms_take_turns_with_the_same_seeds(asked: Callable[..., Prepared]) -> None:
    played, notes, whole = go(asked(), by_arm)
    assert played.names == ["old-1", "new-1", "old-2", "new-2", "old-3", "new-3", "old-4", "new-4"]
    assert [plan.seed for plan in played.plans] == [7, 7, 8, 8, 9, 9, 10, 10]
    assert len({plan.run_tag for plan in played.plans}) == 8
    assert notes[0] == "round 1 of 4 · affected 1.0.0 · acked-lost 1,486, first after 8.0 s"
    assert notes[1] == "round 1 of 4 · fixed 1.0.1 · no acked-lost"
    assert (whole.exit_code, whole.reproduction and whole.reproduction.reproduced) == (0, True)
    assert [run.round for run in whole.variants[0].runs] == [1, 2, 3, 4]


def test_a_round_that_met_too_little_is_run_again_with_its_seed(
    asked: Callable[..., Prepared],
) -> None:
    def script(plan: Plan, name: str) -> Result:
        return passing(exposure=NOT_MET) if name == "new-2" else by_arm(plan, name)

    played, notes, whole = go(asked(), script)
    assert played.names[3:5] == ["new-2", "new-2-again-1"]
    first, again = played.plans[3], played.plans[4]
    assert (first.seed, first.faults) == (again.seed, again.faults)
    assert first.run_tag != again.run_tag
    assert notes[3].endswith("fixed 1.0.1 · not counted: faults_effective 2, at least 3 needed")
    assert whole.exit_code == 0


def test_it_gives_up_after_two_more_attempts(asked: Callable[..., Prepared]) -> None:
    played, _, whole = go(asked(), lambda plan, name: unknown(exposure=MET, findings=[]))
    assert played.names == ["old-1", "old-1-again-1", "old-1-again-2"]
    assert whole.exit_code == 3


def test_a_cluster_in_trouble_is_replaced_once_something_has_run(
    asked: Callable[..., Prepared],
) -> None:
    def script(plan: Plan, name: str) -> Result:
        if name == "new-1":
            raise EnvironmentNotReady("no leader for orders-3")
        return by_arm(plan, name)

    played, notes, _ = go(asked(), script)
    assert played.closed == 1
    assert played.names[:2] == ["old-1", "new-1-again-1"]
    assert "the cluster was not ready: no leader for orders-3" in notes[1]
    with pytest.raises(EnvironmentNotReady):
        go(asked(), lambda plan, name: script(plan, "new-1"))


def test_quick_stops_at_the_first_hit_and_one_fixed_round(asked: Callable[..., Prepared]) -> None:
    played, _, whole = go(asked(quick=True), lambda plan, name: HIT if name == "old-3" else CLEAN)
    assert played.names == ["old-1", "old-2", "old-3", "new-3"]
    assert (whole.exit_code, whole.variants[0].rate) == (0, None)


def test_what_was_asked_is_written_down_first(asked: Callable[..., Prepared]) -> None:
    case = asked()
    document = json.loads(case.root.campaign.read_text())
    assert document["reproduction"]["question"]["rounds"] == 4
    assert document["runs"] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 3}, "--rounds 3: even all against none would not reach p <= 0.05"),
        ({"pair": "new-old"}, "lost has no pair 'new-old'"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    asked: Callable[..., Prepared], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        asked(**changes)


def test_one_round_is_enough_for_one_look(asked: Callable[..., Prepared]) -> None:
    question = asked(quick=True, rounds=1).question
    assert question is not None
    assert question.rounds == 1


def test_versions_that_no_repository_has_come_from_a_folder(tmp_path: Path) -> None:
    file, jars = tmp_path / "lost.yaml", tmp_path / "jars"
    java = TEXT.replace("client_version", "client: kafka-clients, client_version")
    file.write_text(java.replace("1.0.0", "jars:0.5").replace("1.0.1", "jars:0.6"))
    scenario = read_scenario(str(file))
    question = repro._question(scenario, request(file))
    for version in ("0.5", "0.6"):
        with pytest.raises(UsageError, match=f"there are none in .*{version}"):
            repro._plans(scenario, question, 7, jars)
        (jars / version).mkdir(parents=True)
        (jars / version / "client-0.7.jar").touch()
        (jars / version / f"client-{version}1.jar").touch()
        with pytest.raises(UsageError) as caught:
            repro._plans(scenario, question, 7, jars)
        assert (
            f"is about version {version}, and no jar in {jars / version} has it in its name"
            in str(caught.value)
        )
        assert "client-0.7.jar" in str(caught.value)
        (jars / version / f"client-{version}.jar").touch()
    old, new = repro._plans(scenario, question, 7, jars)[0]
    own = own_build(old.producers[0].client_version)
    assert own is not None
    assert (own.path, own.number) == (jars / "0.5", "0.5")
    assert (client_version(old), client_version(new)) == ("0.5", "0.6")
    with pytest.raises(UsageError, match=r"DIR/0\.5"):
        repro._plans(scenario, question, 7, None)


def test_a_version_of_the_user_takes_the_place_of_the_one_in_an_arm(tmp_path: Path) -> None:
    file = tmp_path / "lost.yaml"
    file.write_text(TEXT)
    wanted = request(file, fixed="2.4.0")
    scenario = read_scenario(str(file))
    replaced = [*replaced_versions(scenario, repro._question(scenario, wanted), wanted)]
    again = read_scenario(str(file), replaced)
    found = {name: each.load.producers["p"].client_version for name, each, _ in variants(again)}
    assert found == {"old": "1.0.0", "new": "2.4.0"}
    assert "--fixed 2.4.0" in repro._repeated(
        settings(tmp_path), wanted, repro._question(again, wanted), 7
    )


def test_arms_that_differ_in_their_brokers_are_versions_of_these(tmp_path: Path) -> None:
    file = tmp_path / "lost.yaml"
    of_brokers = re.sub(
        r"load: \{producers.*client_version: ([0-9.]+)\}+", r"cluster: {version: 4.\1}}}", TEXT
    )
    file.write_text(of_brokers)
    scenario, wanted = read_scenario(str(file)), request(file, affected="4.1.1")
    question = repro._question(scenario, wanted)
    assert [*replaced_versions(scenario, question, wanted)] == [
        'variants.old.override.cluster.version="4.1.1"'
    ]
    assert arm_versions(*repro._plans(scenario, question, 7, None)[0]) == (
        "kafka 4.1.0.0",
        "kafka 4.1.0.1",
    )


def test_arms_of_one_version_have_none_to_replace(tmp_path: Path) -> None:
    file = tmp_path / "lost.yaml"
    file.write_text(TEXT.replace("1.0.1", "1.0.0"))
    scenario, wanted = read_scenario(str(file)), request(file, fixed="2.4.0")
    with pytest.raises(UsageError, match="differ in no version"):
        list(replaced_versions(scenario, repro._question(scenario, wanted), wanted))


def test_a_file_that_is_not_there_is_no_unknown_bug() -> None:
    with pytest.raises(UsageError, match=r"no such file: 'mine\.yaml'"):
        repro._find("mine.yaml")
    with pytest.raises(UsageError, match="no such bug: 'mine'"):
        repro._find("mine")
