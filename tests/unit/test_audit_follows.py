"""A log that is read while it grows: its leader epochs tell what was truncated since, and is read
again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.capture.bucket import Bucket, Columns
from analysis.capture.context import Context
from harness.contracts.rows import Bounds, FaultDetails, Leadership
from harness.faultlog import FaultRecord, may_lack_what_was_read
from harness.run.leaderships import LeaderWatch
from tests.unit.seal_rows import log_columns

Entry = tuple[int, int]  # leader epoch, and a number that no other message has


class Partition:
    """A partition with a reader behind it."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.epoch = self.number = self.begin = 0
        self.got: dict[int, Entry] = {}
        self.read: list[tuple[int, int]] = []
        self.read_to = 0

    def append(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.log.append((self.epoch, self.number))

    def elect(self, count: int) -> None:
        """A leader that lacks the last messages."""
        self.epoch += 1
        del self.log[max(len(self.log) - count, self.begin) :]

    def retain(self, count: int) -> None:
        """Brokers drop the oldest; never what nobody has read."""
        self.begin = min(self.begin + count, self.read_to, len(self.log))

    def follow(self, count: int) -> None:
        for position in range(self.read_to, min(self.read_to + count, len(self.log))):
            epoch = self.log[position][0]
            if not self.read or self.read[-1][0] != epoch:
                self.read.append((epoch, position))
            self.got[position] = self.log[position]
            self.read_to = position + 1

    @property
    def now(self) -> list[tuple[int, int]]:
        """As the leader of now tells it: epochs with messages, and its own. Of one below all of
        which it has something it says that it ends where the log begins."""
        starts: dict[int, int] = {}
        for position in range(self.begin, len(self.log)):
            starts.setdefault(self.log[position][0], position)
        starts.setdefault(self.epoch, len(self.log))
        gone = {epoch: self.begin if epoch else 0 for epoch in range(min(starts))}
        return sorted((gone | starts).items())

    @property
    def first_wrong(self) -> int:
        """By comparing messages, which nobody can who has not both."""
        there = dict(enumerate(self.log))
        wrong = [p for p in range(self.begin, self.read_to) if self.got[p] != there.get(p)]
        return min(wrong, default=self.read_to)


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "elect", "retain", "follow"]), st.integers(0, 6)),
    max_size=40,
)


@pytest.fixture
def audit(worker_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return worker_module("confluent_kafka", "audit")


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS)
def test_epochs_tell_what_was_truncated(audit: ModuleType, steps: list[tuple[str, int]]) -> None:
    partition = Partition()
    for step, count in steps:
        getattr(partition, step)(count)
    low = partition.begin
    found = audit.truncated_from(partition.read, partition.read_to, partition.now, low)
    assert found == partition.first_wrong


def test_after_retention_what_the_log_still_has_is_not_read_again(audit: ModuleType) -> None:
    """Epochs 0 to 2 are gone whole: each is said to end at 40, where the log begins."""
    read, now = (
        [(0, 0), (1, 10), (2, 20), (3, 30), (4, 60)],
        [(0, 0), (1, 40), (2, 40), (3, 40), (4, 60)],
    )
    assert audit.truncated_from(read, 70, now, 40) == 70
    assert audit.truncated_from(read, 70, [*now[:4], (4, 55)], 40) == 55
    assert audit.truncated_from(read, 70, [*now[:3], (4, 40)], 40) == 40


def test_where_nobody_can_say_all_is_read_again(audit: ModuleType) -> None:
    assert audit.truncated_from([(0, 3), (2, 7)], 9, [], 0) == 3


def test_of_what_was_read_again_the_later_rows_count() -> None:
    """Stream 1 was read to 6, then from 2 to 5; stream 2 only once."""
    columns = log_columns(12)
    columns["position"][:] = [0, 1, 2, 3, 4, 5, 2, 3, 4, 0, 1, 2]
    columns["seq"][:] = [0, 1, 2, 3, 4, 5, 12, 13, 14, 20, 21, 22]
    columns["stream"][9:] = 2
    bounds = {1: Bounds(end=5, read_to=5, again=2), 2: Bounds(end=3, read_to=3)}
    tables = {name: Columns.from_arrays(name, {}) for name in ("sends", "deliveries")}
    bucket = Bucket(0, Context(bounds=bounds), log=Columns.from_arrays("log", columns), **tables)
    assert bucket.log["seq"].tolist() == [0, 1, 12, 13, 14, 20, 21, 22]
    assert np.array_equal(bucket.log["position"], [0, 1, 2, 3, 4, 0, 1, 2])


