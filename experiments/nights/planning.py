"""From a suite file to a night: cells, versions as they resolve now, expected times, seeds."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.context import CommandContext
from experiments.history.store import DEFAULT_NAME
from experiments.hunt.hunting import require_huntable, start_of
from experiments.nights.choice import Choice, Shard, choose, narrowed
from experiments.nights.file import SuiteFile, load_suite
from experiments.nights.hunts import hunt_request
from experiments.nights.matrix import SEEDS, Axes, Cell, Facts, expand
from experiments.nights.night import Night, NightDir, nights, turns_of
from experiments.nights.retention import apply, removals
from experiments.nights.sticky import evidence, open_seeds
from experiments.plans import ScenarioRequest, read_scenario, resolve
from experiments.preflight import preflight
from experiments.resolved import Resolved, RoundOptions
from experiments.versions import (
    Chosen,
    Releases,
    choose_clients,
    is_open,
    other_brokers,
    other_clients,
    released_brokers,
)
from experiments.versions import choose as choose_version
from harness.clusters import pinned as pinned_brokers
from harness.clusters import spec_of
from harness.errors import BrokerstormError, FailOn, UsageError
from harness.rundir import read_json, write_json
from harness.rundir import resolved as resolved_path
from harness.scenario.file import variants
from harness.systems import SYSTEMS
from harness.toolchains.cache import cache_folder
from harness.toolchains.own_builds import is_own
from harness.validation import Location, dotted, shown
from harness.workers import known_workers, load_worker, pinned

if TYPE_CHECKING:
    from experiments.history.rounds import Round
    from experiments.history.store import History
    from harness.contracts.plan import Plan
    from harness.need import Need


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRequest:
    """The command line of `suite plan` and `suite run`; None = as the suite says."""

    suite: str
    only: tuple[str, ...] = ()
    shard: Shard | None = None
    budget_s: float | None = None
    seed: int | None = None
    fail_on: FailOn | None = None
    offline: bool = False
    runtime: str = "auto"
    history: Path | None = None


@dataclass(frozen=True, slots=True)
class PlannedNight:
    """A night before it has a folder."""

    file: SuiteFile
    choice: Choice
    night: Night

    def resolved(self) -> list[Resolved]:
        """One round of each variant of every cell, together for the cells of each runtime."""
        plans: dict[str, list[Plan]] = {}
        for cell in self.choice.cells:
            plans.setdefault(cell.runtime, []).extend(resolve_cell(cell, seed=0).plans)
        return [
            Resolved(plans=each, options=RoundOptions(runtime=runtime, offline=self.night.offline))
            for runtime, each in plans.items()
        ]


def resolve_cell(cell: Cell, *, seed: int) -> Resolved:
    """One round of each variant of a cell; of a known bug, of the variants of its pair.

    Raises:
        ScenarioError, UsageError: it cannot be used.
    """
    asked = ScenarioRequest(scenario=cell.scenario, overrides=cell.overrides, seed=seed, rounds=1)
    resolved = resolve(asked, RoundOptions(runtime=cell.runtime))
    arms = [plan for plan in resolved.plans if not cell.pair or plan.variant in cell.variants]
    return replace(resolved, plans=arms)


def check_night(planned: PlannedNight, run_dir: Path) -> tuple[list[Need], list[str]]:
    """Check what the runs of a night check before they start, apart from options of clients.

    Returns:
        Missing tools and clients, each once, and the warnings of all cells.

    Raises:
        ScenarioError, UsageError: a cell could not be started on any machine.
    """
    missing: list[Need] = []
    warnings: list[str] = []
    for resolved in planned.resolved():
        found = preflight(resolved, run_dir, ask_clients=False)
        missing += [check for check in found.missing if not check.passing]
        warnings += found.warnings
    return list(dict.fromkeys(missing)), list(dict.fromkeys(warnings))


def plan_night(
    context: CommandContext,
    request: SuiteRequest,
    history: History | None,
    path: Path,
    tell: Callable[[str], None],
) -> PlannedNight:
    """Everything that is decided before anything is started.

    Args:
        history: of earlier nights; None = there is none yet.
        path: where it is, or will be.

    Raises:
        UsageError: the suite, or something it names, cannot be used; nothing is left to run.
        EnvironmentNotReady: an open version, and its package index does not answer.
    """
    file = load_suite(request.suite)
    suite = file.suite
    every = [_on(cell, request.runtime) for cell in expand(file, axes_of(request.offline, tell))]
    cells = narrowed(every, request.only, request.shard)
    _refuse_hunts(context, request, file, cells)
    sticky = {
        cell.id: found
        for cell in cells
        if cell.hunt is None and (found := _sticky(history, suite.name, cell))
    }
    seed = request.seed if request.seed is not None else secrets.randbelow(SEEDS)
    budget_s = suite.budget if request.budget_s is None else request.budget_s

    def rounds(cell: Cell) -> int:
        return len(set(cell.fresh_seeds(seed)) | set(sticky.get(cell.id, [])))

    turn_s = {cell.id: _turn_s(history, suite.name, cell) for cell in cells}
    choice = choose(cells, budget_s, lambda cell: turn_s[cell.id] * rounds(cell))
    shard = "" if request.shard is None else f"{request.shard.number}/{request.shard.of}"
    night = Night(
        suite=suite.name,
        about=suite.about,
        file=str(resolved_path(file.path)),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=seed,
        budget_s=budget_s,
        fail_on=request.fail_on or suite.fail_on,
        keep=suite.keep.rule() if suite.keep else None,
        shard=shard,
        offline=request.offline,
        command=context.repeat_command(
            "suite run", request, file=request.suite, seed=seed, shard=shard
        ),
        history=str(path),
        cells=list(choice.cells),
        turns=turns_of(choice.cells, seed, sticky, turn_s),
        left_out={cell.id: _over_budget(choice, cell) for cell in choice.left_out},
    )
    return PlannedNight(file, choice, night)


def _refuse_hunts(
    context: CommandContext, request: SuiteRequest, file: SuiteFile, cells: Sequence[Cell]
) -> None:
    """Raises: UsageError: a hunt of the suite could not begin."""
    for cell in cells:
        if cell.hunt is None:
            continue
        asked = hunt_request(cell, cell.hunt, context.run_dir, seed=0, offline=request.offline)
        try:
            require_huntable(context, asked)
        except BrokerstormError as error:
            raise UsageError(f"{file.path}: {cell.id}: {error}", hint=error.hint) from error


def keep_scenarios(night_dir: NightDir, night: Night) -> None:
    """Keep the scenario of each cell as it is now; `refuse_edited` compares with it.

    Raises:
        ScenarioError: it cannot be used.
    """
    write_json(night_dir.scenarios, {cell.id: _keys_of(cell) for cell in night.cells})


def refuse_edited(night_dir: NightDir, night: Night) -> None:
    """Refuse to continue a night with a scenario that is another one than when the night began.

    Raises:
        UsageError: it was edited; names the keys that changed.
    """
    if not night_dir.scenarios.exists():  # begun by an earlier version
        return
    known = read_json(night_dir.scenarios)
    done = night_dir.ended()
    left = {turn.cell for turn in night.turns if turn.folder not in done}
    for cell in night.cells:
        before = known.get(cell.id)
        if cell.id not in left or not isinstance(before, dict):
            continue
        now = _keys_of(cell)
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if keys:
            changed = [
                f"{key}: {before.get(key, 'not set')} -> {now.get(key, 'not set')}" for key in keys
            ]
            more = f"; {len(keys) - _SHOWN_KEYS} more keys" if len(keys) > _SHOWN_KEYS else ""
            again = f"`brokerstorm suite run {shlex.quote(night.file)}`"
            raise UsageError(
                f"{cell.scenario} was edited since {night_dir.id} began: "
                f"{'; '.join(changed[:_SHOWN_KEYS])}{more}",
                hint=f"{again} starts a new night; or undo the edit",
            )


#: Changed keys that an error names.
_SHOWN_KEYS = 5


def _keys_of(cell: Cell) -> dict[str, str]:
    """Dotted key -> value, of everything that the scenario of a cell sets."""
    scenario = read_scenario(cell.scenario, cell.overrides)
    found: dict[str, str] = {}

    def visit(location: Location, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, each in value.items():
                visit((*location, str(key)), each)
        elif isinstance(value, list) and value:
            for number, each in enumerate(value):
                visit((*location, number), each)
        else:
            found[dotted(location)] = shown(value)

    visit((), scenario.model_dump(mode="json", exclude_unset=True))
    return found


def _on(cell: Cell, runtime: str) -> Cell:
    """The cell on the runtime of the command line, if the suite leaves that open."""
    return replace(cell, runtime=runtime) if cell.runtime == "auto" else cell


def _over_budget(choice: Choice, cell: Cell) -> str:
    return f"would not fit the budget: about {choice.expected_s[cell.id]:.0f} s"


def _sticky(history: History | None, suite: str, cell: Cell) -> list[int]:
    if history is None:
        return []
    names = cell.history_cells
    return open_seeds(
        [row for name in names for row in history.last_rounds(name, _NIGHTS, suite=suite)]
    )


#: Nights that are looked back for seeds that were red.
_NIGHTS = 60


def _turn_s(history: History | None, suite: str, cell: Cell) -> float:
    """Expected time of one turn: of each variant what it took, else the guess of the plan."""
    if history is None or cell.hunt is not None:
        return cell.guess_s * len(cell.history_cells)
    known = (history.expected_s(name, suite=suite) for name in cell.history_cells)
    return sum(cell.guess_s if each is None else each for each in known)


def tidy(run_dir: Path, night: Night, history: History) -> Iterator[str]:
    """Apply what the suite keeps of its nights; yields a line for everything that was removed."""
    if night.keep is None:
        return
    by_cell: dict[str, list[Round]] = {}
    for row in history.rounds(night.suite):
        by_cell.setdefault(row.cell, []).append(row)
    protected = [Path(folder) for rows in by_cell.values() for folder in evidence(rows)]
    found = list(nights(run_dir, night.suite))
    yield from apply(removals(found, night.keep, protected, datetime.now(UTC)))


# ----- what a matrix asks -------------------------------------------------------------------------


def axes_of(offline: bool, tell: Callable[[str], None]) -> Axes:
    """Scenarios as they are read, and versions as their package indexes have them now."""
    releases = Releases(cache_folder() / "releases", offline=offline, tell=tell)

    def client(library: str, asked: str) -> list[Chosen]:
        worker = load_worker(library)
        if is_own(asked):
            return [Chosen(asked, pinned(worker, asked), asked)]
        if is_open(asked):
            return choose_clients(releases, worker, asked)
        _refuse_unknown(library, asked, lambda: other_clients(releases, worker, asked), tell)
        return [Chosen(asked, asked, asked)]

    def broker(system: str, asked: str) -> list[Chosen]:
        if is_own(asked):
            return [Chosen(asked, pinned_brokers(system, asked), asked)]
        if is_open(asked):
            listed = releases.releases_of(f"{system} brokers", lambda: released_brokers(system))
            return choose_version(asked, SYSTEMS[system].version, listed)
        spec_of(system, asked)  # refuses what is not a version
        _refuse_unknown(
            f"{system} brokers", asked, lambda: other_brokers(releases, system, asked), tell
        )
        return [Chosen(asked, asked, asked)]

    return Axes(
        facts=cache(facts_of),
        client=client,
        broker=broker,
        start=lambda library: start_of(load_worker(library).system),
        clients=(*known_workers(),),
        systems=(*SYSTEMS,),
    )


def _refuse_unknown(
    name: str, asked: str, others: Callable[[], str], tell: Callable[[str], None]
) -> None:
    """Refuse a version that does not exist; say so if the package index could not be asked.

    Raises:
        UsageError: the version does not exist.
    """
    try:
        hint = others()
    except BrokerstormError as error:
        tell(f"whether there is {name} {asked} was not checked: {error}")
        return
    if hint:
        raise UsageError(f"there is no release {asked} of {name}", hint=hint)


def facts_of(scenario: str, overrides: tuple[str, ...]) -> Facts:
    """Return the part of a scenario that a matrix needs.

    Raises:
        ScenarioError: it cannot be used.
    """
    read = read_scenario(scenario, overrides)
    merged = [each for _, each, _ in variants(read)]
    clients: dict[str, list[str]] = {}
    for each in merged:
        for side in ("producers", "consumers"):
            for name, spec in getattr(each.load, side).items():
                clients.setdefault(spec.client, []).append(f"load.{side}.{name}")
    first = merged[0].cluster
    pairs = read.bug.pairs if read.bug else {}
    return Facts(
        system=read.system,
        version=first.version or _default_version(read.system),
        cluster=f"{first.topology} {json.dumps(first.config, sort_keys=True)}",
        clients={library: tuple(dict.fromkeys(keys)) for library, keys in clients.items()},
        pairs={name: (pair.affected, pair.fixed) for name, pair in pairs.items()},
        variants=tuple(read.variants),
        round_s=sum(each.load.warm_up + each.load.duration for each in merged) / len(merged),
    )


def _default_version(system: str) -> str:
    return SYSTEMS[system].version


# ----- the history --------------------------------------------------------------------------------


def history_path(context: CommandContext, given: Path | None) -> Path:
    """The history of a folder of runs, unless another is named."""
    return given or context.run_dir / DEFAULT_NAME
