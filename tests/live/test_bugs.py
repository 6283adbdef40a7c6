"""Known bugs on real brokers with the genuine clients: red on the affected version, green on the fixed one.

One look at each (`--quick`); hit rates are measured by hand and stand in docs/known-bugs.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from analysis.report.documents import SCHEMA_FOLDER
from harness.errors import Exit
from harness.scenario.bundled import bundled_bugs

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900.0
#: The reports that this project began with, each with its first pair: every change is held to them.
ALWAYS = [
    (bug, "")
    for bug in ("pulsar-12779", "pulsar-18911", "pulsar-async-unchecked", "sarama-2377", "qpid-1871")
]


def reproduce(folder: Path, bug: str, *options: str) -> tuple[int, dict[str, object], str]:
    command = [sys.executable, str(ROOT / "cli.py"), "--json", "--run-dir", str(folder), "repro", bug]
    done = subprocess.run(
        [*command, "--quick", *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, json.loads(done.stdout), done.stderr[-3000:]


def seen(folder: Path, bug: str, pair: str) -> None:
    code, document, errors = reproduce(folder, bug, *(["--pair", pair] if pair else []))
    assert code == Exit.PASS, errors
    jsonschema.validate(document, json.loads((SCHEMA_FOLDER / "campaign.json").read_text()))
    assert (document["bug"], document["reproduced"], document["p_value"]) == (bug, None, None)
    affected, fixed = document["variants"]  # type: ignore[misc]
    assert (affected["role"], fixed["role"]) == ("affected", "fixed")
    assert affected["hits"] >= 1
    assert (fixed["hits"], fixed["counted"]) == (0, 1)
    assert affected["runs"][-1]["witnesses"][affected["expect"]]["sentence"]


@pytest.mark.parametrize(("bug", "pair"), ALWAYS, ids=[bug for bug, _ in ALWAYS])
def test_a_known_bug_is_seen_in_the_affected_version_only(tmp_path: Path, bug: str, pair: str) -> None:
    seen(tmp_path, bug, pair)


def every_pair() -> list[tuple[str, str]]:
    from commands.plans import read_scenario

    found = []
    for name in bundled_bugs():
        bug = read_scenario(name).bug
        assert bug is not None
        found += [(name, pair) for number, pair in enumerate(bug.pairs) if number or (name, "") not in ALWAYS]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "pair"), every_pair(), ids=lambda value: str(value))
def test_every_other_pair_too(tmp_path: Path, bug: str, pair: str) -> None:
    seen(tmp_path, bug, pair)
