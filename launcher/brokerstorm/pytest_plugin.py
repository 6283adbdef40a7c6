"""Fixtures for pytest: a cluster for a test session, and runs in a folder of the session.

pytest loads this module if brokerstorm is installed. In a checkout that is not installed, add its
``launcher/`` to PYTHONPATH and start pytest with ``-p brokerstorm.pytest_plugin``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from brokerstorm.api import Cluster, run, up
from brokerstorm.results import Result


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("brokerstorm").addoption(
        "--brokerstorm-runs",
        metavar="FOLDER",
        help="Folder for captures, logs and reports (default: pytest's temporary folder).",
    )


@pytest.fixture(scope="session")
def brokerstorm_runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Folder of all runs and clusters of the session."""
    given = request.config.getoption("--brokerstorm-runs")
    return Path(given).absolute() if given else tmp_path_factory.mktemp("brokerstorm")


@pytest.fixture(scope="session")
def brokerstorm_up() -> dict[str, Any]:
    """Arguments of `brokerstorm.up` for `brokerstorm_cluster`. Override this fixture in your
    conftest.py."""
    return {}


@pytest.fixture(scope="session")
def brokerstorm_cluster(
    brokerstorm_up: dict[str, Any], brokerstorm_runs: Path
) -> Iterator[Cluster]:
    """A running cluster. It starts for the first test that uses it and ends with the session."""
    with up(**{"run_dir": brokerstorm_runs, **brokerstorm_up}) as cluster:
        yield cluster


@pytest.fixture
def brokerstorm_run(brokerstorm_runs: Path) -> Callable[..., Result]:
    """`brokerstorm.run` with the run folder of the session."""
    return partial(run, run_dir=brokerstorm_runs)
