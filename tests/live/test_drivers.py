"""Faults on a cluster of ours that counts as a stranger's: reached by its connection file alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from faults.engine.ledger import Ledger
from harness.clusters.external import ExternalCluster, meet
from harness.clusters.kafka import KafkaCluster
from harness.connections.file import read_connection
from harness.errors import ScenarioError
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir, read_jsonl
from tests.driver_rig.nodes import operator
from tests.live.cluster_rig import UP_S, ClusterPool, fire, injector_of, make_whole, new_run_id, wait_until

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
ORDERS = TopicSettings("orders", 6, 3, {"min.insync.replicas": "2"})
ACTIONS = ("kill", "stop", "restart", "pause", "resume", "check")


def connection(cluster: KafkaCluster, folder: Path, *actions: str) -> Path:
    """The file of a cluster, with a command driver for some actions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # what it is asked dies with it
    runs = {each: {"run": operator(cluster.runtime.folder, each), "timeout": 60} for each in actions}
    document = {
        "system": "kafka",
        "yours": True,
        "cluster_id": admin.describe_cluster().result(UP_S).cluster_id,
        "bootstrap": cluster.bootstrap,
        "nodes": {node.name: {"address": str(node.client)} for node in cluster.runtime.nodes},
        "drivers": {"command": runs},
    }
    path = folder / "staging.yaml"
    path.write_text(json.dumps(document))
    return path


def stranger(file: Path, run: RunDir) -> ExternalCluster:
    """The cluster of a connection file, with the topic of a run."""
    found = meet(read_connection(file)).cluster(run.run_id, run.root)
    found.admin.call_topics({"orders": f"brokerstorm-{run.run_id}-orders"}, [])  # type: ignore[attr-defined]
    found.admin.create_topics([ORDERS])
    found.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
    return found


@pytest.fixture
def ours(pool: ClusterPool) -> Iterator[KafkaCluster]:
    """The cluster; afterwards it knows the nodes that the operator started."""
    found: KafkaCluster = pool.get("kafka")
    make_whole(found)
    yield found
    found.runtime.adopt()
    make_whole(found)


def test_an_operators_program_pauses_and_restarts_nodes(ours: KafkaCluster, tmp_path: Path) -> None:
    run = RunDir(tmp_path / new_run_id()).create()
    found = stranger(connection(ours, tmp_path, *ACTIONS), run)
    try:
        rows = fire(found, run, [ORDERS], {"fault": "pause", "target": "kafka-1", "for": "2s"})  # type: ignore[arg-type]
        assert rows["effect"]["effective"], rows
        assert "kafka-1: answers nothing, its driver paused it" in rows["effect"]["evidence"]
        rows = fire(found, run, [ORDERS], {"fault": "restart", "target": "kafka-2"})  # type: ignore[arg-type]
        assert rows["effect"]["effective"], rows
        assert Ledger(run).entries() == []
        only_pauses = stranger_without_topic(connection(ours, tmp_path, "pause", "resume", "check"), run)
        with pytest.raises(ScenarioError, match="kill needs a cluster that can kill a node") as caught:
            injector_of(only_pauses, run, [ORDERS], {"fault": "kill", "at": 0})  # type: ignore[arg-type]
        assert "drivers:" in caught.value.hint
    finally:
        found.down()


def stranger_without_topic(file: Path, run: RunDir) -> ExternalCluster:
    return meet(read_connection(file)).cluster(run.run_id, run.root)


def test_clean_heals_a_node_that_a_killed_run_left_dead(ours: KafkaCluster, tmp_path: Path) -> None:
    file, run = connection(ours, tmp_path, *ACTIONS), RunDir(tmp_path / new_run_id())
    words = [sys.executable, "-m", "tests.live.test_drivers", str(file), str(run.root)]
    with subprocess.Popen(words, cwd=ROOT) as harness:
        try:
            wait_until(
                "the kill took effect",
                lambda: any(row["event"] == "effect" for row in read_jsonl(run.faults)),
                UP_S,
            )
        finally:
            harness.kill()
    assert read_jsonl(run.faults)[-1]["effective"], read_jsonl(run.faults)
    assert not ours.admin.answers("kafka-3")
    (entry,) = Ledger(run).entries()
    assert (entry["down"], entry["outside"]) == (["kafka-3"], True)
    clean = subprocess.run(
        [sys.executable, "cli.py", "clean", "--cluster", str(file)], cwd=ROOT, capture_output=True, text=True
    )
    assert clean.returncode == 0, clean.stderr
    assert run.run_id in clean.stdout
    assert Ledger(run).entries() == []
    assert ours.admin.answers("kafka-3")
    assert not [name for name in ours.admin.topics() if run.run_id in name]


def kill_and_wait(file: Path, run: RunDir) -> None:
    """Kill a node and stay, until somebody kills this process."""
    run.create()
    step = {"fault": "kill", "target": "kafka-3", "at": 0, "for": 300}
    injector_of(stranger(file, run), run, [ORDERS], step).start(time.monotonic_ns())  # type: ignore[arg-type]
    time.sleep(300)


if __name__ == "__main__":
    kill_and_wait(Path(sys.argv[1]), RunDir(Path(sys.argv[2])))
