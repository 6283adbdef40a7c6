"""Faults on a cluster of ours that counts as somebody else's: reached by its connection file
alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from faults.engine.ledger import Ledger
from harness.clusters.external import identified
from harness.connections.file import read_connection
from harness.errors import Exit, ScenarioError
from harness.protocols.cluster import Endpoint
from harness.rundir import RunDir
from harness.systems.kafka.assembly import KafkaCluster
from harness.systems.kafka.questions import KafkaQuestions
from tests.driver_rig.external import (
    ACTIONS,
    ORDERS,
    clean_heals,
    commands,
    connection_file,
    external,
    killed_amid_a_kill,
)
from tests.driver_rig.kubernetes_api import KubernetesApi
from tests.live.cluster_rig import ClusterPool, fire, injector_of, make_whole, new_run_id
from tests.live.printed import follow_summary
from tests.live.run_rig import brokerstorm

pytestmark = pytest.mark.live

#: A driver that lies, one that fails, one that hangs.
LIARS = {
    "kill": {"run": [sys.executable, "-S", "-c", "", "{node}"]},
    "stop": {"run": [sys.executable, "-S", "-c", "raise SystemExit('no route to {node}')"]},
    "pause": {
        "run": [sys.executable, "-S", "-c", "import time; time.sleep(60)", "{node}"],
        "timeout": 1,
    },
}
SCENARIO = """
name: believed
topics: {orders: {partitions: 6}}
load:
  rate: 500
  duration: 20s
  warm_up: 1s
  producers: {shop: {options: {acks: all, enable.idempotence: true}}}
faults:
  - {fault: kill, target: kafka-1, at: 1s, for: 1s}
  - {fault: restart, target: kafka-2, at: 13s}
  - {fault: pause, target: kafka-3, at: 15s, for: 1s, wait: 15s}
require: {rate_ratio: 0.5}
"""


class Pods:
    """Brokers of ours as the processes behind the pods of `KubernetesApi`."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self.folder = cluster.runtime.folder
        self.endpoints: dict[str, Endpoint] = {
            node.name: node.client for node in cluster.runtime.nodes
        }

    def answers(self, node: str) -> bool:
        return self._cluster.admin.answers(node)

    def kill(self, node: str) -> None:
        self._cluster.runtime.kill(node)

    def start(self, node: str) -> None:
        self._cluster.runtime.start(node)


@pytest.fixture
def ours(pool: ClusterPool) -> Iterator[KafkaCluster]:
    """The cluster; afterwards it knows the nodes that the operator started."""
    found: KafkaCluster = pool.get("kafka")
    make_whole(found)
    yield found
    found.runtime.adopt()
    make_whole(found)


@pytest.mark.extended
def test_an_operators_program_pauses_and_restarts_nodes(ours: KafkaCluster, tmp_path: Path) -> None:
    folder, run = ours.runtime.folder, RunDir(tmp_path / new_run_id()).create()
    found = external(connection_file(ours, tmp_path, commands(folder, *ACTIONS)), run)
    try:
        rows = fire(found, run, [ORDERS], {"fault": "pause", "target": "kafka-1", "for": "2s"})  # type: ignore[arg-type]
        assert rows["effect"]["effective"], rows
        assert "kafka-1: answers nothing, its driver paused it" in rows["effect"]["evidence"]
        rows = fire(found, run, [ORDERS], {"fault": "restart", "target": "kafka-2"})  # type: ignore[arg-type]
        assert rows["effect"]["effective"], rows
        assert Ledger(run).entries() == []
        file = connection_file(ours, tmp_path, commands(folder, "pause", "resume", "check"))
        only_pauses = identified(read_connection(file)).cluster(run.run_id, run.root)
        with pytest.raises(
            ScenarioError, match="kill needs a cluster that can kill a node"
        ) as caught:
            injector_of(only_pauses, run, [ORDERS], {"fault": "kill", "at": 0})  # type: ignore[arg-type]
        assert "drivers:" in caught.value.hint
    finally:
        found.down()


def test_clean_heals_a_node_that_a_killed_run_left_dead(ours: KafkaCluster, tmp_path: Path) -> None:
    file = connection_file(ours, tmp_path, commands(ours.runtime.folder, *ACTIONS))
    run = RunDir(tmp_path / new_run_id())
    killed_amid_a_kill(file, run, "kafka-3")
    assert not ours.admin.answers("kafka-3")
    # brokers still take it for one that is there, and now and then for the controller
    for _ in range(10):
        assert KafkaQuestions(ours.bootstrap, {}).identity().cluster_id
    clean_heals(file, run, ours, "kafka-3")


@pytest.mark.extended
def test_clean_waits_for_the_pod_that_a_killed_run_left_to_its_owner(
    ours: KafkaCluster, tmp_path: Path
) -> None:
    pytest.importorskip("kubernetes")
    with closing(KubernetesApi(Pods(ours))) as api:
        part = {"label": "app=kafka,pod-name={node}", "namespace": "staging", "timeout": 120}
        kubeconfig = api.kubeconfig(tmp_path).name
        file = connection_file(ours, tmp_path, {"kubernetes": {**part, "kubeconfig": kubeconfig}})
        run = RunDir(tmp_path / new_run_id())
        killed_amid_a_kill(file, run, "kafka-3")
        assert api.deletions == [("kafka-3", 0)]
        clean_heals(file, run, ours, "kafka-3")


@pytest.mark.slow  # a run of 20 s that is judged
def test_a_run_with_drivers_that_lie_fail_and_hang_says_so_and_knows_nothing(
    ours: KafkaCluster, tmp_path: Path
) -> None:
    honest: dict[str, Any] = commands(ours.runtime.folder, *ACTIONS)["command"]
    file = connection_file(ours, tmp_path, {"command": {**honest, **LIARS}})
    scenario = tmp_path / "believed.yaml"
    scenario.write_text(SCENARIO)
    said = brokerstorm(
        "--json", "--run-dir", str(tmp_path), "run", str(scenario), "--cluster", str(file)
    )
    assert said.code == Exit.UNKNOWN, said.err
    found = said.document
    assert (found["verdict"], found["reasons"]) == (
        "unknown",
        ["none of 3 injected faults had an effect"],
    )
    assert 0 < found["sends"]["ok"] == found["sends"]["attempted"] <= 10_500
    assert [(fault["effective"], fault["healed"]) for fault in found["faults"]] == [
        (False, True)
    ] * 3
    lines = [line for line in said.err.splitlines() if "NO EFFECT" in line]
    for line, why in zip(
        lines,
        (
            "kill kafka-1 had NO EFFECT: could not be applied: the command driver says that it "
            "killed kafka-1, which still answers at",
            'the command driver\'s stop of kafka-2 ended with exit code 1; it said "no route to kafka-2"',
            "the command driver's pause of kafka-3 did not end within 1 s and was killed",
        ),
        strict=True,
    ):
        assert why in line
    follow_summary(tmp_path / "latest")
