"""The registry of fault kinds: its schema, its page and its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

import faults
from faults.kinds import KINDS
from harness.errors import ScenarioError
from harness.protocols.cluster import TopicSettings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "faults.md"

GOOD: list[dict[str, Any]] = [
    {"fault": "kill", "target": "leader-of:orders", "at": "10s", "for": "5s"},
    {
        "fault": "leader-move",
        "topic": "orders",
        "partitions": 12,
        "every": "5s",
        "jitter": "1s",
        "until": 40,
    },
    {
        "fault": "leader-move",
        "topic": "orders",
        "at": 20,
        "storm": {"times": 3, "gap": ["20ms", 0.2]},
    },
    {"fault": "leader-move", "topic": "orders", "at": 20, "moves": {"0": "kafka-1"}},
    {"fault": "controller-kill", "at": 1},
    {"fault": "rolling-restart", "at": 1, "down": "2s"},
    {"fault": "rolling-upgrade", "at": 1, "to": "4.1.2", "pause": "2s", "finalize": True},
    {"fault": "rolling-downgrade", "at": 1, "to": "3.9.1", "roles": ["broker"]},
    {"fault": "clock-jump", "at": 1, "by": "1h", "way": "back"},
    {"fault": "clock-drift", "at": 1, "speed": 0.5, "for": "3s"},
    {"fault": "restart", "at": 1, "target": "controller"},
    {"fault": "pause", "at": 1, "together": True},
    {"fault": "preferred-election", "at": 1},
    {"fault": "mastership-move", "at": 1, "to": "kafka-2"},
    {"fault": "connection-close", "at": 1, "target": "client:consumer"},
    {"fault": "partition", "at": 1, "target": "leader-of:orders", "link": "peers", "way": "in"},
    {"fault": "partition", "at": 1, "shape": "ring", "link": "peers"},
    {"fault": "latency", "at": 1, "delay": "100ms", "delay_jitter": "20ms"},
    {"fault": "bandwidth", "at": 1, "rate": 500, "link": "all"},
    {"fault": "blackhole", "at": 1, "target": "all", "for": "3s"},
    {"fault": "latency", "at": 1, "target": "all", "link": "all"},
    {"fault": "packet-loss", "at": 1, "target": "all", "link": "peers"},
    {"fault": "kill", "at": 1, "target": "kafka-1, kafka-2"},
    {"fault": "connection-reset", "every": 2},
    {"fault": "name-change", "at": 1, "target": "kafka-1"},
    {"fault": "packet-loss", "at": 1, "share": 0.2, "link": "all", "way": "out"},
    {
        "mix": {
            "of": [{"fault": "kill", "weight": 3, "for": "5s"}, {"fault": "leader-move"}],
            "every": "4s",
        }
    },
    {
        "mix": {
            "of": [{"fault": "pause"}],
            "every": 9,
            "quiet": {"every": "30s", "for": "10s"},
            "wait": 1,
        }
    },
]
BAD: list[dict[str, Any]] = [
    {"fault": "clock-drift", "at": 1, "speed": 0},
    {"fault": "kil", "at": 1},
    {"fault": "kill"},
    {"fault": "kill", "at": 1, "every": 2},
    {"fault": "kill", "at": "soon"},
    {"fault": "kill", "at": 1, "topic": "orders"},
    {"fault": "rolling-restart", "at": 1, "target": "kafka-1"},
    {"fault": "controller-kill", "at": 1, "target": "kafka-1"},
    {"fault": "leader-move", "at": 1, "storm": {"times": 3}},
    {"fault": "mastership-move", "at": 1, "target": "kafka-1"},
    {"fault": "partition", "at": 1, "link": "nobody"},
    {"fault": "bandwidth", "at": 1, "rate": 0},
    {"fault": "name-change", "at": 1, "link": "clients"},
    {"fault": "packet-loss", "at": 1, "share": 1},
    {"mix": {"of": [], "every": 4}},
    {"mix": {"of": [{"fault": "kill"}]}},
    {"mix": {"of": [{"fault": "kill", "at": 1}], "every": 4}},
    {"mix": {"of": [{"fault": "kill", "weight": 0}], "every": 4}},
    {"mix": {"of": [{"fault": "kil"}], "every": 4}},
    {"mix": {"of": [{"fault": "kill"}], "every": 4, "at": 1}},
    {"mix": {"of": [{"fault": "kill"}], "every": 4, "quiet": {"every": 9}}},
    {"mix": {"of": [{"fault": "kill"}], "every": 4}, "wait": 1},
    {"mix": []},
]


@pytest.mark.parametrize(
    "fault", [{"fault": "kill", "target": "controller"}, {"fault": "controller-kill"}]
)
def test_a_system_without_a_controller_refuses_to_target_it(fault: dict[str, Any]) -> None:
    """A run would end as unknown: no controller is known when the fault is due."""
    topics, nodes = [TopicSettings("orders", 1, 3)], ["rabbitmq-1", "rabbitmq-2"]
    inventory = faults.inventory_of(topics=topics, nodes=nodes, system="rabbitmq")
    with pytest.raises(ScenarioError, match=r"\[0\].target: rabbitmq has no controller: name a"):
        faults.compile([{**fault, "at": 1}], inventory, seed=1, load_s=60)


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema.Draft202012Validator.check_schema(faults.schema())
    return jsonschema.Draft202012Validator(faults.schema())


@pytest.mark.parametrize("step", GOOD, ids=str)
def test_schema_and_compile_take_the_same_steps(validator: Any, step: dict[str, Any]) -> None:
    validator.validate([step])
    topics, nodes = [TopicSettings("orders", 12, 3)], ["kafka-1", "kafka-2"]
    assert faults.compile(
        [step], faults.inventory_of(topics=topics, nodes=nodes), seed=1, load_s=60
    ).firings


@pytest.mark.parametrize("step", BAD, ids=str)
def test_schema_and_compile_refuse_the_same_steps(validator: Any, step: dict[str, Any]) -> None:
    assert not validator.is_valid([step])
    topics, nodes = [TopicSettings("orders", 12, 3)], ["kafka-1", "kafka-2"]
    with pytest.raises(ScenarioError):
        faults.compile([step], faults.inventory_of(topics=topics, nodes=nodes), seed=1, load_s=60)


def test_every_kind_is_described() -> None:
    listed = {row.kind: row for row in faults.kinds()}
    assert set(listed) == {*KINDS, "mix"}
    for row in listed.values():
        assert row.about.endswith(".")
        of_clients = row.kind == "scale" or row.kind.startswith(("client-", "output-"))
        assert row.abilities or row.kind == "mix" or of_clients
        assert all(key.about for key in row.keys), row


def test_a_need_is_told_as_what_the_cluster_can_do() -> None:
    for kind in KINDS.values():
        for ability in kind.abilities:
            assert (ability.__doc__ or "").startswith("Can "), ability
            assert ability.__name__ not in PAGE.read_text()


def test_only_durations_are_seconds() -> None:
    keys = {(row.kind, key.key): key for row in faults.kinds() for key in row.keys}
    assert keys["kill", "for"].unit == keys["client-freeze", "period"].unit == "s"
    assert keys["slow-disk", "rate"].unit == "bytes"
    assert not any(keys[key].unit for key in (("cpu-limit", "cores"), ("packet-loss", "share")))
    page = PAGE.read_text()
    assert "- `cores` (default 0.1): " in page
    assert "- `period` (default 0.16 s to 0.25 s): " in page
    assert "- `headroom` (default 16 MB): " in page
