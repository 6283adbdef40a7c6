"""Rows of `list`: scenarios, faults, workers, systems, runs, classes. One function per kind; plain
JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from commands.console import Settings, write
from commands.tables import paragraph, table
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.rundir import RunDir

Row = dict[str, Any]
#: Columns shown to people, by kind.
COLUMNS = {
    "scenarios": ("name", "variants", "about"),
    "bugs": ("name", "library", "pairs", "class", "shown", "first", "about"),
    "suites": ("name", "budget", "about"),
    "faults": ("kind", "keys", "needs", "about"),
    "workers": ("name", "version", "roles", "about"),
    "systems": ("name", "version", "topologies", "client"),
    "runs": ("run_id", "scenario", "status", "verdict"),
    "nights": ("night", "suite", "status", "verdict"),
    "classes": ("class", "breaks", "sentence"),
}
_NEXT = {
    "scenarios": "`brokerstorm plan NAME` shows what one does; `brokerstorm run NAME` does it",
    "bugs": "`brokerstorm repro NAME` compares the affected version with the fixed one; shown: rounds "
    "with the bug, affected and fixed; first: when it first showed, after the start of the load",
    "suites": "`brokerstorm suite plan NAME` shows the cells; `brokerstorm suite run NAME` runs them",
    "faults": "every step also accepts at, every, jitter, from, until, storm: see docs/reference/faults.md; "
    "`brokerstorm up --needs NEED` starts a cluster with what a fault needs, which can depend on its `link`",
    "workers": "docs/worker-protocol.md says how to add one",
    "systems": "docs/howto/choose-the-brokers.md says which versions were tried",
    "runs": "`brokerstorm show RUN` shows one again",
    "nights": "`brokerstorm list runs NIGHT` has the runs of one; its page is report.html in its folder",
    "classes": "`brokerstorm explain CLASS` says more",
}


def scenarios(settings: Settings) -> list[Row]:
    """Return a row for each ready scenario."""
    from harness.scenario.bundled import bundled_scenarios
    from harness.scenario.file import load_scenario

    rows = []
    for name, path in bundled_scenarios().items():
        loaded = load_scenario(path)
        rows.append(
            {
                "name": name,
                "about": loaded.about,
                "variants": list(loaded.variants),
                "file": str(path),
            }
        )
    return rows


def bugs(settings: Settings) -> list[Row]:
    """Return a row for each known bug."""
    from experiments.repro.figures import figures
    from experiments.repro.request import libraries
    from harness.scenario.bundled import bundled_bugs
    from harness.scenario.file import load_scenario

    rows, known = [], figures()
    for name, path in bundled_bugs().items():
        loaded = load_scenario(path)
        if loaded.bug is None:
            continue
        pairs = loaded.bug.pairs
        seen = known.get(name, {})
        best = seen.get(next(iter(pairs)))
        rows.append(
            {
                "name": name,
                "about": loaded.about,
                "library": sorted(
                    {of for p in pairs.values() for of in libraries(loaded, p.affected, p.fixed)}
                ),
                "pairs": list(pairs),
                "class": loaded.variants[next(iter(pairs.values())).affected].expect,
                "shown": ", ".join(best.counted) if best else "",
                "first": f"{best.first_s[0]:g} s" if best else "",
                "figures": {pair: one.model_dump(mode="json") for pair, one in seen.items()},
                "report": loaded.bug.report,
                "system": loaded.system,
                "file": str(path),
            }
        )
    return rows


def suites(settings: Settings) -> list[Row]:
    """Return a row for each ready suite."""
    from experiments.nights.file import bundled_suites, load_suite

    rows = []
    for name, path in bundled_suites().items():
        loaded = load_suite(path).suite
        budget = "" if loaded.budget is None else f"{loaded.budget / 60:g} min"
        rows.append({"name": name, "budget": budget, "about": loaded.about, "file": str(path)})
    return rows


def faults(settings: Settings) -> list[Row]:
    """Return a row for each kind of fault."""
    from faults.schedule.reference import kinds

    return [asdict(each) for each in kinds()]


def workers(settings: Settings) -> list[Row]:
    """Return a row for each worker."""
    from harness.workers import load_worker, worker_names

    found = [load_worker(name) for name in worker_names()]
    return [
        {
            "name": worker.library,
            "version": worker.default_version,
            "versions": worker.versions,
            "roles": list(worker.roles),
            "language": worker.language,
            "about": worker.about,
        }
        for worker in found
    ]


def systems(settings: Settings) -> list[Row]:
    """Return a row for each system."""
    from harness.systems import SYSTEMS

    return [
        {
            "name": one.name,
            "version": one.version,
            "topologies": list(one.topologies),
            "client": one.client,
        }
        for one in SYSTEMS.values()
    ]


def runs(settings: Settings) -> list[Row]:
    """Return a row for each run, the latest first."""
    from harness.rundir import all_runs

    rows = [_run(run) for run in all_runs(settings.run_dir)]
    if any(row["status"] == "running" for row in rows):
        from harness.clusters.layout import addresses

        alive = {claim.run_id for claim in addresses.claims() if claim.owner.is_alive()}
        for row in rows:
            if row["status"] == "running" and row["run_id"] not in alive:
                row["status"] = "killed"  # its harness had no time to say so
    return rows


def _run(run: RunDir) -> Row:
    """One line about a run or a campaign; a damaged one is listed too, as such."""
    from harness.rundir import read_json

    row: Row = {
        "run_id": run.run_id,
        "path": str(run.root),
        "scenario": "",
        "status": "",
        "verdict": "",
    }
    try:
        if run.campaign.exists():
            document = read_json(run.campaign)
            variants = document.get("variants", [])
            row["scenario"] = document.get("scenario", "")
            row["status"] = "complete" if variants else "unfinished"
            row["verdict"] = ", ".join(f"{v['name'] or 'runs'} {v['outcome']}" for v in variants)
            if variants and document.get("bug"):
                row["verdict"] = document["reproduction"]["outcome"]
            return row
        row["status"] = read_json(run.manifest)["status"]
        if run.plan.exists():
            row["scenario"] = read_json(run.plan)["scenario"]
        if run.result.exists():
            row["verdict"] = read_json(run.result)["verdict"]
    except (UsageError, KeyError, TypeError, ValueError, AttributeError) as error:
        row["status"] = f"unreadable: {error}"
    return row


def nights(settings: Settings) -> list[Row]:
    """Return a row for each nightly run, the latest first."""
    from experiments.nights.night import nights as every_night
    from harness.rundir import read_json

    rows = []
    for night in every_night(settings.run_dir):
        row: Row = {
            "night": night.id,
            "path": str(night.root),
            "suite": read_json(night.plan).get("suite", ""),
        }
        if night.is_over:
            document = read_json(night.document)
            verdict, counts = document.get("verdict", "unknown"), document.get("counts", "")
            rows.append(
                {
                    **row,
                    "status": "complete",
                    "verdict": f"{verdict}: {counts}" if counts else verdict,
                }
            )
        else:
            rows.append(
                {**row, "status": "unfinished", "verdict": f"{len(night.ended())} finished"}
            )
    return rows


def runs_of(settings: Settings, night: str) -> list[Row]:
    """Runs of a night in its order, also those that are to come; of a URL, what is stored there.

    Raises:
        UsageError: the night does not exist.
    """
    from experiments.nights.night import NightDir
    from experiments.nights.night import nights as every_night
    from harness.rundir import is_url

    if is_url(night):
        from harness.stored import Folder, stored_runs

        return [
            {**_run(run), "path": (Folder(night) / run.run_id).url} for run in stored_runs(night)
        ]
    found = NightDir(settings.run_dir / night)
    if not found.plan.exists():
        have = ", ".join(each.id for each in list(every_night(settings.run_dir))[:5])
        raise UsageError(
            f"no night {night!r} in {settings.run_dir}",
            hint=f"nights there: {have or 'none yet'}. `brokerstorm list nights` shows all",
        )
    state, every = found.load(), found.ended()
    rows = []
    for turn in state.turns:
        ended = every.get(turn.folder)
        folder = found.folder(ended.folder if ended else turn.folder)
        row = {"cell": turn.cell, "seed": turn.seed, "scenario": state.cell(turn).scenario}
        if folder.manifest.exists() or folder.campaign.exists():
            row |= _run(folder)
        elif ended is not None:
            row |= {"status": "removed", "verdict": ended.verdict}
        else:
            row |= {"status": "not run" if found.is_over else "to come", "verdict": ""}
        if ended is not None and ended.verdict == "broken":
            row |= {"status": "broken", "verdict": f"exit code {ended.exit_code}"}
        rows.append({**row, "run_id": f"{found.id}/{folder.run_id}", "path": str(folder.root)})
    return rows


def classes(settings: Settings) -> list[Row]:
    """Return a row for each anomaly class."""
    from analysis.classes import CLASSES

    return [
        {
            "class": each.name,
            "rank": each.rank,
            "breaks": list(each.breaks),
            "sentence": each.sentence,
        }
        for each in CLASSES.values()
    ]


def show(kind: str, items: Sequence[Row], settings: Settings) -> None:
    """The rows for people."""
    columns = COLUMNS[kind]
    if not items:
        write(f"no {kind} yet" + (f" in {settings.run_dir}" if kind == "runs" else ""))
        return
    table([columns, *([_cell(item[column]) for column in columns] for item in items)])
    write("")
    paragraph(_NEXT[kind])


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(
            str(item["key"]) if isinstance(item, dict) else str(item) for item in value
        )
    return str(value)
