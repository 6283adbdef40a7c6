"""Divides the tests among the processes of pytest-xdist: groups that share something, the longest
first.

Tests on brokers wait for them most of the time, so two processes have brokers, side by side, and
the others what needs none. More sets of brokers at a time starve each other.
"""

from __future__ import annotations

from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

from tests import machine
from tests.docker import engine_rig

#: Path -> the group of all tests below it, which one process runs: they share a cluster, an engine
#: or Spark.
TOGETHER: Final = {
    "tests/live/test_cluster.py": "a Kafka cluster",
    "tests/live/test_faults.py": "a Kafka cluster",
    "tests/live/test_network.py": "a Kafka cluster",
    "tests/live/test_resource_faults.py": "a Kafka cluster",
    "tests/live/test_pulsar_cluster.py": "workers of pulsar",
    "tests/docker/": "containers",
    "tests/spark/": "Spark",
    "tests/unit/test_docs.py": "the tree, parsed once",
    "tests/unit/test_imports.py": "the tree, parsed once",
    "tests/unit/test_style.py": "the tree, parsed once",
}
#: Tests of workers of one system share brokers: their ids begin with its name.
WORKERS: Final = "tests/live/test_workers.py"
#: Containers one at a time, beside the brokers: the images are built when the tests in them begin.
IMAGES: Final = "tests/docker/test_images.py"
#: The groups that take longest, in the order in which they are begun. Containers come last of those
#: on brokers: their images are built meanwhile.
LONGEST: Final = (
    "tests/live/test_bugs.py",
    "workers of kafka",
    "workers of pulsar",
    "tests/live/test_run.py",
    "a Kafka cluster",
    IMAGES,
    "Spark",
)
LAST: Final = ("containers",)
BROKERS_AT_A_TIME: Final = 2


def group_of(nodeid: str) -> str:
    """The group of a test: its file, unless several share something."""
    path = nodeid.partition("::")[0]
    if path == WORKERS:
        return f"workers of {nodeid.partition('[')[2].partition(' ')[0]}"
    # else each process might start an engine of its own
    if path == IMAGES and engine_rig.is_required():
        return path
    return next((group for prefix, group in TOGETHER.items() if path.startswith(prefix)), path)


def turn_of(nodeid: str) -> tuple[int, str]:
    """Sorts tests into the order in which they are handed out."""
    group = group_of(nodeid)
    if group in LONGEST:
        return LONGEST.index(group), group
    return len(LONGEST) + (group in LAST), group


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Groups by path. Those of the marker of pytest-xdist travel in ids, which pytest 9.2 lets
    nobody set.

    Leans on what is private to pytest-xdist: ``workqueue`` (group -> its tests, in the order of the
    queue), ``assigned_work`` (process -> its groups, finished ones too), ``_assign_work_unit`` (the
    next to a process).
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def schedule(self) -> None:
        tests = next(iter(self.registered_collections.values()), [])
        # the longest first, not those of the most tests
        self.config.option.loadscopereorder = False
        self._on_brokers = {group_of(test) for test in tests if machine.on_brokers(test)} - {IMAGES}
        if any(map(machine.on_brokers, tests)) and not machine.LOCK.is_locked:
            machine.LOCK.acquire()  # to the end of this process
        super().schedule()

    def _assign_work_unit(self, node: Any) -> None:
        if group := self._next_for(node):
            self.workqueue.move_to_end(group, last=False)
            super()._assign_work_unit(node)
        else:
            node.shutdown()

    def _next_for(self, node: Any) -> str:
        """The group that this process takes next; empty when there is none for it."""
        brokers_first = self._has_brokers(node) or (
            not self.assigned_work[node]  # who ran others stands back; its brokers would, too
            and sum(map(self._has_brokers, self.nodes)) < BROKERS_AT_A_TIME
        )
        others = [group for group in self.workqueue if group not in self._on_brokers]
        brokers = [group for group in self.workqueue if group in self._on_brokers]
        return next(iter([*(brokers if brokers_first else []), *others]), "")

    def _has_brokers(self, node: Any) -> bool:
        return not self._on_brokers.isdisjoint(self.assigned_work[node])
