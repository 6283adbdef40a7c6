"""Names that a shell completes, read from files: nothing that a run needs is loaded for them.

Each function is a ``shell_complete`` of click: (context, parameter, what was typed) -> what it may
become.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

import harness
from commands.console import run_dir_of
from harness.rundir import LATEST, NIGHT_FILE, RunDir, all_runs
from harness.scenario.bundled import SCHEMA_FILE, bundled_bugs, bundled_scenarios

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]
#: Name -> what it is, in a line.
Names = Mapping[str, str]

_ABOUT = re.compile(r"^about: *(.+)$", re.MULTILINE)
_FILE_ENDINGS = (".yaml", ".yml")


def _completes(
    names: Callable[[click.Context, str], Names], *, otherwise: str = "plain"
) -> Complete:
    """Complete with the ``names`` that begin as typed; without any, with files (``file``), folders
    (``dir``) or nothing (``plain``)."""

    @wraps(names)
    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> Items:
        try:
            found = {
                name: text for name, text in names(context, typed).items() if name.startswith(typed)
            }
        except Exception:  # noqa: BLE001 - a broken file must not print into the line that is being typed
            found = {}
        if not found and otherwise != "plain":
            return [CompletionItem(typed, type=otherwise)]
        return [CompletionItem(name, help=_without_commas(text)) for name, text in found.items()]

    return complete


def _without_commas(text: str) -> str | None:
    """Fish cuts an explanation at its first comma."""
    return re.sub(r"(?<=\d),(?=\d)", "", text).replace(",", ";") or None


def _abouts(files: Mapping[str, Path]) -> Names:
    found = {name: _ABOUT.search(path.read_text()) for name, path in files.items()}
    return {name: match[1] if match else "" for name, match in found.items()}


def _own_files(typed: str) -> Names:
    """Scenario files of the user in this folder; shells themselves complete other files."""
    here = (path for path in Path().iterdir() if path.suffix in _FILE_ENDINGS and path.is_file())
    return {} if "/" in typed else {path.name: "" for path in sorted(here)}


def _scenarios(context: click.Context, typed: str) -> Names:
    return {**_abouts(bundled_scenarios()), **_own_files(typed)}


def _bugs(context: click.Context, typed: str) -> Names:
    return {**_abouts(bundled_bugs()), **_own_files(typed)}


def _ready(context: click.Context, typed: str) -> Names:
    return _abouts({**bundled_scenarios(), **bundled_bugs()})


def _variants(context: click.Context, typed: str) -> Names:
    return _below(context, "variants")


def _pairs(context: click.Context, typed: str) -> Names:
    return _below(context, "bug", "pairs")


def _below(context: click.Context, *keys: str) -> Names:
    """Names and lines below a key of the scenario that the command line names."""
    import yaml

    # An option that still lacks its value ends click's parsing: then the words before it have no
    # names yet.
    given = (context.params.get("scenario"), context.params.get("bug"), *context.args)
    name = next(word for word in given if word)
    path = {**bundled_scenarios(), **bundled_bugs()}.get(name, Path(name))
    found: Any = yaml.safe_load(path.read_text())
    for key in keys:
        found = found[key]
    return {str(name): str(entry.get("about", "")) for name, entry in found.items()}


def _runs(context: click.Context, typed: str) -> Names:
    """Ids and *latest*; after a slash the runs that one holds."""
    base = run_dir_of(context)
    head, slash, _ = typed.rpartition("/")
    if not slash:
        return dict.fromkeys([LATEST, *(run.run_id for run in all_runs(base))], "")
    folder = base / head if (base / head).is_dir() else Path(head)
    return {f"{head}/{run.run_id}": "" for run in RunDir(folder).rounds()}


def _nights(context: click.Context, typed: str) -> Names:
    found = sorted(run_dir_of(context).glob(f"*/{NIGHT_FILE}"), reverse=True)
    return {path.parent.name: "" for path in found if not path.parent.is_symlink()}


def _clusters(context: click.Context, typed: str) -> Names:
    """Runs whose cluster is up."""
    return {
        state.parts[-3]: "" for state in sorted(run_dir_of(context).glob("*/cluster/cluster.json"))
    }


def _classes(context: click.Context, typed: str) -> Names:
    from analysis.classes import CLASSES

    return {name: each.sentence for name, each in CLASSES.items()}


def _faults(context: click.Context, typed: str) -> Names:
    """From the published schema: the kinds themselves take three times as long to load."""
    schema = json.loads(SCHEMA_FILE.read_text())
    kind = schema["properties"]["faults"]["items"]["properties"]["fault"]
    if "$ref" in kind:  # keys that several places share are written once
        kind = schema["$defs"][kind["$ref"].rpartition("/")[2]]
    return dict(zip(kind["enum"], kind["enumDescriptions"], strict=True))


def _suites(context: click.Context, typed: str) -> Names:
    files = {path.stem: path for path in (SCHEMA_FILE.parent / "suites").glob("*.yaml")}
    return {**_abouts(files), **_own_files(typed)}


def _workers(context: click.Context, typed: str) -> Names:
    """Return the workers that come with brokerstorm; a custom one is named by its folder."""
    import tomllib

    files = sorted(Path(harness.__file__).parent.parent.glob("workers/*/worker.toml"))
    found = [tomllib.loads(path.read_text()) for path in files]
    return {str(worker["library"]): str(worker["system"]) for worker in found}


scenarios = _completes(_scenarios, otherwise="file")
bugs = _completes(_bugs, otherwise="file")
ready = _completes(_ready)
variants = _completes(_variants)
pairs = _completes(_pairs)
suites = _completes(_suites, otherwise="file")
runs = _completes(_runs, otherwise="dir")
nights = _completes(_nights)
clusters = _completes(_clusters)
classes = _completes(_classes)
faults = _completes(_faults)
workers = _completes(_workers, otherwise="dir")
