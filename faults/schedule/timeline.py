"""Fault steps + seed -> timeline: every firing with its time, decided before anything starts. Pure.

Randomness is drawn per (seed, step, firing), so that editing one step leaves the others as they
were.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from faults.kinds import KINDS
from faults.kit.cluster_view import ability_text, find_ability, is_outside
from faults.kit.errors import StepProblem
from faults.kit.params import Inventory, Params, keys_of
from faults.schedule.mix import Draw, draws, read_mix
from faults.schedule.steps import read_step
from faults.schedule.times import firing_times, most_firings
from harness.contracts.plan import FaultStep
from harness.errors import ScenarioError
from harness.protocols.cluster import Cluster
from harness.protocols.nodes import Killable, Pausable, Startable, Stoppable

#: What drivers of a connection file can do to nodes that somebody else started.
_DRIVEN: Final = frozenset({Startable, Killable, Stoppable, Pausable})
_PAGE: Final = "see docs/howto/your-own-cluster.md"
_HINT: Final = "`brokerstorm list faults` shows every kind and its keys"


@dataclass(frozen=True, slots=True)
class Firing:
    """One fault at one time.

    Attributes:
        id: 1, 2, 3 ... in the order of time.
        target: as written, resolved when it fires.
        t_s: seconds after the start of load.
        for_s: from applied to heal; None when the fault ends by itself.
        params: all keys of the kind, as its class has them.
        wait_s: how long it is tried when no target can be hit at ``t_s``.
        step: index in the scenario's list.
        draw: seed of every choice of this firing.
    """

    id: int
    kind: str
    target: str
    t_s: float
    for_s: float | None
    params: Params
    step: int
    draw: int
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """The firings of a run, sorted by time, and the names they were checked against.

    ``quiet``: begin and end of the periods in which a mix leaves the cluster whole, seconds.
    """

    firings: tuple[Firing, ...]
    seed: int
    load_s: float
    inventory: Inventory
    quiet: tuple[tuple[float, float], ...] = ()


def compile(
    steps: Sequence[FaultStep], inventory: Inventory, *, seed: int, load_s: float
) -> Timeline:
    """Check every step and lay out its firings.

    Args:
        steps: the scenario's ``faults`` list as read.
        inventory: the names that steps may use (`faults.kit.params.inventory_of`).

    Raises:
        ScenarioError: names the step and the key, ``faults[2].target: ...``.
    """
    drafts: list[Firing] = []
    for index, step in enumerate(steps):
        drafts += _firings(index, step, seed, load_s, inventory)
        if len(drafts) > most_firings(load_s):
            raise ScenarioError(
                f"faults[{index}]: more than {most_firings(load_s):,} firings in all",
                hint="fire less often, or for a shorter time",
            )
    drafts.sort(key=lambda draft: (draft.t_s, draft.step))
    firings = tuple(_numbered(draft, number) for number, draft in enumerate(drafts, start=1))
    return Timeline(firings, seed, load_s, inventory, tuple(_quiet(steps, load_s, inventory)))


def _numbered(draft: Firing, number: int) -> Firing:
    return replace(draft, id=number)


def _firings(index: int, step: Any, seed: int, load_s: float, inventory: Inventory) -> list[Firing]:
    """The firings of one step, not numbered yet."""
    try:
        if isinstance(step, dict) and "mix" in step:
            drawn = draws(read_mix(step, inventory), f"{seed}:{index}", load_s)
        else:
            kind, schedule, params = read_step(step, inventory)
            times = firing_times(schedule, f"{seed}:{index}", load_s, kind.lasts_s(params) or 0.0)
            drawn = [Draw(t_s, kind, params, schedule.wait) for t_s in times]
    except StepProblem as problem:
        where = f"faults[{index}]" + (f".{problem.key}" if problem.key else "")
        raise ScenarioError(f"{where}: {problem}", hint=_HINT) from None
    return [
        Firing(
            id=0,
            kind=one.kind.kind,
            target=one.kind.target(one.params),
            t_s=one.t_s,
            for_s=one.kind.lasts_s(one.params),
            params=one.params,
            step=index,
            draw=random.Random(f"{seed}:{index}:{number}").getrandbits(63),
            wait_s=one.wait_s,
        )
        for number, one in enumerate(drawn)
    ]


def _quiet(steps: Sequence[Any], load_s: float, inventory: Inventory) -> list[tuple[float, float]]:
    """The quiet periods of every mix; the steps were checked."""
    mixes = [read_mix(step, inventory) for step in steps if "mix" in step]
    return sorted(period for mix in mixes for period in mix.quiet_periods(load_s))


def commands_of(firing: Firing, timeline: Timeline) -> list[str]:
    """The commands that one firing would send, in order; what is decided only then is named by its
    rule."""
    return KINDS[firing.kind].commands(firing.params, timeline.inventory)


def needs_of(timelines: Iterable[Timeline]) -> frozenset[str]:
    """Return what a cluster must be started with, so that all of these timelines can be run on
    it."""
    firings = [firing for timeline in timelines for firing in timeline.firings]
    return frozenset(need for firing in firings for need in _kind_needs(firing))


def _kind_needs(firing: Firing) -> frozenset[str]:
    return KINDS[firing.kind].needs_for(firing.params)


def refuse_unsupported(timeline: Timeline, cluster: Cluster) -> None:
    """Check a cluster, which need not be up, before anything starts.

    Raises:
        ScenarioError: the first step whose kind needs what this cluster lacks.
    """
    # The first of those that are the same: a long list repeats a few faults many times.
    asked = {(each.kind, repr(each.params)): each for each in reversed(timeline.firings)}
    for firing in sorted(asked.values(), key=lambda firing: firing.step):
        abilities = KINDS[firing.kind].abilities_for(firing.params)
        lacking = [ability for ability in abilities if find_ability(cluster, ability) is None]
        if lacking:
            raise ScenarioError(
                f"faults[{firing.step}].fault: {firing.kind} needs a cluster that can"
                f" {'; '.join(map(ability_text, lacking))}; this {cluster.system} cluster cannot",
                hint=_outside_hint(lacking) if is_outside(cluster) else _needs_hint(firing),
            )
        if reason := KINDS[firing.kind].refusal(firing.params, cluster):
            key, _, problem = reason.partition(": ")
            if key in ("fault", *keys_of(type(firing.params))):
                raise ScenarioError(
                    f"faults[{firing.step}].{key}: {problem}",
                    hint="`brokerstorm list faults` shows every kind and its keys",
                )
            raise ScenarioError(
                f"faults[{firing.step}].fault: {firing.kind} is not possible on this cluster: {reason}",
                hint=_needs_hint(firing),
            )


def _outside_hint(lacking: Iterable[type]) -> str:
    where = "on a cluster that somebody else started"
    if _DRIVEN.issuperset(lacking):
        return f"{where}, a driver does it: `drivers:` of the connection file; {_PAGE}"
    return f"{where}, nothing can: leave it out with --cluster; {_PAGE}"


def _needs_hint(firing: Firing) -> str:
    listed = "`brokerstorm list faults` shows what each kind needs"
    needs = " ".join(f"--needs {need}" for need in sorted(_kind_needs(firing)))
    return (
        f"{listed}; a cluster that is kept is started with `brokerstorm up {needs}`"
        if needs
        else listed
    )


def describe(timeline: Timeline) -> list[str]:
    """One line a firing, and one for the beginning of each quiet period, in order of time."""
    lines = described(timeline)
    width = max((len(f"{t_s:.1f}") for t_s, _, _ in lines), default=0)
    return [f"+{t_s:{width}.1f} s  {text}" for t_s, _, text in lines]


def described(timeline: Timeline) -> list[tuple[float, Firing | None, str]]:
    """Return the time, the firing (None for the beginning of a quiet period) and the text of each
    entry; see `describe`.
    """
    lines: list[tuple[float, Firing | None, str]] = [
        (firing.t_s, firing, _sentence(firing)) for firing in timeline.firings
    ]
    for start_s, end_s in timeline.quiet:
        lines.append(
            (start_s, None, f"quiet for {end_s - start_s:g} s: all faults undone, none is drawn")
        )
    return sorted(lines, key=lambda line: line[0])


def _sentence(firing: Firing) -> str:
    return KINDS[firing.kind].sentence(firing.params, firing.for_s)
