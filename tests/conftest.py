"""An engine that happens to answer changes no test: brokers are processes unless a test says
otherwise.

How the tests are divided among processes (``make test``): `tests.scheduling`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests import machine

if TYPE_CHECKING:
    from pyspark import SparkContext

os.environ["BROKERSTORM_RUNTIME"] = "process"
# workers of pytest-xdist have one, and our output would be as narrow
os.environ.pop("COLUMNS", None)

# No case has a time limit: on a busy machine, 200 ms (the default of Hypothesis) is chance.
settings.register_profile("brokerstorm", deadline=None)
settings.load_profile("brokerstorm")

#: How much tests beside the brokers stand back: enough that a broker gets a core when it needs one.
BESIDE_BROKERS = 5


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.scheduling import ByGroup

    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if machine.is_worker():
        from tests.scheduling import turn_of

        items.sort(key=lambda item: turn_of(item.nodeid))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not machine.is_worker() or machine.on_brokers(item.nodeid):
        return
    if behind := BESIDE_BROKERS - os.getpriority(os.PRIO_PROCESS, 0):
        os.nice(max(0, behind))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkContext]:
    """One Spark session for all tests of a process; commands that a test runs in this process use
    it too."""
    from analysis.spark.session import close_session, open_session

    session = open_session("local[2]")
    yield session
    close_session(session)


@pytest.fixture
def asked() -> None:
    """Of tests that have clients asked for their options, in spite of `clients_are_not_asked`."""


@pytest.fixture
def clients_are_not_asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For their options: each is a process of its own, of a third of a second, or a JVM."""
    if "asked" not in request.fixturenames:
        from harness import workers

        monkeypatch.setattr(workers, "refused_options", lambda *_: "")


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A command run in this process, for a test or for what tests share, sets the level of all
    logs."""
    logging.root.setLevel(logging.WARNING)
    yield
    logging.root.setLevel(logging.WARNING)
