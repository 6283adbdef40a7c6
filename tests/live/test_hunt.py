"""A hunt on live brokers: rounds are changed, their features are read from real logs, and the hunt
is continued."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from harness.rundir import read_jsonl
from tests.live.cluster_rig import ClusterPool
from tests.live.printed import assert_accepted
from tests.live.run_rig import brokerstorm

pytestmark = [pytest.mark.live, pytest.mark.extended, pytest.mark.usefixtures("spark")]
SCENARIO = """
name: calm
topics:
  orders: {partitions: 3}
load:
  rate: 500
  duration: 6s
  warm_up: 1s
  producers:
    shop: {options: {acks: all, enable.idempotence: true}}
  consumers:
    billing: {group: billing}
faults:
  - {fault: kill, target: "leader-of:orders", at: 1s, for: 2s}
"""


def test_a_hunt_keeps_what_is_new_and_is_continued(
    pool: ClusterPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("harness.clusters.open_cluster", pool.lend)
    file, corpus = tmp_path / "calm.yaml", tmp_path / "corpus"
    file.write_text(SCENARIO)
    runs = ("--json", "--run-dir", str(tmp_path / "runs"), "hunt")
    asked = ("--rounds", "1", "--seed", "7", "--runtime", "process", "--corpus", str(corpus))
    said = brokerstorm(*runs, str(file), *asked)
    assert said.code == 0, said.err
    first = said.document
    assert (first["rounds"], first["judged"], first["entries"], first["found"]) == (1, 1, 1, [])
    folder = Path(first["folder"])
    (outcome,) = read_jsonl(folder / "rounds.jsonl")
    assert {"fault kill", "latency max"} <= {
        " ".join(each.split()[:2]) for each in outcome["features"]
    }
    assert any(each.startswith(("log client", "log broker")) for each in outcome["features"])
    (entry,) = corpus.glob("*.yaml")
    assert yaml.safe_load(entry.read_text())["features"] == outcome["features"]

    shown = brokerstorm("--json", "show", str(folder / "round-0001"))
    repeated = shlex.split(shown.document["command"])
    assert repeated[:2] == ["brokerstorm", "run"], shown.document["command"]
    assert_accepted(repeated[1:])

    again = brokerstorm(*runs, "--resume", folder.name, "--rounds", "2")
    assert again.document["rounds"] == 2, again.err
    names = [row["name"] for row in read_jsonl(folder / "rounds.jsonl")]
    assert names == ["round-0001", "round-0002"]
