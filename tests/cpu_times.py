"""CPU seconds of each test, with those of the processes that it started: ``pytest -p
tests.cpu_times``.

Seconds on the clock tell how busy a machine was; these tell what a test costs. What tests share
(brokers, a Spark session, a virtual environment) counts where it was used, and its start with the
test that came first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

#: Rows that are shown.
SHOWN = 30
_KEY = "cpu_s"


def cpu_s() -> float:
    """Of this process and all below it, those included that have ended and were waited for."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # user, system, and the same of children
        except psutil.Error:
            continue
    return total


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEFORE] = cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    now = cpu_s()
    report.user_properties.append((_KEY, max(0.0, now - item.stash[_BEFORE])))
    item.stash[_BEFORE] = now
    return report  # type: ignore[no-any-return]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    spent: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for key, value in getattr(report, "user_properties", ()):
                if key == _KEY:
                    spent[report.nodeid] = spent.get(report.nodeid, 0.0) + value
    terminalreporter.section(
        f"CPU seconds: {sum(spent.values()):,.0f} in all, the {SHOWN} dearest tests"
    )
    for nodeid, value in sorted(spent.items(), key=lambda pair: -pair[1])[:SHOWN]:
        terminalreporter.line(f"{value:8.1f}  {nodeid}")


_BEFORE: pytest.StashKey[float] = pytest.StashKey()
