"""plan --cluster: a fault that nothing in the connection file can do is refused before anything is
sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli import main
from harness.clusters.external.cluster import External, FoundCluster
from harness.errors import Exit
from harness.protocols.cluster import Endpoint, Node
from harness.systems.kafka.external import EXTERNAL

NODES = {f"kafka-{number}": Endpoint("127.0.0.1", number) for number in (1, 2, 3)}
ACTIONS = {each: {"run": ["true", "{node}"]} for each in ("kill", "restart", "check")}


@pytest.fixture
def plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """``plan(fault, drivers, command)``: exit code, stdout and stderr; the cluster has answered who
    it is."""
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path))
    nodes = tuple(
        Node(name, at.port, at, at, at, Path("/nonexistent"), ("broker",))
        for name, at in NODES.items()
    )
    monkeypatch.setattr(type(EXTERNAL), "find", lambda *_: FoundCluster("abc", "4.1.2", nodes))

    def call(
        fault: dict[str, Any], drivers: dict[str, Any], command: str = "plan"
    ) -> tuple[int, str, str]:
        load = {"rate": 100, "duration": "10s", "producers": {"p": {}}}
        (tmp_path / "s.yaml").write_text(json.dumps({"name": "s", "load": load, "faults": [fault]}))
        file = {
            "system": "kafka",
            "yours": True,
            "cluster_id": "abc",
            "bootstrap": "127.0.0.1:1",
            "nodes": {name: {"address": str(at)} for name, at in NODES.items()},
            "drivers": drivers,
        }
        (tmp_path / "c.yaml").write_text(json.dumps(file))
        code = main([command, str(tmp_path / "s.yaml"), "--cluster", str(tmp_path / "c.yaml")])
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("fault", "drivers", "why", "hint"),
    [
        ("kill", {}, "kill needs a cluster that can kill a node", "a driver does it"),
        (
            "restart",
            {"command": ACTIONS},
            "restart needs a cluster that can stop a node",
            "a driver does it",
        ),
        (
            "pause",
            {"command": ACTIONS},
            "pause needs a cluster that can freeze a node",
            "a driver does it",
        ),
        ("pause", {"kubernetes": {"label": "pod={node}"}}, "can freeze a node", "a driver does it"),
        (
            "packet-loss",
            {"command": ACTIONS},
            "can drop packets of connections",
            "nothing can: leave it out",
        ),
        (
            "latency",
            {"command": ACTIONS},
            "can be given only to a cluster that brokerstorm",
            "remove these",
        ),
    ],
)
def test_a_fault_without_a_driver_is_refused(
    plan: Any, fault: str, drivers: dict[str, Any], why: str, hint: str
) -> None:
    code, out, err = plan({"fault": fault, "at": "1s"}, drivers)
    assert (code, out) == (2, "")
    assert why in err
    assert hint in err.splitlines()[1]
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize(
    ("fault", "drivers"),
    [
        ("leader-move", {}),
        ("kill", {"command": ACTIONS}),
        ("pause", {"docker": {"label": "node={node}"}}),
    ],
)
def test_a_fault_with_one_is_planned(plan: Any, fault: str, drivers: dict[str, Any]) -> None:
    code, out, err = plan({"fault": fault, "at": "1s"}, drivers)
    assert (code, err) == (0, "")
    assert fault in out


def test_doctor_says_what_a_scenario_lacks_there(
    plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(External, "examine", lambda _: iter(()))
    code, out, _ = plan({"fault": "kill", "at": "1s"}, {}, "doctor")
    assert code == Exit.ENVIRONMENT
    assert "MISSING faults: faults[0].fault: kill needs a cluster that can kill a node" in " ".join(
        out.split()
    )
    assert "client confluent-kafka" in out, "what it needs of this machine is told all the same"
    code, out, _ = plan({"fault": "leader-move", "at": "1s"}, {}, "doctor")
    assert "faults: all can be done here" in out
