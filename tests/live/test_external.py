"""A run on a cluster that somebody else started, full of their topics: not one of them is
touched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.killed_external import SYSTEMS_OF_OTHERS, differences
from harness.rundir import RunDir
from tests.live.cluster_rig import ClusterPool
from tests.live.printed import follow_summary
from tests.live.run_rig import brokerstorm
from tests.pages import ROOT

PAGE = ROOT / "docs" / "howto" / "your-own-cluster.md"
SMALLER = ["--set", "load.rate=1000", "--set", "load.duration=5s"]


@pytest.mark.live
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "system",
    ["kafka", *(pytest.param(other, marks=pytest.mark.slow) for other in ("pulsar", "qpid"))],
)
def test_the_commands_of_the_page_leave_topics_of_others_as_they_were(
    pool: ClusterPool, system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, cluster = SYSTEMS_OF_OTHERS[system], pool.get(system)
    where = cluster.bootstrap, cluster.admin_url
    theirs.fill(*where)
    before = theirs.fingerprint(*where)
    assert list(differences(before, {**before, "topics": {}}))  # it sees what is gone
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROKERSTORM_RUN_DIR", str(tmp_path / "runs"))
    new, doctor, run, clean = map(
        str.split, re.findall(r"^\$ brokerstorm (.+)$", PAGE.read_text(), re.MULTILINE)
    )
    assert brokerstorm(*new).code == 0
    theirs.connection(tmp_path, *where)  # as the user would fill it in
    for words in (doctor, [*run, *SMALLER], clean):
        said = brokerstorm(*(word.replace("kafka-own", f"{system}-own") for word in words))
        assert said.code == 0, f"{words}: {said.out}{said.err}"
    result = json.loads(RunDir(next((tmp_path / "runs").glob("*-own"))).result.read_text())
    assert result["verdict"] == "pass"
    assert 0 < result["sends"]["attempted"] == result["sends"]["ok"] <= 6000
    assert list(differences(before, theirs.fingerprint(*where))) == []
    follow_summary(tmp_path / "runs" / "latest")
