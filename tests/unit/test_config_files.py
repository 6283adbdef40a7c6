"""Settings of brokers in a file of the brokers: what is set, what is left aside, what is
refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.plans import read_scenario
from harness.clusters import describe_cluster
from harness.errors import ScenarioError, UsageError
from harness.nested_conf import read_nested
from harness.plan.build import build_plan
from harness.scenario.model import Scenario

KAFKA = (
    "broker.id=1\nlisteners=PLAINTEXT://:9092\nssl.keystore.password=hunter2\nnum.io.threads=5\n"
)
PULSAR = (
    "zookeeperServers=\nttlDurationDefaultInSeconds=30\n"
    "defaultRetentionTimeInMinutes=0\ntlsEnabled=false\n"
)
NATS = """# a server
listen: 0.0.0.0:4222
max_payload = 2MB
jetstream: {
  store_dir: /data/js // here
  sync_interval "1s"
  limits { max_ha_assets: 3 }
}
cluster { name: x, routes: [
  nats://a:1
] }
"""


def loaded(folder: Path, system: str, text: str, more: str = "") -> Scenario:
    (folder / "brokers.conf").write_text(text)
    file = folder / "own.yaml"
    file.write_text(f"name: x\nsystem: {system}\ncluster: {{config_file: brokers.conf{more}}}\n")
    return read_scenario(str(file))


@pytest.mark.parametrize(
    ("system", "text", "kept", "left"),
    [
        (
            "kafka",
            KAFKA,
            {"num.io.threads": "5"},
            "broker.id, listeners, ssl.keystore.password",
        ),
        (
            "pulsar",
            PULSAR,
            {"ttlDurationDefaultInSeconds": "30"},
            "zookeeperServers, defaultRetentionTimeInMinutes, tlsEnabled",
        ),
        (
            "nats",
            NATS,
            {"max_payload": "2MB", "jetstream.sync_interval": '"1s"'},
            "listen, jetstream.store_dir, jetstream.limits.max_ha_assets, cluster.name, cluster.routes",
        ),
    ],
)
def test_a_file_of_the_brokers_is_set_but_for_what_the_runtime_decides(
    tmp_path: Path, system: str, text: str, kept: dict[str, str], left: str
) -> None:
    scenario = loaded(tmp_path, system, text)
    plan = build_plan(scenario, seed=1)
    assert plan.broker_config == kept
    assert plan.notes == [f"cluster.config_file: left aside, a run sets it itself: {left}"]
    describe_cluster(system, broker_config=plan.broker_config)
    assert "hunter2" not in scenario.text
    assert "config_file" not in scenario.text


def test_what_the_scenario_writes_takes_precedence(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, "kafka", KAFKA, ", config: {num.io.threads: 9}")
    assert scenario.cluster.config == {"num.io.threads": 9}


def test_a_backlog_that_may_be_dropped_is_judged_so(tmp_path: Path) -> None:
    (tmp_path / "brokers.conf").write_text(PULSAR)
    (tmp_path / "own.yaml").write_text(
        "name: x\nsystem: pulsar\ncluster: {config_file: brokers.conf}\nload: {consumers: {c: {}}}\n"
    )
    promise = build_plan(read_scenario(str(tmp_path / "own.yaml")), seed=1).consumers[0].promise
    assert promise.may_drop == "ttlDurationDefaultInSeconds=30"


@pytest.mark.parametrize(
    ("system", "text", "problem"),
    [
        (
            "pulsar",
            "subscriptionExpirationTimeMinutes=5\n",
            "must be off: it removes a subscription",
        ),
        ("pulsar", "brokerDeleteInactiveTopicsEnabled=true\n", "must be off: it removes topics"),
        (
            "qpid",
            "a=1\n",
            "brokers of qpid have no file of settings that is read here, got 'brokers.conf'",
        ),
        ("nats", "jetstream {\n", "the block jetstream does not end"),
        ("kafka", "min.insync.replicas=7\n", "min.insync.replicas: must be 1, 2 or 3"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(
    tmp_path: Path, system: str, text: str, problem: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        loaded(tmp_path, system, text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("}", "1: '}' without a block"),
        ("a: [1\n", "1: the list does not end"),
        ("a\n", "1: a has no value"),
        ("\n{", "2: a block needs a name"),
        ('a: "x', "1: cannot read"),
        ("a {" * 30, "at most 20 are nested"),
    ],
)
def test_a_damaged_file_of_blocks_says_the_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "nats.conf").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_nested(tmp_path / "nats.conf")
    assert problem in str(caught.value)
