"""output-fault on an endpoint that takes outputs: its proof by count, and mistakes in its keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import faults
from experiments.plans import ScenarioRequest, read_scenario, resolve
from experiments.resolved import RoundOptions
from faults.kinds import KINDS
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.params import Inventory
from harness.errors import ScenarioError
from harness.run.output_sources import HttpOutputs
from tests.unit.test_application_outputs import sent

KIND = KINDS["output-fault"]


class Lives:
    """As `harness.run.applications.RunLives`, of one application with an endpoint."""

    def __init__(self, endpoint: HttpOutputs) -> None:
        self._endpoint = endpoint

    def output_endpoint(self, application: str) -> HttpOutputs | None:
        return self._endpoint if application == "billing" else None


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[HttpOutputs]:
    source = HttpOutputs(tmp_path / "billing.requests")
    source.open()
    yield source
    source.close()


def view(lives: Any) -> ClusterView:
    cluster: Any = None
    made = ClusterView(cluster, Inventory((), ()))
    made.lives = lives
    return made


def test_it_is_proved_by_the_requests_that_met_it_and_undone(endpoint: HttpOutputs) -> None:
    params = KIND.params.model_validate({"application": "billing", "how": "refuse"})
    injection = KIND.prepare(params, view(Lives(endpoint)), 1)
    injection.apply()
    assert not injection.proof().effective
    assert [sent(endpoint, b"one"), sent(endpoint, b"one")] == [503, 503]
    proof = injection.proof()
    assert (proof.effective, proof.evidence) == (True, "2 requests refused with status 503")
    injection.heal()
    assert sent(endpoint, b"one") == 200
    assert injection.is_undone()
    assert injection.proof().evidence == proof.evidence


def test_without_a_run_there_is_no_endpoint() -> None:
    params = KIND.params.model_validate({"application": "billing", "how": "drop"})
    with pytest.raises(FiringSkipped, match="no run has clients"):
        KIND.prepare(params, view(None), 1)


def compiled(*endpoints: str, **step: object) -> faults.Timeline:
    inventory = Inventory((), (), output_endpoints=endpoints)
    steps = [{"fault": "output-fault", "at": "1s", "how": "delay", **step}]
    return faults.compile(steps, inventory, seed=1, load_s=10)


def test_the_only_endpoint_need_not_be_named() -> None:
    (firing,) = compiled("billing", share=0.1).firings
    sentence = KIND.sentence(firing.params, 5.0)
    assert sentence == "output-fault outputs of billing delay 10% 1 s for 5 s"


@pytest.mark.parametrize(
    ("endpoints", "step", "problem"),
    [
        ((), {}, r"faults\[0\].fault: needs an application with to: \{http: true\}"),
        (("a", "b"), {}, r"application: must be an application with .*: a, b, got nothing"),
        (("a",), {"application": "c"}, r"application: must be .*: a, got c"),
        (("a",), {"how": "lose"}, r"how: must be 'delay', 'refuse' or 'drop'"),
        (("a",), {"share": 0}, r"share: "),
    ],
)
def test_a_mistake_is_one_line(
    endpoints: tuple[str, ...], step: dict[str, object], problem: str
) -> None:
    with pytest.raises(ScenarioError, match=problem):
        compiled(*endpoints, **step)


SCENARIO = """
name: x
topics: {orders: {}}
load: {producers: {shop: {topics: [orders]}}}
applications:
  billing: {run: ["true"], from: orders, to: {http: true}}
faults:
  - {fault: output-fault, APPLICATION how: drop, at: 1s, for: 1s}
"""


def test_a_scenario_is_checked_with_its_applications_and_has_the_line_of_a_mistake(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(SCENARIO.replace("APPLICATION ", ""))
    resolved = resolve(ScenarioRequest(scenario=str(path), seed=1), RoundOptions())
    (firing,) = resolved.timelines[0].firings
    assert firing.target == "outputs of billing"
    path.write_text(SCENARIO.replace("APPLICATION", "application: biling,"))
    with pytest.raises(
        ScenarioError, match=r"x.yaml:8: faults\[0\].application: must be .*: billing"
    ):
        read_scenario(str(path))
