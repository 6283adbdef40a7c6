"""When consumers have seen everything: positions, backlogs, and consumers that never
acknowledge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from harness.contracts.plan import Plan
from harness.contracts.worker import StatsLine
from harness.errors import EnvironmentNotReady
from harness.plan.build import build_plan
from harness.run import draining
from harness.run.draining import DrainCheck, caught_up, stages, waiting_for
from harness.run.lifecycle import LiveRun
from harness.run.worker_specs import group_id
from harness.scenario.model import Scenario


def plan_of(system: str, **consumers: Any) -> Plan:
    topics = {"a": {"partitions": 2}} if system != "qpid" else {"a": {}, "b": {}}
    data = {"name": "x", "system": system, "topics": topics, "load": {"consumers": consumers}}
    return build_plan(Scenario.model_validate(data), seed=1)


class Positions:
    """An admin of a system whose positions are dense."""

    def end_offsets(self, topics: Sequence[str]) -> dict[str, int]:
        return {"a-0": 10, "a-1": 0}


class ShareLags(Positions):
    def __init__(self) -> None:
        self.now: Mapping[str, int] = {}

    def share_lags(self, group: str, topics: Sequence[str]) -> Mapping[str, int]:
        return self.now


class Backlogs(Positions):
    def __init__(self) -> None:
        self.now: Mapping[str, Mapping[str, int]] | None = None

    def backlogs(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        if self.now is None:
            raise EnvironmentNotReady("no broker answers")
        return self.now


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(draining, "QUIET_S", 0.0)


def test_some_member_stands_at_the_end_of_each_partition() -> None:
    plan = plan_of("kafka", c={"count": 2}, d={"group": "other"})
    assert not caught_up(plan, {"a-0": 10, "a-1": 5}, [{"a-0": 10}, {"a-1": 5}, {}])
    assert caught_up(plan, {"a-0": 10, "a-1": 5}, [{"a-0": 10}, {"a-1": 5}, {"a-0": 10, "a-1": 5}])
    asked = DrainCheck(plan, Positions(), stored=10)  # type: ignore[arg-type]
    assert not asked.is_done(
        [StatsLine(positions={"a-0": 9}), StatsLine(), StatsLine(positions={"a-0": 10})]
    )
    assert asked.is_done(
        [StatsLine(positions={"a-0": 10}), StatsLine(), StatsLine(positions={"a-0": 10})]
    )


def test_a_position_above_the_end_is_of_the_topic_that_was_there_before() -> None:
    plan = plan_of("kafka", c={})
    asked = DrainCheck(plan, Positions(), stored=10, remade={"a"})  # type: ignore[arg-type]
    assert not asked.is_done([StatsLine(positions={"a-0": 4000})])
    assert asked.is_done([StatsLine(positions={"a-0": 10})])
    asked = DrainCheck(plan, Positions(), stored=10)  # type: ignore[arg-type]
    assert asked.is_done([StatsLine(positions={"a-0": 4000})])  # of a log that lost its end


def test_a_share_group_is_done_when_the_brokers_say_so() -> None:
    """Its members stand nowhere: what one was given may still be given to another."""
    of_share = {"client": "kafka-clients", "settle": "ack", "options": {"group.type": "share"}}
    plan, admin = plan_of("kafka", c=of_share, d={"group": "other"}), ShareLags()
    asked = DrainCheck(plan, admin, stored=10)  # type: ignore[arg-type]
    read = [StatsLine(delivered=10), StatsLine(positions={"a-0": 10})]
    assert not asked.is_done(read)  # nothing is known of it
    admin.now = {"a-0": 1, "a-1": 0}
    assert not asked.is_done(read)
    assert waiting_for(plan, admin, read, 0) == 1  # type: ignore[arg-type]
    admin.now = {"a-0": 0, "a-1": 0}
    assert not asked.is_done([StatsLine(delivered=10), StatsLine(positions={"a-0": 9})])
    assert asked.is_done(read)


def test_brokers_that_are_all_gone_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the run captured is judged also if nobody ever tells where its log ends."""
    plan, admin = plan_of("kafka", c={}), Positions()
    tell, answers = admin.end_offsets, [EnvironmentNotReady("no broker answers")]

    def ask(topics: Sequence[str]) -> dict[str, int]:
        if answers:
            raise answers.pop()
        return tell(topics)

    monkeypatch.setattr(admin, "end_offsets", ask)
    asked = DrainCheck(plan, admin, stored=10)  # type: ignore[arg-type]
    assert not asked.is_done([StatsLine(positions={"a-0": 10})])
    assert asked.is_done([StatsLine(positions={"a-0": 10})])


def test_a_subscription_is_done_when_it_settled_everything() -> None:
    plan, admin = plan_of("pulsar", c={}), Backlogs()
    asked = DrainCheck(plan, admin, stored=10)  # type: ignore[arg-type]
    name = group_id(plan, "group")
    assert not asked.is_done([{}])  # nobody can say
    admin.now = {"a-0": {name: 0}, "a-1": {name: 3}}
    assert not asked.is_done([{}])
    admin.now = {"a-0": {name: 0}}
    assert not asked.is_done([{}])  # of a-1 nothing is known
    admin.now = {"a-0": {name: 0, "another": 9}, "a-1": {name: 0}}
    assert asked.is_done([{}])