def test_entries_that_a_ledger_was_closed_without_are_not_in_the_log() -> None:
    """They were read while it was written. Ledger 8 is the last one, and open."""
    columns = log_columns(6)
    columns["ledger"][:] = [7, 7, 7, 8, 8, 9]
    columns["position"][:] = [0, 1, 2, 0, 5, 3]
    terms = {1: (Leadership(term=7, entries=2), Leadership(term=8))}
    tables = {name: Columns.from_arrays(name, {}) for name in ("sends", "deliveries")}
    bucket = Bucket(0, Context(terms=terms), log=Columns.from_arrays("log", columns), **tables)
    assert bucket.log["ledger"].tolist() == [7, 7, 8, 8, 9]


def test_where_a_topic_made_again_ends_is_asked_by_a_client_that_knows_it(
    audit: ModuleType, tmp_path: Path
) -> None:
    """The reader of the one before does not: its leader is another node now."""

    def not_leader(partition: Any, timeout: float) -> tuple[int, int]:
        raise audit.KafkaException(audit.KafkaError(audit.KafkaError.NOT_LEADER_FOR_PARTITION))

    report = SimpleNamespace(event=lambda *said: None, error=lambda *said: None)
    role = object.__new__(audit.AuditRole)
    state = audit.Progress("orders-0", 1, begin=0, end=9, read_to=8, epochs=[(0, 0)])
    role.progress, role.follows, role.later = {"orders": {0: state}}, True, frozenset()
    role.session = SimpleNamespace(report=report, spec=SimpleNamespace(folder=tmp_path))
    role.consumer = SimpleNamespace(get_watermark_offsets=not_leader, close=lambda: None)
    role.connect = lambda: SimpleNamespace(get_watermark_offsets=lambda partition, timeout: (0, 3))
    role._fix_bounds()
    assert state.why == "error"
    role._go_back()
    assert (state.read_to, state.end, state.again, state.why) == (0, 3, 0, "")


def test_what_retention_removed_is_not_read_again(audit: ModuleType, tmp_path: Path) -> None:
    role = object.__new__(audit.AuditRole)
    state = audit.Progress("orders-0", 1, begin=0, end=9, read_to=8, epochs=[(0, 0)])
    role.progress, role.follows, role.later = {"orders": {0: state}}, True, frozenset()
    role.session = SimpleNamespace(
        report=SimpleNamespace(event=lambda *said: None), spec=SimpleNamespace(folder=tmp_path)
    )
    role.consumer = SimpleNamespace(
        get_watermark_offsets=lambda partition, timeout: (4, 9), close=lambda: None
    )
    role.connect = lambda: role.consumer
    role._fix_bounds()
    role._go_back()
    assert (state.begin, state.read_to, state.end, state.again, state.why) == (0, 4, 9, 4, "")


def test_a_log_may_lack_what_was_read_after_damage_and_when_no_copy_was_synced() -> None:
    harmless = FaultRecord(1, "kill")
    assert not may_lack_what_was_read([harmless])
    for details in (FaultDetails(damaged={"bookie-1": []}), FaultDetails(unkept=("orders-0",))):
        assert may_lack_what_was_read([harmless, FaultRecord(2, "power-loss", details=details)])


def test_a_damaged_file_makes_what_was_read_uncertain(tmp_path: Path) -> None:
    """No leader changes by it: terms do not tell."""
    watch = object.__new__(LeaderWatch)
    watch._told = [Leadership(stream="orders-0", term=1, first=0)]
    damage = FaultRecord(
        1, "file-damage", details=FaultDetails(damaged={"kafka-1": [{"offset": 7}]})
    )
    assert watch.epochs([]) == {"orders-0": [(1, 0)]}
    assert watch.epochs([damage]) == {}


def test_only_what_brokers_say_is_not_there_is_not_there(audit: ModuleType) -> None:
    told = SimpleNamespace(error=None, partitions={0: None, 1: None})
    consumer = SimpleNamespace(
        list_topics=lambda topic, timeout: SimpleNamespace(topics={topic: told})
    )
    role = SimpleNamespace(consumer=consumer)
    assert [audit.AuditRole._lacks(role, "orders", partition) for partition in (1, 2)] == [
        False,
        True,
    ]
    told.error = "no broker knows now"
    assert not audit.AuditRole._lacks(role, "orders", 2)
