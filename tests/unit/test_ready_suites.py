"""The suites that come with brokerstorm: what they cover, and that they fit the time they
promise."""

from __future__ import annotations

import pytest

from experiments.nights.file import load_suite
from experiments.nights.matrix import Axes, Cell, expand
from experiments.nights.planning import facts_of
from experiments.versions import Chosen
from harness.scenario.bundled import bundled_bugs, bundled_scenarios
from harness.systems import SYSTEMS
from harness.workers import known_workers


def as_asked(name: str, asked: str) -> list[Chosen]:
    """No index is asked: which version it is does not matter here."""
    return [Chosen(asked, "9.9.9", asked)]


def cells(name: str) -> list[Cell]:
    return expand(
        load_suite(name), Axes(facts_of, as_asked, as_asked, str, (*known_workers(),), (*SYSTEMS,))
    )


@pytest.fixture(scope="module")
def nightly() -> list[Cell]:
    return cells("nightly")


def test_the_nightly_covers_every_ready_scenario_and_every_bug(nightly: list[Cell]) -> None:
    assert {cell.scenario for cell in nightly} == {*bundled_scenarios(), *bundled_bugs()}
    assert any(cell.is_control for cell in nightly)


def test_no_cell_of_the_nightly_needs_jars_of_the_user(nightly: list[Cell]) -> None:
    from experiments.plans import JARS, choose_plans, read_scenario

    for cell in nightly:
        if cell.pair:
            plans = choose_plans(read_scenario(cell.scenario), seed=1, rounds=1)
            arms = [plan for plan in plans if plan.variant in cell.variants]
            assert not [
                p for plan in arms for p in plan.producers if p.client_version.startswith(JARS)
            ]


@pytest.mark.long
@pytest.mark.parametrize("name", ["quick", "nightly"])
def test_a_ready_suite_fits_its_budget_several_times(name: str) -> None:
    """A guess, without any history: the other half is for slow machines and for seeds that are
    red."""
    budget_s = load_suite(name).suite.budget or 0
    assert sum(cell.guess_s * len(cell.history_cells) for cell in cells(name)) < budget_s / 2
