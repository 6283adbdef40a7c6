"""Options that differ by process: ``{instance}``, and names that only one client may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.scenario.file import load_scenario
from harness.scenario.model import Scenario
from harness.workers import known_workers

STATIC = {"group.instance.id": "pod-{instance}", "session.timeout.ms": 6000}


def test_each_process_has_its_number_in_its_options() -> None:
    load: dict[str, Any] = {
        "producers": {
            "p": {"count": 2, "topics": ["orders"], "options": {"client.rack": "az-{instance}"}}
        },
        "consumers": {"c": {"count": 2, "options": STATIC}},
        "pipelines": {
            "b": {"from": "orders", "to": "bills", "count": 2, "consumer_options": STATIC}
        },
    }
    plan = build_plan(
        Scenario.model_validate({"name": "x", "topics": {"orders": {}, "bills": {}}, "load": load}),
        seed=1,
    )
    assert [each.options.get("client.rack") for each in plan.producers] == [
        "az-1",
        "az-2",
        None,
        None,
    ]
    ids = [each.options["group.instance.id"] for each in plan.consumers]
    assert ids == ["pod-1", "pod-2", "pod-1", "pod-2"]


ONE_OF_A_NAME = "and the brokers accept one client of a name in"


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        (
            "consumers: {c: {count: 2, options: {group.instance.id: pod-1}}}",
            "load.consumers.c.options.group.instance.id: is the name of the 2 processes of this entry, "
            f"{ONE_OF_A_NAME} group group, got 'pod-1'; write it with {{instance}}, the number of the ",
        ),
        (
            "consumers: {c: {group: g, options: {group.instance.id: pod-1}}, "
            "d: {client: kafka-python, group: g, options: {group_instance_id: pod-1}}}",
            "load.consumers.d.options.group_instance_id: is the name of load.consumers.c too, ",
        ),
        (
            "producers: {p: {client: pulsar-client, count: 3, options: {producer_name: shop}}}",
            f"is the name of the 3 processes of this entry, {ONE_OF_A_NAME} topic orders, got 'shop'",
        ),
    ],
)
def test_a_name_given_twice_is_refused(tmp_path: Path, load: str, problem: str) -> None:
    system = "pulsar" if "pulsar" in load else "kafka"
    file = tmp_path / "twice.yaml"
    file.write_text(f"name: x\nsystem: {system}\nload: {{{load}}}\n")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file, clients=known_workers)
    assert problem in str(caught.value)


def test_a_name_may_be_that_of_a_member_of_another_group(tmp_path: Path) -> None:
    file = tmp_path / "apart.yaml"
    file.write_text(
        "name: x\nload: {consumers: {c: {group: g, options: {group.instance.id: pod-1}}, "
        "d: {group: h, options: {group.instance.id: pod-1}}}}\n"
    )
    load_scenario(file, clients=known_workers)
