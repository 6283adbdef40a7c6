"""Runs tests in a changing order until a time is over: ``pytest -p tests.rotation --within
SECONDS``.

CI spends what is left of its time on tests that `make test` leaves out. Those that import what has
changed in the last days come first. The others follow in an order that depends on the date, so that
each has its turn within some days, without a record of earlier runs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import time
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from tests import machine
from tests.scheduling import group_of

ROOT: Final = Path(__file__).resolve().parents[1]
CHANGED_WITHIN: Final = "3 days"
#: Environment of the processes that run the tests, so that all of them have the same order and the
#: same end.
DAY: Final = "BROKERSTORM_TEST_DAY"
END: Final = "BROKERSTORM_TEST_END"
TOUCHED: Final = "BROKERSTORM_TEST_TOUCHED"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--within", type=float, metavar="SECONDS", help="begin no test after this time"
    )


def pytest_configure(config: pytest.Config) -> None:
    if machine.is_worker():
        return
    within_s = config.getoption("--within")
    os.environ[END] = str(time.time() + within_s) if within_s is not None else ""
    os.environ[DAY] = datetime.now(UTC).date().isoformat()
    os.environ[TOUCHED] = os.pathsep.join(sorted(touched_tests(changed_files())))


@pytest.hookimpl(trylast=True)  # after the order of a run of all tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    touched = set(os.environ[TOUCHED].split(os.pathsep))
    day = os.environ[DAY]
    turns = {item: turn_of(item.nodeid, day, touched) for item in items}
    items.sort(key=turns.__getitem__)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    end = os.environ[END]
    if end and time.time() > float(end):
        pytest.skip("the time is over")


def turn_of(nodeid: str, day: str, touched: set[str]) -> tuple[bool, str, str]:
    """Sorts tests: whole groups, because a group shares brokers; the touched ones first."""
    group = group_of(nodeid)
    path = nodeid.partition("::")[0]
    return path not in touched, _shuffled(day, group), _shuffled(day, nodeid)


def _shuffled(day: str, name: str) -> str:
    return sha256(f"{day} {name}".encode()).hexdigest()


def changed_files() -> set[Path]:
    """Files that commits of the last days changed; empty where there is no git or no history."""
    asked = ["git", "log", f"--since={CHANGED_WITHIN} ago", "--name-only", "--format="]
    try:
        said = subprocess.run(
            asked, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return set()
    return {ROOT / line for line in said.splitlines() if line}


def touched_tests(changed: set[Path]) -> set[str]:
    """Paths of test files, from the root of the tree, that changed themselves or import a changed
    module."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        if changed & ({path} | imported_by(path)):
            found.add(path.relative_to(ROOT).as_posix())
    return found


def imported_by(path: Path) -> set[Path]:
    """Modules of this project that a file imports, directly or through others."""
    found: set[Path] = set()
    left = [path]
    while left:
        new = direct_imports(left.pop()) - found
        found |= new
        left += new
    return found


@cache
def direct_imports(path: Path) -> frozenset[Path]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    files = {ROOT / name.replace(".", "/") for name in names}
    candidates = {file.with_suffix(".py") for file in files} | {
        file / "__init__.py" for file in files
    }
    return frozenset(candidate for candidate in candidates if candidate.is_file())
