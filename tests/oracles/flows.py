"""Oracle of the flow of an application: backlog and delays by step, and the time to recover, one
input and one step at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analysis.capture.context import ApplicationFacts
from analysis.series import Grid
from tests.oracles.applied import of_inputs
from tests.oracles.facts import Facts, Identity
from tests.oracles.logged import time_of


def step_of(grid: Grid, t_ns: int) -> int:
    """The step of a time; what is earlier or later is in the first or last step."""
    return min(max((t_ns - grid.start_ns) // grid.step_ns, 0), grid.steps - 1)


def inputs(facts: Facts, application: ApplicationFacts) -> list[Identity]:
    """Messages whose first copy in the log is in the topic that the application reads."""
    streams = facts.context.topic_streams(application.source)
    return [name for name, copies in facts.copies.items() if copies[0]["stream"] in streams]


def backlog(facts: Facts, application: ApplicationFacts, grid: Grid) -> list[int] | None:
    """For each step, the inputs that had come by its end and had no output by then; None = the time
    of a first output is not known."""
    own = inputs(facts, application)
    made = {name: rows[0]["t_ns"] for name, rows in of_inputs(facts, application).items()}
    if any(made[name] == 0 for name in own if name in made):
        return None
    waiting = []
    for step in range(grid.steps):
        count = 0
        for name in own:
            has_come = step_of(grid, time_of(facts, name)) <= step
            has_output = name in made and step_of(grid, made[name]) <= step
            count += has_come and not has_output
        waiting.append(count)
    return waiting


def delays(facts: Facts, application: ApplicationFacts, grid: Grid) -> tuple[Counter[int], int]:
    """Inputs of the load with a first output, by the step of that output; and the longest time from
    when one was due until then."""
    steps: Counter[int] = Counter()
    longest_ns = 0
    first = of_inputs(facts, application)
    for name in inputs(facts, application):
        due_ns = facts.copies[name][0]["t_intended_ns"]
        if name not in first or due_ns < max(1, facts.context.epoch_ns):
            continue
        t_ns = first[name][0]["t_ns"]
        if t_ns > 0:
            steps[step_of(grid, t_ns)] += 1
            longest_ns = max(longest_ns, t_ns - due_ns)
    return steps, longest_ns


def recovery_steps(late: Sequence[bool | None], begin: int, until: int) -> int | None:
    """Steps from a fault at the begin of step ``begin`` until the first end of a step after which
    every output before step ``until`` has a usual delay; None = not seen.

    Args:
        late: by step, whether the delay of its outputs was not usual; None = it has none.
    """
    seen = [late[step] for step in range(begin, min(until, len(late))) if late[step] is not None]
    if not seen or seen[-1]:
        return None
    for after in range(until - begin + 1):
        if not any(late[step] for step in range(begin + after, min(until, len(late)))):
            return after
    return None
