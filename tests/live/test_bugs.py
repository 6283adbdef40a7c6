"""Known bugs on real brokers with the genuine clients: red on the affected version, green on the
fixed one.

One look at each (`--quick`); hit rates are measured by hand and stand in docs/known-bugs.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from analysis.report.documents import SCHEMA_FOLDER
from harness.errors import Exit
from harness.scenario.bundled import bundled_bugs
from tests.live.cluster_rig import ClusterPool
from tests.live.printed import follow_summary
from tests.live.run_rig import brokerstorm

#: All rounds are judged in one session.
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("spark")]

#: The reports that this project began with: every change is held to the first pair of each. For one
#: look less of the same is enough than in the bundled scenario, of which figures are published.
ALWAYS: dict[str, dict[str, Any]] = {
    # less than half of the topics and of the load, so that each has as much; more unloads
    "pulsar-12779": {
        "topics": {"orders": {"count": 40, "partitions": 1}},
        "load": {"rate": 2000, "warm_up": "1s", "duration": "12s"},
        "faults": [
            {
                "fault": "unload-storm",
                "at": "1s",
                "times": 16,
                "pairs": True,
                "gap": ["300ms", "600ms"],
            }
        ],
    },
    # 90 messages, 50 ms each: all but the first 20 wait for longer than the timeout.
    "pulsar-18911": {"load": {"rate": 60, "duration": "1500ms"}},
    "pulsar-async-unchecked": {"load": {"warm_up": "500ms", "duration": "9s"}},
    "sarama-2377": {"limits": {"call": "10s"}},
    # 135 rollbacks
    "qpid-1871": {"load": {"rate": 270, "duration": "3s"}, "limits": {"drain": "15s"}},
}


#: One of each system is seen by every change; the others are extended tests.
FIRST_OF_THEIR_SYSTEM = ("pulsar-18911", "sarama-2377", "qpid-1871")


def first_pair(bug: str, changes: dict[str, Any]) -> str:
    """The scenario of a bug with its first pair only, as YAML; ``changes``: keys laid over it."""
    scenario = yaml.safe_load(bundled_bugs()[bug].read_text())
    name, arms = next(iter(scenario["bug"]["pairs"].items()))
    scenario["bug"]["pairs"] = {name: arms}
    scenario["variants"] = {
        arm: scenario["variants"][arm] for arm in (arms["affected"], arms["fixed"])
    }
    for key, value in changes.items():
        scenario[key] = {**scenario.get(key, {}), **value} if isinstance(value, dict) else value
    return yaml.safe_dump(scenario)


def assert_seen(folder: Path, bug: str, *arguments: str) -> None:
    said = brokerstorm("--json", "--run-dir", str(folder), "repro", *arguments, "--quick")
    document = said.document
    assert said.code == Exit.PASS, (document, said.err[-3000:])
    jsonschema.validate(document, json.loads((SCHEMA_FOLDER / "campaign.json").read_text()))
    assert (document["bug"], document["reproduced"], document["p_value"]) == (bug, None, None)
    affected, fixed = document["variants"]
    assert (affected["role"], fixed["role"]) == ("affected", "fixed")
    assert affected["hits"] >= 1
    assert (fixed["hits"], fixed["counted"]) == (0, 1)
    assert affected["runs"][-1]["witnesses"][affected["expect"]]["sentence"]
    follow_summary(folder / "latest")


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, marks=[] if bug in FIRST_OF_THEIR_SYSTEM else [pytest.mark.extended])
        for bug in ALWAYS
    ],
)
def test_a_known_bug_is_seen_in_the_affected_version_only(
    pool: ClusterPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bug: str
) -> None:
    """Bugs that are seen on the same brokers are seen on one cluster."""
    monkeypatch.setattr("harness.clusters.open_cluster", pool.lend)
    path = tmp_path / f"{bug}.yaml"
    path.write_text(first_pair(bug, ALWAYS[bug]))
    assert_seen(tmp_path, bug, str(path))


def every_pair() -> list[tuple[str, str]]:
    from experiments.plans import read_scenario

    found = []
    for name in bundled_bugs():
        bug = read_scenario(name).bug
        assert bug is not None
        found += [(name, pair) for pair in bug.pairs]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "pair"), every_pair(), ids=lambda value: str(value))
def test_every_pair_of_every_bundled_bug(tmp_path: Path, bug: str, pair: str) -> None:
    assert_seen(tmp_path, bug, bug, "--pair", pair)
