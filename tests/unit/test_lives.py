"""Clients that are ended and begun again: the rest of their load, their identity, what is judged of
them."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import faults
from analysis.capture.context_files import context_of
from analysis.findings import ValidityCheck
from analysis.verdict.coverage import coverage
from analysis.verdict.intended import absences_of, intended_of
from harness.contracts import typed
from harness.contracts.plan import Plan
from harness.contracts.rows import Manifest, WorkerRow
from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.plan.endings import endings
from harness.run.lives import ComingAndGoing, rest_of_load
from harness.scenario.model import Scenario
from harness.waiting import wait_until
from tests.specs import sending
from tests.unit.test_hang_report import PRODUCER
from tests.unit.test_verdict import MANIFEST, facts, traffic

S = 1_000_000_000


def plan_of(**load: Any) -> Plan:
    whole = {"rate": 1000, "duration": "20s", "warm_up": "2s", **load}
    return build_plan(Scenario.model_validate({"name": "x", "load": whole}), seed=1)


WORKERS: list[dict[str, Any]] = [
    {
        "name": "producer-p-1", "role": "producer", "instance": 1, "done": False, "killed": True,
        "life_of": "", "t_start_ns": S, "t_end_ns": 15 * S, "offers_from_ns": 0, "offers_until_ns": 15 * S,
        "open_sends": 7,
    },
    {
        "name": "producer-p-1.2", "role": "producer", "instance": 3, "done": True, "killed": False,
        "life_of": "producer-p-1", "t_start_ns": 16 * S, "t_end_ns": 40 * S, "offers_from_ns": 17 * S,
        "offers_until_ns": 0, "open_sends": 0,
    },
    {
        "name": "producer-p-2", "role": "producer", "instance": 2, "done": True, "t_start_ns": S,
        "t_end_ns": 40 * S,
    },
]  # fmt: skip


def rows(workers: list[dict[str, Any]]) -> list[WorkerRow]:
    return [typed(row, WorkerRow, "") for row in workers]


def test_a_later_life_sends_what_is_left_of_the_load_from_its_own_beginning() -> None:
    part = sending(warm_up_s=2.0, load_s=20.0)
    assert rest_of_load(part, 15 * S) == sending(warm_up_s=0.0, load_s=5.0)


def test_a_later_life_follows_what_is_left_of_the_profile() -> None:
    spans = [[2 * S, 0.5], [10 * S, 0.1], [5 * S, 1.0], [5 * S, 0.2]]
    part = sending(warm_up_s=2.0, load_s=20.0, rate_profile=spans)

    def left(elapsed_s: int) -> Any:
        return rest_of_load(part, elapsed_s * S).rate_profile

    assert left(4) == [(0, 0.1), (6 * S, 0.1), (5 * S, 1.0), (5 * S, 0.2)]
    assert left(10) == [(0, 1.0), (5 * S, 1.0), (5 * S, 0.2)]
    assert left(17) == [(0, 0.2), (3 * S, 0.2)]


def test_a_later_life_is_judged_by_the_plan_of_its_client() -> None:
    plan = plan_of(producers={"p": {"count": 2}})
    context = context_of(plan, typed({"workers": WORKERS, "epoch_ns": 10 * S}, Manifest, ""))
    first, later = context.instances[1], context.instances[3]
    assert (first.name, first.end_ns, first.complete) == ("producer-p-1", 15 * S, True), (
        "killed by the run"
    )
    assert (later.name, later.complete) == ("producer-p-1.2", True)
    assert later.promise == first.promise
    assert later.deadline_ns == first.deadline_ns


def test_a_client_that_died_by_itself_is_not_complete() -> None:
    died = copy.deepcopy(WORKERS)
    died[0]["killed"] = False
    plan = plan_of(producers={"p": {"count": 2}})
    assert not context_of(plan, typed({"workers": died}, Manifest, "")).instances[1].complete


def test_nothing_is_due_of_a_client_between_its_lives() -> None:
    """Killed 5 s into the load, and ready to send again at 7 s."""
    plan = plan_of(producers={"p": {"count": 2}})
    away = absences_of(plan, rows(WORKERS), 10 * S, 30 * S)
    borders = np.array([10, 15, 16, 17, 30]) * S
    due = intended_of(plan, 10 * S, 30 * S, away).due_within(borders)
    assert due.tolist() == pytest.approx([5000, 500, 500, 13_000])


def test_what_a_client_that_never_came_back_should_have_sent_is_missing() -> None:
    plan = plan_of(producers={"p": {"count": 2}})
    away = absences_of(plan, rows([WORKERS[0], WORKERS[2]]), 10 * S, 30 * S)
    due = intended_of(plan, 10 * S, 30 * S, away).due_within(np.array([10, 15, 30]) * S)
    assert due.tolist() == pytest.approx([5000, 15_000])


def test_producers_that_come_and_go_have_lives_of_their_own_in_the_plan() -> None:
    coming = {"comes_and_goes": {"every": "6s", "away": "2s"}}
    plan = plan_of(producers={"p": {"count": 2, **coming}, "q": {}})
    lives = [
        [(life.instance, life.leaves_s, life.returns_s) for life in p.lives] for p in plan.producers
    ]
    assert lives == [[(4, 6, 8), (5, 12, 14)], [(6, 6, 8), (7, 12, 14)], []]


class Told:
    """As `ClientLives`, but it only writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int]] = []

    def stop(self, name: str, within_s: float) -> bool:
        self.told.append(("stop", name, 0))
        return True

    def begin(self, name: str, number: int = 0) -> None:
        self.told.append(("begin", name, number))


