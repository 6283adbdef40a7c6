"""Bug files: a scenario with a `bug` key, checked as a scenario is."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.repro.figures import figures
from experiments.repro.request import libraries
from harness.errors import ScenarioError
from harness.scenario.bundled import bundled_bugs
from harness.scenario.file import load_scenario, variants
from harness.workers import known_workers

GOOD = """
name: lost
bug:
  report: https://example.org/issues/1
  exposure: {counter: faults_effective, floor: 2}
  pairs:
    old-new: {affected: old, fixed: new}
variants:
  old: {expect: acked-lost, override: {load: {producers: {p: {client_version: 1.0.0}}}}}
  new: {override: {load: {producers: {p: {client_version: 1.0.1}}}}}
"""

BAD = [
    (
        "report: https://example.org/issues/1",
        "report: me",
        "bug.report: must be a link, https://..., or none, got 'me'",
    ),
    ("  report: https://example.org/issues/1\n", "", "bug.report: is missing"),
    (
        "faults_effective",
        "faults_effectiveten",
        "bug.exposure.counter: is not a counter, got 'faults_effectiveten'; did you mean ",
    ),
    ("floor: 2", "floor: 0", "bug.exposure.floor: must be at least 1, got 0"),
    (
        "affected: old",
        "affected: odl",
        "bug.pairs.old-new.affected: is not a variant, got 'odl'; did you mean old?",
    ),
    (
        "affected: old",
        "affected: new",
        "affected: must be a variant that expects the class of the bug, and this",
    ),
    (
        "fixed: new",
        "fixed: old",
        "fixed: must be a variant that expects clean, and this one expects acked-lost",
    ),
    (
        "fixed: new",
        "fixed: new, role: x",
        "bug.pairs.old-new.role: unknown key, got 'x'; allowed: about, ",
    ),
    (
        "override: {load",
        "override: {bug: {}, load",
        "variants.old.override.bug: a variant cannot change bug",
    ),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lost.yaml"


def test_a_bug_is_a_scenario_whose_variants_are_its_arms(file: Path) -> None:
    file.write_text(GOOD)
    scenario = load_scenario(file)
    assert scenario.bug is not None
    assert list(scenario.bug.pairs) == ["old-new"]
    assert [(name, merged.bug, expect) for name, merged, expect in variants(scenario)] == [
        ("old", None, "acked-lost"),
        ("new", None, "clean"),
    ]


def test_a_defect_that_nobody_has_reported_says_so(file: Path) -> None:
    file.write_text(GOOD.replace("https://example.org/issues/1", "none"))
    scenario = load_scenario(file)
    assert scenario.bug is not None
    assert scenario.bug.report == ""


@pytest.mark.parametrize(("right", "wrong", "message"), BAD, ids=[case[2][:40] for case in BAD])
def test_a_wrong_bug_file_is_one_line_that_names_the_key(
    file: Path, right: str, wrong: str, message: str
) -> None:
    assert right in GOOD
    file.write_text(GOOD.replace(right, wrong, 1))
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file, clients=known_workers)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{file}:")


@pytest.mark.long
@pytest.mark.parametrize("name", bundled_bugs())
def test_every_bundled_bug_can_be_used(name: str) -> None:
    from experiments.plans import choose_plans, read_scenario

    scenario = read_scenario(name)
    assert scenario.name == name
    assert scenario.bug is not None
    plans = {plan.variant: plan for plan in choose_plans(scenario, seed=1, rounds=1)}
    for key, pair in scenario.bug.pairs.items():
        assert plans[pair.affected].faults == plans[pair.fixed].faults
        # else the client is what differs, on the same brokers
        is_of_brokers = key.startswith("brokers-")
        assert (plans[pair.affected].version != plans[pair.fixed].version) == is_of_brokers


def test_figures_are_of_bugs_and_pairs_there_are() -> None:
    for bug, pairs in figures().items():
        known = load_scenario(bundled_bugs()[bug]).bug
        assert known is not None
        assert set(pairs) <= set(known.pairs)
        assert all(one.p <= 0.05 for one in pairs.values()), "or it is not reproduced"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("sarama-3593", ["sarama"]),  # of a pipeline
        ("kafka-14402", ["kafka"]),  # of the brokers
        ("pulsar-async-unchecked", ["pulsar-client", "pulsar-client-java"]),  # no version differs
    ],
)
def test_a_bug_is_of_the_library_whose_versions_differ(name: str, found: list[str]) -> None:
    scenario = load_scenario(bundled_bugs()[name])
    assert scenario.bug is not None
    pair = next(iter(scenario.bug.pairs.values()))
    assert libraries(scenario, pair.affected, pair.fixed) == found


def test_exposure_may_be_left_out_where_there_is_no_fault(file: Path) -> None:
    without = GOOD.replace("  exposure: {counter: faults_effective, floor: 2}\n", "")
    file.write_text(without)
    assert load_scenario(file).bug is not None
    file.write_text(f"{without}faults:\n  - {{fault: kill, target: random, at: 1s, for: 1s}}\n")
    with pytest.raises(ScenarioError, match="bug: needs exposure"):
        load_scenario(file)


def test_a_key_of_the_bug_can_be_set(file: Path) -> None:
    file.write_text(GOOD)
    scenario = load_scenario(file, overrides=["bug.witness=SendMessages"])
    assert scenario.bug is not None
    assert scenario.bug.witness == "SendMessages"
