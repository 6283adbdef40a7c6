"""Applications that the user starts on a cluster of others: names, members of their group, what is
refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments import plans as plans_module
from experiments.plans import ScenarioRequest, on_external, resolve
from experiments.resolved import RoundOptions
from harness.contracts.plan import ExternalPlan, Plan
from harness.errors import EnvironmentNotReady, ScenarioError
from harness.plan.build import build_plan, with_tag
from harness.run.group_members import GroupMembers
from harness.run.worker_specs import group_id
from harness.scenario.file import load_scenario
from tests.unit.test_application_errors import refused, scenario

ELSEWHERE = {"run": None, "env": None}
KILL = {"fault": "client-kill", "target": "client:billing", "at": 1}


def plan_of(tmp_path: Path, **more: Any) -> Plan:
    application = {**ELSEWHERE, **more.pop("application", {})}
    path = scenario(tmp_path, application=application, **more)
    return build_plan(load_scenario(path), seed=1)


def on_theirs(plan: Plan) -> Plan:
    theirs = ExternalPlan(file="staging.yaml", cluster_id="abc", prefix="storm", nodes={})
    return with_tag(plan.model_copy(update={"external": theirs}), 7)


def test_names_are_known_before_the_run_where_the_user_starts_the_application(
    tmp_path: Path,
) -> None:
    topics = {"orders": {}, "invoices": {}, "other": {}}
    plan = on_theirs(plan_of(tmp_path, topics=topics))
    assert {topic.name: topic.address for topic in plan.topics} == {
        "orders": "storm-orders",
        "invoices": "storm-invoices",
        "other": "storm-00000007-other",
    }
    assert group_id(plan, "billing") == "storm-billing"
    assert group_id(plan, "readers") == "storm-00000007-readers"
    assert plan.applications[0].instance_names == []


@pytest.mark.parametrize(
    ("application", "message"),
    [
        (
            {"restarts": "always"},
            "restarts: has a meaning only with run, got 'always'; leave it out",
        ),
        ({"env": {"A": "b"}}, "env: has a meaning only with run"),
        (
            {"to": {"http": True}},
            "to.http: has a meaning only with run, got true; write {topic: NAME}",
        ),
        ({"run": []}, "run: must begin with a program; leave the key out"),
    ],
)
def test_keys_about_processes_are_refused_in_one_line(
    tmp_path: Path, application: dict[str, object], message: str
) -> None:
    path = scenario(tmp_path, application={**ELSEWHERE, **application})
    assert message in refused(path)


def test_without_run_a_cluster_and_one_round_are_needed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    with pytest.raises(ScenarioError, match=r"billing\.run: is missing: .* --cluster FILE"):
        on_external([plan], None)
    with pytest.raises(ScenarioError, match="tested in one round, and this scenario has 2"):
        plans_module._refuse_elsewhere([plan, plan], _THEIRS)


@pytest.mark.parametrize(
    "step",
    [
        KILL,
        {**KILL, "target": "client:billing-1"},
        {**KILL, "target": "client:application"},
        {"fault": "scale", "to": 3, "at": 1},
        {"fault": "partition", "link": "application:billing", "at": 1},
    ],
)
def test_faults_on_instances_are_refused_in_one_line(
    tmp_path: Path, step: dict[str, object]
) -> None:
    plan = plan_of(tmp_path, faults=[step])
    with pytest.raises(ScenarioError, match="application billing runs where you started it"):
        plans_module._refuse_elsewhere([plan], _THEIRS)


@pytest.mark.parametrize(
    "step",
    [
        {**KILL, "target": "client:billings"},
        {"fault": "partition", "link": "application:billings", "at": 1},
    ],
)
def test_a_fault_on_another_client_is_not_refused(tmp_path: Path, step: dict[str, object]) -> None:
    plan = plan_of(tmp_path, faults=[step])
    plans_module._refuse_elsewhere([plan], _THEIRS)


def test_the_next_command_names_the_file_that_was_given(tmp_path: Path) -> None:
    """The name inside of it may be of a ready scenario."""
    path = scenario(tmp_path, application=ELSEWHERE, name="kafka-smoke")
    with pytest.raises(ScenarioError) as caught:
        resolve(ScenarioRequest(scenario=str(path)), RoundOptions())
    assert caught.value.hint == f"brokerstorm run {path} --cluster FILE"


class Brokers:
    """The group of the application at the brokers."""

    def __init__(self, members: dict[str, list[str]], committed: dict[str, int]) -> None:
        self.members = members
        self.committed = committed

    def group_members(self, group: str) -> dict[str, list[str]]:
        assert group == "storm-billing"
        return self.members

    def committed_offsets(self, group: str, topics: list[str]) -> dict[str, int]:
        return self.committed

    def end_offsets(self, topics: list[str]) -> dict[str, int]:
        return {f"{topic}-{number}": 1 for topic in topics for number in (0, 1)}  # a probe in each


def members_of(tmp_path: Path, brokers: Brokers) -> GroupMembers:
    topics = {"orders": {"partitions": 2}, "invoices": {}}
    plan = on_theirs(plan_of(tmp_path, application={"instances": 2}, topics=topics))
    plan = plan.model_copy(update={"limits": {**plan.limits, "ready": 0.01}})
    admin: Any = brokers
    return GroupMembers(plan, plan.applications[0], admin)


@pytest.mark.parametrize(
    ("members", "committed", "message"),
    [
        ({"a": ["orders-0", "orders-1"]}, {}, "group storm-billing has 1 of 2 members"),
        ({"a": ["orders-0"], "b": []}, {}, "no member of group storm-billing reads orders-1"),
        (
            {"a": ["orders-0"], "b": ["orders-1"]},
            {"orders-0": -1, "orders-1": 9},
            "has committed position 9 of orders-1, which ends at 1",
        ),
    ],
)
def test_the_load_waits_for_members_that_read_everything_from_the_start(
    tmp_path: Path, members: dict[str, list[str]], committed: dict[str, int], message: str
) -> None:
    with pytest.raises(EnvironmentNotReady, match=message):
        members_of(tmp_path, Brokers(members, committed)).wait_ready(is_new=True)


def test_each_member_is_an_instance_of_the_report(tmp_path: Path) -> None:
    brokers = Brokers({"a": ["orders-0"], "b": ["orders-1"]}, {"orders-0": -1, "orders-1": 1})
    members = members_of(tmp_path, brokers)
    members.wait_ready(is_new=True)
    brokers.members = {"b": ["orders-0", "orders-1"], "c": []}
    members.look()
    assert members.count == 2
    assert [row.name for row in members.rows(drained=True)] == [
        "application-billing-1",
        "application-billing-2",
        "application-billing-3",
    ]


_THEIRS: Any = object()  # a cluster of others, of which nothing is asked
