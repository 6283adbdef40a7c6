"""Writes what a hunt found: the scenario, the smallest one, and a bundle for a report; finds the
known bugs that look like it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from experiments.bundle.archive import SUFFIX
from experiments.bundle.making import make_bundle
from experiments.hunt.search import REPEATS, Discovery
from experiments.plans import read_scenario
from experiments.shrink.document import difference, smallest_text
from experiments.shrink.words import file_text
from harness.errors import BrokerstormError, Interrupted
from harness.rundir import Document, RunDir, write_text
from harness.scenario.bundled import bundled_bugs
from harness.scenario.file import variants

if TYPE_CHECKING:
    from pathlib import Path

#: Variants of a scenario that was found.
_AFFECTED, _REFERENCE = "affected", "reference"
#: Bytes of a bundle at most: what a bug tracker takes.
_MOST_BYTES: Final = 20_000_000


def found_file(root: RunDir, found: Discovery) -> Path:
    """Return the scenario file of something that was found."""
    return root.root / f"found-{found.number}.yaml"


def smallest_file(root: RunDir, found: Discovery) -> Path:
    """Return the file of the smallest scenario that shows it; it need not exist."""
    return root.root / f"smallest-{found.number}.yaml"


def bundle_file(root: RunDir, found: Discovery) -> Path:
    """Return the bundle of its first round; it need not exist."""
    return root.root / f"found-{found.number}{SUFFIX}"


def differs_from_reference(found: Discovery) -> bool:
    """Whether each round of the client broke a promise and no round of the reference client did."""
    rounds = (found.shown, len(found.rounds), found.reference_judged)
    is_certain = rounds == (REPEATS, REPEATS, REPEATS) and not found.reference_shown
    return found.is_violation and is_certain  # a bug file is about a class


def write_found(root: RunDir, found: Discovery, command: str) -> None:
    """Write the scenario that showed something, and the smallest one if there is one.

    A scenario that the reference client does not show it with is a known bug of the user's own:
    `brokerstorm repro` plays both sides.

    Args:
        command: repeats the hunt.
    """
    path = found_file(root, found)
    changes = ", ".join(found.entry.changes) or "as it is"
    plays = f"run {path.name} --seed {found.entry.seed}"
    data = {**found.entry.scenario, "name": f"{found.entry.scenario['name']}-{found.number}"}
    if differs_from_reference(found):
        assert found.reference is not None
        override = difference(found.entry.scenario, found.reference)
        data["variants"] = {
            _AFFECTED: {"expect": found.what[0]},
            _REFERENCE: {"override": override},
        }
        pair = {"affected": _AFFECTED, "fixed": _REFERENCE}
        data["bug"] = {**_bug(found), "pairs": {_REFERENCE: pair}}
        plays = f"repro {path.name} --quick"
    head = [
        f"Found by a hunt: {', '.join(found.what)}",
        f"in {found.shown} of {len(found.rounds)} rounds: {', '.join(found.rounds)}",
        f"changed last: {changes}",
        f"  brokerstorm {plays}",
        "",
    ]
    write_text(path, file_text(data, head, {}))
    if found.search is not None and found.search.applied:
        fixed = found.reference if differs_from_reference(found) else None
        day = time.strftime("%Y-%m-%d")
        text = smallest_text(found.search, command=command, day=day, fixed=fixed, bug=_bug(found))
        write_text(smallest_file(root, found), text)


def _bug(found: Discovery) -> Document:
    """Return the key ``bug`` without pairs."""
    exposure = {"exposure": {"counter": "faults_effective", "floor": 1}}
    return {"report": "none", **(exposure if found.entry.scenario.get("faults") else {})}


def bundle_found(root: RunDir, found: Discovery) -> str:
    """Write the bundle of its first round; returns why not, or an empty text.

    Raises:
        Interrupted: a signal; nothing is left of the bundle.
    """
    target = bundle_file(root, found)
    for part in root.root.glob(f".{target.name}.part-*"):  # of a hunt that was killed
        with suppress(OSError):
            part.unlink()
    try:
        first = RunDir(root.root / found.rounds[0])
        make_bundle(first, target, _MOST_BYTES, os.environ)
    except Interrupted:
        raise
    except BrokerstormError as error:
        return f"no bundle of {found.rounds[0]}: {' '.join(str(error).split())}"
    return ""


def known_bugs(found: Discovery) -> Sequence[str]:
    """Return the known bugs that have the clients and the class of a discovery."""
    return [*_known_bugs(found)] if found.is_violation else []


def _known_bugs(found: Discovery) -> Iterator[str]:
    load = found.entry.scenario["load"]
    clients = {
        spec["client"]
        for side in ("producers", "consumers")
        for spec in load.get(side, {}).values()
    }
    for name, path in bundled_bugs().items():
        scenario = read_scenario(str(path))
        for _, merged, expect in variants(scenario):
            sides = (merged.load.producers, merged.load.consumers)
            if expect in found.what and clients & {
                spec.client for side in sides for spec in side.values()
            }:
                yield name
                break
