"""Reads the target of `shrink`: a scenario or a run -> one variant as plain data, its class, its
seed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.classes import CLASSES
from analysis.report.documents import read_result
from experiments.plans import read_plan, read_scenario
from experiments.shrink.reductions import pinned
from harness.contracts import read_document
from harness.contracts.rows import Manifest
from harness.errors import ScenarioError, UsageError, did_you_mean
from harness.rundir import Document, RunDir, find_run
from harness.scenario.file import find_scenario, variants
from harness.systems import SYSTEMS
from harness.workers import load_worker

if TYPE_CHECKING:
    from analysis.findings import Result
    from harness.contracts.plan import Plan
    from harness.scenario.model import Scenario

CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class ShrinkTarget:
    """The scenario that is made smaller.

    Attributes:
        scenario: one variant, merged.
        cls: the class that must stay; empty = the one that its first round shows.
        seed: of a run; None = of a scenario.
        rate_per_s: that a run measured and went at; 0 = as the scenario says.
        versions: of each client that named none, the one that a run used.
        witness: of a known bug, the text that a round must have, too.
        fixed: of a known bug, its fixed variant, merged; None = it has none.
        bug: of a known bug, the key ``bug`` for a smaller scenario, without pairs.
    """

    scenario: Scenario
    cls: str
    seed: int | None = None
    rate_per_s: int = 0
    versions: Mapping[str, str] | None = None
    witness: str = ""
    fixed: Scenario | None = None
    bug: Document = field(default_factory=dict)


def read_target(
    run_dir: Path, name: str, *, cls: str, variant: str, overrides: tuple[str, ...]
) -> ShrinkTarget:
    """Return what the user means: the name of a scenario or a known bug, a file, or a run.

    Raises:
        BrokerstormError: it is neither, or it is not clear which variant or class is meant.
    """
    if cls and cls not in CLASSES:
        raise UsageError(f"--class {cls} is not a class", hint=did_you_mean(cls, CLASSES))
    try:
        find_scenario(name)
    except ScenarioError as not_a_scenario:
        try:
            run = find_run(run_dir, name)
        except UsageError:
            hint = "`brokerstorm list scenarios`, `list bugs` and `list runs` show what there is"
            raise UsageError(f"neither a scenario nor a run: {not_a_scenario}", hint=hint) from None
        if overrides or variant:
            raise UsageError("--set and --variant are for a scenario; a run is as it was") from None
        return _of_run(run, cls)
    scenario = read_scenario(name, overrides)
    chosen, expect = _variant(scenario, variant)
    target = ShrinkTarget(
        _merged(scenario, chosen),
        cls or ("" if expect == CLEAN else expect),
        witness=_witness(scenario),
    )
    return _with_fixed(target, scenario, chosen)


def _with_fixed(target: ShrinkTarget, scenario: Scenario, affected: str) -> ShrinkTarget:
    """The target with the fixed variant of its pair."""
    if scenario.bug is None:
        return target
    pair = next((each for each in scenario.bug.pairs.values() if each.affected == affected), None)
    if pair is None:
        return target
    bug = scenario.bug.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"pairs"})
    if scenario.bug.exposure:
        bug["exposure"] = {**bug["exposure"], "floor": 1}  # a smaller scenario meets less
    return replace(target, fixed=_merged(scenario, pair.fixed), bug=bug)


def _variant(scenario: Scenario, wanted: str) -> tuple[str, str]:
    """Name and expected class of the variant: the affected one of a bug, the only one that shows a
    class."""
    known = {name: each.expect for name, each in scenario.variants.items()}
    if wanted:
        if wanted not in known:
            raise UsageError(
                f"{scenario.name} has no variant {wanted!r}", hint=did_you_mean(wanted, known)
            )
        return wanted, known[wanted]
    if scenario.bug is not None:
        affected = next(iter(scenario.bug.pairs.values())).affected
        return affected, known[affected]
    showing = [name for name, expect in known.items() if expect != CLEAN]
    if known and len(showing) != 1:
        raise UsageError(
            f"{scenario.name} has several variants: which one?",
            hint=f"--variant {' or '.join(known)}",
        )
    return (showing[0], known[showing[0]]) if showing else ("", CLEAN)


def _merged(scenario: Scenario, variant: str) -> Scenario:
    return next(merged for name, merged, _ in variants(scenario) if name == variant)


def _of_run(run: RunDir, cls: str) -> ShrinkTarget:
    """A run, with the scenario that its folder keeps and the settings that its command gives."""
    run, result = _judged(run, cls)
    plan, manifest = read_plan(run), read_document(run.manifest, Manifest)
    saved = next((each for each in (run, RunDir(run.root.parent)) if each.scenario.exists()), None)
    if saved is None:
        raise UsageError(
            f"{run.run_id} keeps no scenario: it repeats another run or was imported",
            hint="shrink the scenario, or the run that it repeats",
        )
    scenario = read_scenario(str(saved.scenario), (*_overrides(manifest.command), *_programs(plan)))
    merged = _merged(scenario, plan.variant)
    used = {worker.client: worker.client_version for worker in manifest.workers}
    rate = int(plan.rate_per_s) if plan.rate_choice else 0
    target = ShrinkTarget(
        merged, cls or _class_of(plan, result), plan.seed, rate, used, _witness(scenario)
    )
    return _with_fixed(target, scenario, plan.variant)


def _witness(scenario: Scenario) -> str:
    return scenario.bug.witness if scenario.bug else ""


def _judged(run: RunDir, cls: str) -> tuple[RunDir, Result]:
    """The run, or of several the first that shows the class, or the one that it was expected to
    show."""
    if not (rounds := run.rounds()):
        return run, read_result(run)
    for each in rounds:
        if not each.result.exists():
            continue
        wanted, result = cls or read_plan(each).expect, read_result(each)
        if wanted != CLEAN and wanted in _shown(result):
            return each, result
    raise UsageError(
        f"no round of {run.run_id} shows {cls or 'the class that it was expected to show'}"
    )


def _class_of(plan: Plan, result: Result) -> str:
    shown = _shown(result)
    if plan.expect in shown:
        return plan.expect
    if len(shown) != 1:
        found = ", ".join(shown) or "none"
        raise UsageError(
            f"{result.run_id} shows: {found}", hint="--class selects the class to keep"
        )
    return next(iter(shown))


def _shown(result: Result) -> list[str]:
    return [found.cls for found in (*result.violations(), *result.excused())]


def _overrides(command: str) -> tuple[str, ...]:
    words = shlex.split(command)
    return tuple(value for option, value in pairwise(words) if option == "--set")


def _programs(plan: Plan) -> tuple[str, ...]:
    """Where the programs of a run are, as settings: the folder of the run has its scenario only."""
    workers = [f"workers={json.dumps(plan.workers)}"] if plan.workers else []
    started = [each for each in plan.applications if each.folder]
    return (
        *workers,
        *(f"applications.{each.name}.start_in={json.dumps(each.folder)}" for each in started),
    )


def pinned_data(target: ShrinkTarget) -> Document:
    """The scenario with the versions that are used written into it, and a name of its own."""
    scenario, data = target.scenario, pinned(target.scenario)
    data["name"] = f"{scenario.name}-small"
    version = scenario.cluster.version or SYSTEMS[scenario.system].version
    data["cluster"] = {**data.get("cluster", {}), "version": version}
    for side in ("producers", "consumers"):
        for name, spec in getattr(scenario.load, side).items():
            used = (target.versions or {}).get(spec.client, "")
            default = load_worker(spec.client, scenario.worker_folders).default_version
            data["load"][side][name]["client_version"] = spec.client_version or used or default
    if target.rate_per_s:
        write_rate(data, target.rate_per_s)
    return data


def write_rate(data: Document, rate_per_s: int) -> None:
    """A rate that was measured; it is still no claim of the scenario."""
    data["load"]["rate"] = rate_per_s
    data["require"] = {**data.get("require", {}), "rate_ratio": 0.0}
