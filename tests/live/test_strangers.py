"""A run on a cluster that somebody else started, full of their topics: not one of them is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bench.killed_strangers import STRANGERS, differences
from cli import main
from harness.rundir import RunDir
from tests.live.cluster_rig import ClusterPool

pytestmark = [pytest.mark.slow]  # a run with its judging takes half a minute


@pytest.mark.parametrize("system", STRANGERS)
def test_topics_of_others_are_as_they_were(pool: ClusterPool, system: str, tmp_path: Path) -> None:
    theirs, cluster = STRANGERS[system], pool.get(system)
    where = cluster.bootstrap, cluster.admin_url
    theirs.fill(*where)
    before = theirs.fingerprint(*where)
    assert list(differences(before, {**before, "topics": {}}))  # it sees what is gone
    scenario = tmp_path / "strange.yaml"
    scenario.write_text(theirs.SCENARIO.replace("duration: 12s", "duration: 5s"))
    file = theirs.connection(tmp_path, *where)
    code = main(
        ["--run-dir", str(tmp_path / "runs"), "run", str(scenario), "--cluster", str(file), "--offline"]
    )
    run = RunDir(next((tmp_path / "runs").glob("*-strange")))
    result = json.loads(run.result.read_text())
    assert (code, result["verdict"]) == (0, "pass")
    asked = 6 * yaml.safe_load(theirs.SCENARIO)["load"]["rate"]
    assert result["sends"]["attempted"] == result["sends"]["ok"] == asked
    assert list(differences(before, theirs.fingerprint(*where))) == []
