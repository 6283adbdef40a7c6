"""Backlog, delay and time to recover of applications: what the kernel says is what a slow oracle
says, on random small histories."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.capture.context import Context
from analysis.histogram import BINS
from analysis.kernels.applications import flow_grid
from analysis.verdict.applications import _recovery_s
from tests.oracles import Facts
from tests.oracles.flows import backlog, delays, recovery_steps
from tests.oracles.judging import context_from, judged, judged_tables
from tests.oracles.systems import application_histories
from tests.planted.tiny import History
from tests.planted.tiny_applications import applied, made

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(h: History, context: Context) -> None:
    tables = h.tables()
    facts, partial = Facts(context, tables), judged_tables(tables, context)
    grid = flow_grid(context)
    for application in context.applications:
        flow = partial.flows[application.name]
        expected = backlog(facts, application, grid)
        assert (np.cumsum(flow).tolist() or None) == expected
        steps, longest_ns = delays(facts, application, grid)
        found: Any = partial.output_delays[application.name]
        assert found.total == sum(steps.values())
        by_step = np.bincount(found.cells // BINS, found.counts, grid.steps)
        assert {step: n for step, n in enumerate(by_step.tolist()) if n} == steps
        assert found.max_ns == longest_ns


@given(application_histories())
@QUICK
def test_the_flow_is_what_the_oracle_says(case: tuple[History, Context]) -> None:
    check(*case)


def test_an_output_that_is_stored_before_its_input_is_acknowledged_leaves_nothing_behind() -> None:
    """An acknowledgement may reach the producer after the output was stored."""
    h = applied().send(0, at_ms=5_000, due_ms=1_000).log(0)
    made(h, 0, at_ms=2_000)
    check(h, context_from(h))
    (flow,) = judged(h).flows.values()
    assert set(np.cumsum(flow).tolist()) == {0}


def test_outputs_of_messages_of_another_topic_are_no_part_of_the_flow() -> None:
    h = applied().sent(1).log(0)
    h.send(0, partition=1).log(0, partition=1)
    made(h, 0, partition=1)
    check(h, context_from(h))


@given(
    st.lists(st.sampled_from([True, False, False, None]), max_size=8),
    st.integers(0, 8),
    st.integers(0, 4),
)
@QUICK
def test_the_time_to_recover_is_what_the_oracle_says(
    late: list[bool | None], begin: int, more: int
) -> None:
    p99_ms = [None if each is None else 900.0 if each else 1.0 for each in late]
    until = begin + more
    found = _recovery_s(p99_ms, 1.0, 100.0, float(begin), float(until))
    assert found == recovery_steps(late, begin, until)