def test_a_queue_has_one_backlog() -> None:
    plan, admin = plan_of("qpid", c={"topics": ["a"]}), Backlogs()
    asked = DrainCheck(plan, admin, stored=10)  # type: ignore[arg-type]
    admin.now = {"a-0": {"": 1}, "b-0": {"": 7}}
    assert not asked.is_done([{}])
    admin.now = {"a-0": {"": 0}, "b-0": {"": 7}}
    assert asked.is_done([{}])


def test_who_never_acknowledges_is_done_when_it_was_handed_everything() -> None:
    plan, admin = plan_of("pulsar", c={"settle": "none"}), Backlogs()
    admin.now = {}
    asked = DrainCheck(plan, admin, stored=10)  # type: ignore[arg-type]
    assert not asked.is_done([StatsLine(delivered=9)])
    assert not asked.is_done([StatsLine(delivered=10)])  # it only just came
    assert asked.is_done([StatsLine(delivered=10)])


def test_a_subscription_that_is_not_durable_is_done_when_all_is_given_out_and_nothing_comes() -> (
    None
):
    """It is given messages again: how many it was given proves nothing."""
    plan, admin = plan_of("pulsar", c={"options": {"subscriptionMode": "NonDurable"}}), Backlogs()
    name = group_id(plan, "group")
    asked = DrainCheck(plan, admin, stored=10)  # type: ignore[arg-type]
    admin.now = {"a-0": {name: 0}, "a-1": {name: 0}}
    assert not asked.is_done([StatsLine(delivered=12)])  # it only just came
    admin.now = {"a-0": {name: 0}, "a-1": {name: 1}}
    assert not asked.is_done([StatsLine(delivered=12)])
    admin.now = {"a-0": {name: 0}, "a-1": {name: 0}}
    assert asked.is_done([StatsLine(delivered=12)])
    slow = plan_of("pulsar", c={"options": {"subscriptionMode": "NonDurable"}, "work": "5s"})
    asked = DrainCheck(slow, admin, stored=10)  # type: ignore[arg-type]
    asked.is_done([StatsLine(delivered=12)])
    # it may be at work on one, with more in its hands
    assert not asked.is_done([StatsLine(delivered=12)])


class Watermarks:
    """An admin that shows readers what is replicated."""

    def __init__(self, missing: str) -> None:
        self.missing = missing

    def pass_high_watermark(self, topics: Sequence[str], *, timeout_s: float, run_tag: int) -> None:
        if self.missing:
            raise EnvironmentNotReady(self.missing)


@pytest.mark.parametrize("missing", ["", "1 partitions took no probe message"])
def test_nothing_is_read_as_the_end_before_all_that_was_acknowledged_can_be_seen(
    missing: str,
) -> None:
    """Else what the leader alone has acknowledged looks lost; where that is not known, no loss is
    proved."""
    live: Any = object.__new__(LiveRun)
    live._plan, live._is_restored = plan_of("kafka", c={}), True
    live._cluster = SimpleNamespace(admin=Watermarks(missing))
    live._interrupts = SimpleNamespace(cut=lambda end: end, raising=nullcontext)
    live._progress = SimpleNamespace(note=lambda text: None)
    told: dict[str, Any] = {}
    seen: list[Any] = []
    live._manifest = SimpleNamespace(
        begin_phase=lambda name: None, update=told.update, problem=lambda *words: seen.append(words)
    )
    live._phase = lambda *_: None
    live._pool = SimpleNamespace(
        scheduled=[], readers=[], command=lambda *_: None, report_deaths=lambda: None
    )
    live._hangs = live._stalls = SimpleNamespace(stop=lambda: None)
    live._applications = SimpleNamespace(drain=lambda *_: True, end=lambda: None)
    live._interrupts.gives_up = Event()
    live._wait_read = lambda *_: told.update(restored_before=live._is_restored) or True
    live._drain()
    assert told["readiness_restored"] == told["restored_before"] == (not missing)
    assert seen == ([("recovery", missing)] if missing else [])


def test_pipelines_come_to_their_end_in_the_order_in_which_they_read_one_another() -> None:
    load = {
        "producers": {"p": {"topics": ["a"]}},
        "pipelines": {
            "last": {"from": "c", "to": "d"},
            "first": {"from": "a", "to": "b", "count": 2},
            "next": {"from": "b", "to": "c"},
            "other": {"from": "a", "to": "e"},
        },
    }
    topics: dict[str, Any] = {name: {} for name in "abcde"}
    plan = build_plan(
        Scenario.model_validate({"name": "x", "topics": topics, "load": load}), seed=1
    )
    assert [[member.name for member in stage] for stage in stages(plan.pipelines)] == [
        ["pipeline-first-1", "pipeline-first-2", "pipeline-other"],
        ["pipeline-next"],
        ["pipeline-last"],
    ]
