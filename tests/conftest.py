"""An engine that happens to answer changes no test: brokers are processes unless a test says otherwise.

With two workers of pytest-xdist (``make test``), one has all tests on brokers, one after the other, and the
other the tests beside them: those on brokers wait for brokers most of the time.
"""

from __future__ import annotations

import os

import pytest

os.environ["BROKERSTORM_RUNTIME"] = "process"

#: Folders whose tests cannot be spread: one set of brokers at a time, one Spark session for all.
TOGETHER = {"live": "brokers", "docker": "brokers", "spark": "spark"}
#: How much tests beside the brokers stand back: enough that a broker gets a core when it needs one.
BESIDE_BROKERS = 5


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist puts the groups into the ids
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder, *_ = item.path.relative_to(item.config.rootpath / "tests").parts
        item.add_marker(pytest.mark.xdist_group(TOGETHER.get(folder, str(item.path))))


def pytest_runtest_setup(item: pytest.Item) -> None:
    group = item.get_closest_marker("xdist_group")
    if "PYTEST_XDIST_WORKER" not in os.environ or group is None or group.args == ("brokers",):
        return
    if behind := BESIDE_BROKERS - os.getpriority(os.PRIO_PROCESS, 0):
        os.nice(max(0, behind))
