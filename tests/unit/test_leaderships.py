"""Who led what, as a run records it: what is watched, what brokers tell, and a run without
either."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.contracts.rows import Leadership
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import PartitionState, SeenLeaders
from harness.run.leaderships import LeaderWatch
from harness.rundir import RunDir, read_jsonl
from harness.systems.pulsar.ledgers import ledgers_of
from harness.systems.qpid.admin import QpidAdmin
from tests.planted.plans import build_plan

S = 1_000_000_000


class Brokers:
    """An admin whose owners the test decides."""

    def __init__(self) -> None:
        self.owner: str | None = "broker-1"
        self.asked = 0

    def partition_states(self, topics: Sequence[str]) -> dict[str, PartitionState]:
        self.asked += 1
        if self.owner == "nobody answers":
            raise EnvironmentNotReady("no broker answers")
        return {f"{topic}-0": PartitionState(self.owner, (), ()) for topic in topics}

    def leaders(self, topic: str) -> dict[int, str | None]:
        return {0: self.owner}

    def controller(self) -> str | None:
        return self.owner

    def leaderships(self, topics: Sequence[str], seen: SeenLeaders) -> list[Leadership]:
        if self.owner == "nobody answers":
            raise EnvironmentNotReady("no broker answers")
        return QpidAdmin.leaderships(self, topics, seen)  # type: ignore[arg-type]


def watched(
    root: Path,
    brokers: Any,
    owners: Sequence[str | None],
    system: str = "qpid",
    *,
    clocks_set: bool = False,
) -> RunDir:
    run, clock = RunDir(root).create(), iter(range(S, 99 * S, S))
    watch = LeaderWatch(
        build_plan(topics={"orders": 1}, system=system),
        run,
        lambda: brokers,
        lambda: next(clock),
    )
    for brokers.owner in owners:
        watch.look()
    watch.record(has_times=not clocks_set)
    return run


def test_every_change_that_was_seen_is_a_term_and_says_how_late_it_may_be(tmp_path: Path) -> None:
    owners = ["qpid-1", "qpid-1", "nobody answers", None, "qpid-2"]
    rows = read_jsonl(watched(tmp_path, Brokers(), owners).raw_leaderships)
    assert [
        (row["term"], row["leader"], row["t_ns"] // S, row["late_ns"] // S) for row in rows
    ] == [
        (1, "qpid-1", 1, 0),
        (2, None, 3, 1),
        (3, "qpid-2", 4, 1),
    ]
    assert {row["stream"] for row in rows} == {"orders-0"}


def test_clocks_that_were_set_tell_no_times(tmp_path: Path) -> None:
    rows = read_jsonl(
        watched(tmp_path, Brokers(), ["qpid-1", "qpid-2"], clocks_set=True).raw_leaderships
    )
    assert [(row["term"], row["t_ns"], row["leader"]) for row in rows] == [(1, 0, ""), (2, 0, "")]


def test_a_run_whose_brokers_cannot_say_has_no_record(tmp_path: Path) -> None:
    assert not watched(tmp_path, Brokers(), ["qpid-1", "nobody answers"]).raw_leaderships.exists()
    assert not watched(tmp_path, object(), []).raw_leaderships.exists()


def test_where_brokers_keep_it_nothing_is_watched(tmp_path: Path) -> None:
    brokers = Brokers()
    plan = build_plan(topics={"orders": 1}, system="kafka")
    watch = LeaderWatch(plan, RunDir(tmp_path).create(), lambda: brokers)  # type: ignore[arg-type,return-value]
    watch.start()
    watch.stop()
    assert brokers.asked == 0


def ledger(number: int, entries: int | None, closed_s: float | None) -> Mapping[str, Any]:
    wall_ms = (
        None
        if closed_s is None
        else round((time.time_ns() - time.monotonic_ns()) / 1e6 + closed_s * 1e3)
    )
    return {"ledgerId": number, "entries": entries, "timestamp": wall_ms}


SEEN = ((1 * S, 0, "broker-1"), (21 * S, S, None), (23 * S, S, "broker-2"), (41 * S, S, "broker-1"))


def test_a_ledger_begins_when_the_one_before_was_closed_by_its_next_owner() -> None:
    info = {"ledgers": [ledger(9, 40, 41.5), ledger(7, 100, 22.5), ledger(12, 0, None)]}
    found = list(ledgers_of("orders-0", info, SEEN))
    assert [(one.term, one.leader, one.entries) for one in found] == [
        (7, "broker-1", 100),
        (9, "broker-2", 40),
        (12, "broker-1", None),  # open
    ]
    assert [round(one.t_ns / S, 1) for one in found] == [0, 22.5, 41.5]


@pytest.mark.parametrize(
    ("seen", "begun_s", "owner"),
    [
        (SEEN, 30, "broker-2"),
        (SEEN, 22.5, "broker-2"),  # nobody before, and found at the next look
        (SEEN, 40.2, ""),  # either of two
        (SEEN, 20.5, "broker-1"),
        (SEEN, 21.5, ""),  # nobody owned it
        ((), 30, ""),
    ],
)
def test_the_owner_is_who_was_seen_when_the_ledger_began(
    seen: Any, begun_s: float, owner: str
) -> None:
    *_, found = ledgers_of(
        "orders-0", {"ledgers": [ledger(7, 1, begun_s), ledger(8, 0, None)]}, seen
    )
    assert found.leader == owner


def test_a_ledger_that_was_closed_before_anybody_looked_has_no_known_owner() -> None:
    found = list(ledgers_of("orders-0", {"ledgers": [ledger(7, 1, 0.5), ledger(8, 0, None)]}, SEEN))
    assert [one.leader for one in found] == ["", "broker-1"]
    assert list(ledgers_of("orders-0", {}, SEEN)) == []