def test_lives_end_and_begin_when_the_plan_says_so_until_the_load_is_over() -> None:
    coming = {"comes_and_goes": {"every": "2s", "away": "1s"}}
    plan, lives = plan_of(producers={"p": coming}, duration="10s"), Told()
    follower = ComingAndGoing(plan, lives, pytest.fail)  # type: ignore[arg-type]
    follower.start(time.monotonic_ns() - 6 * S)  # the third life has just ended
    wait_until(lambda: len(lives.told) >= 5, 10.0, every_s=0.01)
    follower.stop(10.0)
    begins = [life.instance for life in plan.producers[0].lives]
    assert begins == [2, 3, 4, 5]
    assert lives.told[:5] == [
        ("stop", "producer-p", 0), ("begin", "producer-p", 2), ("stop", "producer-p", 0),
        ("begin", "producer-p", 3), ("stop", "producer-p", 0),
    ]  # fmt: skip
    assert ("begin", "producer-p", 5) not in lives.told


def compiled(plan: Plan, **step: Any) -> faults.Timeline:
    return faults.compile(
        [{"at": "1s", **step}],
        faults.inventory_of(topics=plan.topics, nodes=["a"], clients=endings(plan)),
        seed=1,
        load_s=20,
    )


def queue_plan(settle: str) -> Plan:
    more = {"per_transaction": 10} if settle == "transacted" else {}
    consumers = {"c": {"settle": settle, **more}}
    load = {"rate": 100, "duration": "20s", "consumers": consumers}
    return build_plan(
        Scenario.model_validate({"name": "x", "system": "qpid", "load": load}), seed=1
    )


def test_a_consumer_that_settles_by_taking_is_not_ended() -> None:
    with pytest.raises(ScenarioError, match="target: consumer-c settles messages on receipt"):
        compiled(queue_plan("auto"), fault="client-kill", target="client:consumer")
    assert compiled(queue_plan("auto"), fault="client-kill", target="client:producer").firings
    assert compiled(queue_plan("transacted"), fault="client-restart", target="client").firings


def test_a_target_is_a_client_of_the_load() -> None:
    with pytest.raises(
        ScenarioError, match=r"client:producer-3 is not a client of this load; clients: prod"
    ):
        compiled(plan_of(), fault="client-kill", target="client:producer-3")


def test_what_a_run_killed_itself_is_recorded_and_what_it_left_open_is_waited_for_by_nobody() -> (
    None
):
    series = traffic()
    series = replace(series, totals={**series.totals, "open": 7})
    killed = {"name": "p-1", "done": False, "killed": True, "exit_code": -9, "open_sends": 7}

    def checked(**changes: Any) -> dict[str, ValidityCheck]:
        workers = [{**killed, **changes}, {"name": "p-1.2", "done": True, "life_of": "p-1"}]
        run = facts(
            series,
            manifest={**MANIFEST, "workers": workers},
            plan={"producers": [PRODUCER | {"call_deadline_s": 9}]},
        )
        return {check.name: check for check in coverage(run)}

    assert checked()["capture"].ok
    assert "p-1 killed by a fault, every row kept" in checked()["capture"].text
    assert checked()["drain"].ok
    assert not checked(open_sends=6)["drain"].ok, (
        "one more was open, and that one the drain waited for"
    )
    assert not checked(killed=False)["capture"].ok, "it died by itself"
