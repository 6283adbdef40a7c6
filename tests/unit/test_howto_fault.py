"""docs/howto/add-a-fault.md: its example in a copy of the tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "fault"
WRITTEN = {
    path.relative_to(EXAMPLE).as_posix()
    for path in EXAMPLE.rglob("*.*")
    if "__pycache__" not in path.parts
}
COPIED = (
    *("analysis", "commands", "compose", "docs", "experiments", "faults"),
    *("harness", "scenarios", "tests", "workers", "cli.py"),
)
MADE = {"docs/reference/faults.md", "docs/reference/matrix.md", "scenarios/scenario.schema.json"}
COPIED_TOO = ("pyproject.toml", "brokerstorm", "README.md", "CHANGELOG.md")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the example in it, and the pages made anew."""
    copy = tmp_path_factory.mktemp("tree")
    for name in (*COPIED, *COPIED_TOO):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    shutil.copytree(EXAMPLE, copy, dirs_exist_ok=True)
    python(copy, "docs/generate.py")
    return copy


def python(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_is_the_module_its_test_and_a_scenario() -> None:
    assert {Path(name).name for name in WRITTEN} == {"flap.py", "test_flap.py", "flap.yaml"}


@pytest.mark.extended
@pytest.mark.long
def test_a_kind_is_one_module_and_made_pages(tree: Path) -> None:
    """Nothing but the example's files and what `make docs` writes differs from the tree."""
    changed = {
        path.relative_to(tree).as_posix()
        for path in tree.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if not (ROOT / path.relative_to(tree)).exists()
        or (ROOT / path.relative_to(tree)).read_bytes() != path.read_bytes()
    }
    assert changed - WRITTEN == MADE


@pytest.mark.extended
@pytest.mark.long
def test_it_is_listed_planned_and_in_the_schema(tree: Path) -> None:
    listed = json.loads(python(tree, "cli.py", "--json", "list", "faults"))
    (row,) = [row for row in listed["items"] if row["kind"] == "flap"]
    assert row["about"] == "Crash a node (SIGKILL) several times, and start it again each time."
    assert [key["key"] for key in row["keys"]] == ["target", "together", "times", "down", "up"]
    assert '"const": "flap"' in (tree / "scenarios" / "scenario.schema.json").read_text()
    planned = python(tree, "cli.py", "-v", "plan", "flap.yaml")
    assert "+5.0 s  flap leader-of:orders 3 times" in planned
    assert "SIGKILL the node that leads most of orders, chosen then, start it 1 s later" in planned


@pytest.mark.extended
@pytest.mark.long
def test_its_test_passes_and_those_of_the_registry_do(tree: Path) -> None:
    tests = [name for name in WRITTEN if Path(name).name.startswith("test_")]
    python(
        tree,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *tests,
        "tests/unit/test_fault_registry.py",
    )
