"""Each change of tests/mutations/changes.yaml makes a verdict wrong, and a test must notice it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHANGES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests" / "mutations" / "changes.yaml").read_text()
)


def name_of(change: dict[str, Any]) -> str:
    return f"{Path(change['file']).stem}: {change['change'].strip()}"[:80]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that git has, so that the changes touch nothing of ours."""
    copy = tmp_path_factory.mktemp("tree")
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    for name in files.decode().split("\0"):
        if name and (ROOT / name).is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    return copy


def test_every_change_can_be_made() -> None:
    missing = [
        name_of(each) for each in CHANGES if each["change"] not in (ROOT / each["file"]).read_text()
    ]
    assert not missing, "the code has changed: write the change for what it says now"


@pytest.mark.slow
@pytest.mark.parametrize("change", [each for each in CHANGES if "same" not in each], ids=name_of)
def test_a_test_notices_the_change(tree: Path, change: dict[str, Any]) -> None:
    file = tree / change["file"]
    before = file.read_text()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST")
    }
    file.write_text(before.replace(change["change"], change["to"], 1))
    try:
        done = subprocess.run(
            [*command, *change["tests"].split()],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
        )
    finally:
        file.write_text(before)
    assert done.returncode == 1, (
        f"no test fails (exit code {done.returncode}):\n{done.stdout[-2000:]}"
    )
    assert str(ROOT) not in done.stdout, "the tests ran on our own tree"
