"""Broker settings that differ by node: written as a mapping, checked, laid over the template of
that node."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.plan_text import _settings
from experiments.preflight import SYSTEMS
from harness.clusters import describe_cluster
from harness.errors import ScenarioError, UsageError
from harness.node_settings import node_configs, settings_text
from harness.plan.build import build_plan
from harness.scenario.file import load_scenario

RACKS = "broker.rack: {kafka-1: az-1, kafka-2: az-2}"


def config_of(tmp_path: Path, config: str) -> dict[str, str]:
    file = tmp_path / "racks.yaml"
    file.write_text(f"name: x\ncluster:\n  config:\n    {config}\n")
    return build_plan(load_scenario(file), seed=1).broker_config


def test_each_node_has_its_own_value(tmp_path: Path) -> None:
    config = config_of(tmp_path, f"{RACKS}\n    num.io.threads: 3")
    layout = describe_cluster("kafka", broker_config=config).runtime.layout
    texts = [layout.conf_text(node, "server.properties") for node in layout.nodes]
    assert ["broker.rack=az-1\n" in text for text in texts] == [True, False, False]
    assert ["broker.rack=az-2\n" in text for text in texts] == [False, True, False]
    assert all("num.io.threads=3\n" in text for text in texts)
    assert (
        _settings(settings_text(config))
        == ", num.io.threads=3, broker.rack={kafka-1: az-1, kafka-2: az-2}"
    )


def test_a_bookie_has_its_own_value() -> None:
    one = {"bookie-1/bookie.flushInterval": "7"}
    layout = describe_cluster("pulsar", topology="bookies-3", broker_config=one).runtime.layout
    texts = {
        node.name: layout.conf_text(node, "bookkeeper.conf")
        for node in layout.nodes
        if "bookie" in node.name
    }
    assert [name for name, text in texts.items() if "flushInterval=7\n" in text] == ["bookie-1"]


def test_an_unknown_node_is_refused_with_the_list(tmp_path: Path) -> None:
    config = config_of(tmp_path, "broker.rack: {kafka-9: az-1}")
    with pytest.raises(UsageError, match=r"broker\.rack: 'kafka-9' is not a node") as caught:
        describe_cluster("kafka", broker_config=config)
    assert "kafka-1, kafka-2, kafka-3" in caught.value.hint


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            "min.insync.replicas: {kafka-1: 1}",
            "min.insync.replicas: changes what the brokers promise",
        ),
        ("min.insync.replicas: {kafka-1: 4}", "min.insync.replicas: must be 1, 2 or 3"),
        ("broker.rack: {}", "broker.rack must have a value, or one for each node"),
        (
            "broker.rack: {kafka-1: [a]}",
            "broker.rack of kafka-1 must be text, a number, or true or false",
        ),
        ('broker.rack: {kafka-1: "a\\nb"}', "broker.rack: is not a setting of one line"),
    ],
)
def test_bad_settings_of_a_node(tmp_path: Path, config: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        config_of(tmp_path, config)
    assert problem in str(caught.value)


SELECTOR = "replica.selector.class: org.apache.kafka.common.replica.RackAwareReplicaSelector"


def test_racks_that_are_all_alike_are_no_racks(tmp_path: Path) -> None:
    def warned(racks: str) -> list[str]:
        return list(
            SYSTEMS["kafka"].cluster_warnings(
                node_configs(config_of(tmp_path, f"{SELECTOR}\n    {racks}"))
            )
        )

    [warning] = warned("broker.rack: az-1")
    assert "no two brokers have different racks" in warning
    assert warned(RACKS) == []
