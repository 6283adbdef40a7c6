"""A run on a cluster that somebody else started, full of their topics: not one of them is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.killed_strangers import SCENARIO, connection, differences, fill, fingerprint
from cli import main
from harness.rundir import RunDir
from tests.live.cluster_rig import ClusterPool

pytestmark = [pytest.mark.slow]  # a run with its judging takes half a minute


def test_topics_of_others_are_as_they_were(pool: ClusterPool, tmp_path: Path) -> None:
    bootstrap = pool.get("kafka").bootstrap
    fill(bootstrap)
    before = fingerprint(bootstrap)
    assert list(differences(before, {**before, "topics": {}}))  # it sees what is gone
    scenario = tmp_path / "strange.yaml"
    scenario.write_text(SCENARIO.replace("duration: 12s", "duration: 5s"))
    file = connection(tmp_path, bootstrap)
    code = main(
        ["--run-dir", str(tmp_path / "runs"), "run", str(scenario), "--cluster", str(file), "--offline"]
    )
    run = RunDir(next((tmp_path / "runs").glob("*-strange")))
    result = json.loads(run.result.read_text())
    assert (code, result["verdict"]) == (0, "pass")
    assert result["sends"]["attempted"] == result["sends"]["ok"] == 6000
    assert list(differences(before, fingerprint(bootstrap))) == []
