"""An engine that happens to answer changes no test: brokers are processes unless a test says otherwise.

With two workers of pytest-xdist (``make test``), one has all tests on brokers, one after the other, and the
other the tests beside them: those on brokers wait for brokers most of the time. Two sets of brokers at a time
on two cores saved no time, and starved some of what the tests wait for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests import machine
from tests.docker import engine_rig

os.environ["BROKERSTORM_RUNTIME"] = "process"
os.environ.pop("COLUMNS", None)  # workers of pytest-xdist have one, and our output would be as narrow

#: Folders whose tests cannot be spread: one set of brokers at a time, one Spark session for all.
TOGETHER = {"tests/live/": "brokers", "tests/docker/": "brokers", "tests/spark/": "spark"}
#: Containers one at a time, beside the brokers: the images are built when the tests in them begin.
IMAGES = "tests/docker/test_images.py"
#: The groups that take longest, in the order in which they are handed out.
LONGEST = ("brokers", "images", "spark")
#: How much tests beside the brokers stand back: enough that a broker gets a core when it needs one.
BESIDE_BROKERS = 5


def group_of(nodeid: str) -> str:
    """Tests of one group are run by one process: those of a file, or of several folders."""
    path = nodeid.partition("::")[0]
    if path == IMAGES and engine_rig.is_required():  # else each process might start an engine of its own
        return "images"
    return next((group for prefix, group in TOGETHER.items() if path.startswith(prefix)), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups by path. Those of the marker of pytest-xdist travel in ids, which pytest 9.2 lets nobody set."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def schedule(self) -> None:
            tests = next(iter(self.registered_collections.values()), [])
            if any(machine.on_brokers(nodeid) for nodeid in tests) and not machine.LOCK.is_locked:
                machine.LOCK.acquire()  # to the end of this process
            super().schedule()

    config.option.loadscopereorder = False  # the longest first, not those of the most tests
    return ByGroup(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if machine.is_worker():
        items.sort(key=lambda item: _turn(item.nodeid))


def _turn(nodeid: str) -> tuple[int, bool]:
    """The longest groups first; brokers in containers after those that need no image."""
    group = group_of(nodeid)
    return (*LONGEST, group).index(group), nodeid.startswith("tests/docker/")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not machine.is_worker() or machine.on_brokers(item.nodeid):
        return
    if behind := BESIDE_BROKERS - os.getpriority(os.PRIO_PROCESS, 0):
        os.nice(max(0, behind))


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A command that a test runs in this process sets the level of all logs, for those after it, too."""
    before = logging.root.level
    yield
    logging.root.setLevel(before)
