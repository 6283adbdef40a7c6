"""Fixtures for pytest: a cluster for the whole session, and runs whose folders pytest looks after.

Installed with brokerstorm; pytest finds it by itself. In a checkout that is not installed: ``-p
brokerstorm.pytest_plugin`` with its ``launcher/`` on PYTHONPATH.
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
        help="Where runs and clusters keep captures, logs and reports. Default: pytest's temporary folder.",
    )


@pytest.fixture(scope="session")
def brokerstorm_runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all runs of this session."""
    given = request.config.getoption("--brokerstorm-runs")
    return Path(given).absolute() if given else tmp_path_factory.mktemp("brokerstorm")


@pytest.fixture(scope="session")
def brokerstorm_up() -> dict[str, Any]:
    """Arguments of `brokerstorm.up` for `brokerstorm_cluster`: override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def brokerstorm_cluster(brokerstorm_up: dict[str, Any], brokerstorm_runs: Path) -> Iterator[Cluster]:
    """A live cluster, started for the first test that asks for it and ended with the session."""
    with up(**{"run_dir": brokerstorm_runs, **brokerstorm_up}) as cluster:
        yield cluster


@pytest.fixture
def brokerstorm_run(brokerstorm_runs: Path) -> Callable[..., Result]:
    """`brokerstorm.run`, with the folder of runs of this session."""
    return partial(run, run_dir=brokerstorm_runs)
