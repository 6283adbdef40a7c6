"""The division of tests among processes, by the scheduler of pytest-xdist and processes that run
nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from tests import machine
from tests.scheduling import ByGroup, group_of, turn_of

#: Folders of files that are made up.
PLAIN, ON_BROKERS = "tests/unit", "tests/live"
UNIT = [f"{PLAIN}/test_{name}.py::test_{n}" for name in "abcdef" for n in range(4)]
BROKERS = [f"{ON_BROKERS}/test_{name}.py::test_{n}" for name in "uvwxyz" for n in range(4)]


@dataclass
class Process:
    """What the scheduler sees of a process; ``done``: the groups of the tests it was sent, in
    order."""

    name: str
    tests: list[str]
    queue: list[int] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> Any:
        return SimpleNamespace(id=self.name)

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def __hash__(self) -> int:
        return hash(self.name)


@pytest.fixture(autouse=True)
def _no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this test's processes none has brokers."""
    monkeypatch.setattr(machine, "LOCK", SimpleNamespace(is_locked=True))


def share(tests: list[str], processes: int) -> tuple[list[Process], int]:
    """Every test run in turns, one of each process; and how many processes had brokers at a time,
    at most."""
    tests = sorted(tests, key=turn_of)
    config = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda name: ["popen"] * processes)
    scheduler = ByGroup(config, None)  # type: ignore[arg-type]
    found = [Process(f"gw{n}", tests) for n in range(processes)]
    for process in found:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, tests)
    scheduler.schedule()
    most = 0
    while any(process.queue for process in found):
        most = max(
            most, sum(bool(p.queue) and machine.on_brokers(tests[p.queue[0]]) for p in found)
        )
        for process in found:
            if process.queue:
                index = process.queue.pop(0)
                if group_of(tests[index]) not in process.done[-1:]:
                    process.done.append(group_of(tests[index]))
                scheduler.mark_test_complete(process, index)
    assert scheduler.tests_finished
    assert all(process.shutting_down for process in found)
    return found, most


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_every_group_is_run_once_and_as_a_whole(processes: int) -> None:
    found, _ = share(UNIT + BROKERS, processes)
    groups = [group for process in found for group in process.done]
    assert sorted(groups) == sorted({group_of(test) for test in UNIT + BROKERS})


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_two_processes_have_brokers_first_and_the_others_never(processes: int) -> None:
    found, most = share(UNIT + BROKERS, processes)
    assert most == min(2, processes)
    for process in found:
        brokers = [group.startswith("tests/live/") for group in process.done]
        assert sorted(brokers, reverse=True) == brokers
    assert (
        sum(any(group.startswith("tests/live/") for group in process.done) for process in found)
        == most
    )


def test_a_process_for_which_there_is_nothing_ends() -> None:
    found, _ = share(BROKERS, 3)
    assert found[2].done == []


def test_the_longest_come_first_and_containers_last() -> None:
    tests = [
        f"{ON_BROKERS}/test_a.py::t",
        "tests/docker/test_runtime.py::t",
        "tests/live/test_bugs.py::t",
    ]
    assert [group_of(test) for test in sorted(tests, key=turn_of)] == [
        "tests/live/test_bugs.py", f"{ON_BROKERS}/test_a.py", "containers",
    ]  # fmt: skip


def test_no_property_test_has_a_time_limit() -> None:
    """Another test may have the core: a case that took 276 ms in a run of all tests takes 25 ms
    alone."""
    assert settings.default is not None
    assert settings.default.deadline is None
