"""A cluster of ours as somebody else's, reached by a connection file alone; a harness that dies
amid a fault.

    python -m tests.driver_rig.external CONNECTION_FILE RUN NODE

kills a node there and stays, until somebody kills this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml
from confluent_kafka.admin import AdminClient

from faults.engine.ledger import Ledger
from harness.clusters.external import ExternalCluster, identified
from harness.connections.file import read_connection
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir, read_jsonl
from harness.systems.kafka.assembly import KafkaCluster
from tests.driver_rig.nodes import operator
from tests.live.cluster_rig import UP_S, injector_of, wait_until

ROOT: Final = Path(__file__).resolve().parents[2]
ORDERS: Final = TopicSettings("orders", 6, 3, {"min.insync.replicas": "2"})
ACTIONS: Final = ("kill", "stop", "restart", "pause", "resume", "check")


def commands(cluster: Path, *actions: str) -> dict[str, Any]:
    """A command driver for some actions, by the operator's program."""
    return {"command": {each: {"run": operator(cluster, each), "timeout": 60} for each in actions}}


def connection_file(cluster: KafkaCluster, folder: Path, drivers: dict[str, Any]) -> Path:
    """The file of a cluster, with drivers."""
    document = {
        **_ways_in(cluster),
        "nodes": {node.name: {"address": str(node.client)} for node in cluster.runtime.nodes},
        "drivers": drivers,
    }
    path = folder / "staging.yaml"
    path.write_text(json.dumps(document))
    return path


def _ways_in(cluster: KafkaCluster) -> dict[str, Any]:
    if cluster.made:
        found: dict[str, Any] = yaml.safe_load(
            (cluster.runtime.folder / "connection.yaml").read_text()
        )
        return found
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # what it is asked dies with it
    told = admin.describe_cluster().result(UP_S).cluster_id
    return {"system": "kafka", "yours": True, "cluster_id": told, "bootstrap": cluster.bootstrap}


def external(file: Path, run: RunDir) -> ExternalCluster:
    """The cluster of a connection file, with the topic of a run."""
    found = identified(read_connection(file)).cluster(run.run_id, run.root)
    found.admin.name_topics({"orders": f"brokerstorm-{run.run_id}-orders"}, [])  # type: ignore[attr-defined]
    found.admin.create_topics([ORDERS])
    found.admin.wait_ready(["orders"], timeout_s=UP_S, run_tag=1)
    return found


def killed_amid_a_kill(file: Path, run: RunDir, node: str) -> None:
    """A harness that killed a node, and was itself killed before it could heal that."""
    words = [sys.executable, "-m", "tests.driver_rig.external", str(file), str(run.root), node]
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
    (entry,) = Ledger(run).entries()
    assert (entry.down, entry.outside) == ((node,), True)


def clean_heals(file: Path, run: RunDir, ours: KafkaCluster, node: str) -> None:
    """Afterwards the node answers, and neither fault nor topic of the run is left."""
    clean = subprocess.run(
        [sys.executable, "cli.py", "clean", "--cluster", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert clean.returncode == 0, clean.stderr
    assert run.run_id in clean.stdout
    assert Ledger(run).entries() == []
    assert ours.admin.answers(node)
    assert not [name for name in ours.admin.topics() if run.run_id in name]


def kill_and_wait(file: Path, run: RunDir, node: str) -> None:
    run.create()
    step = {"fault": "kill", "target": node, "at": 0, "for": 300}
    injector_of(external(file, run), run, [ORDERS], step).start(time.monotonic_ns())  # type: ignore[arg-type]
    time.sleep(300)


if __name__ == "__main__":
    kill_and_wait(Path(sys.argv[1]), RunDir(Path(sys.argv[2])), sys.argv[3])
