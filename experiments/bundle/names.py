"""Declares which files of a run a bundle may hold.

A bundle may come from a stranger. A file is taken only where a reader of ours looks for it: no page
(pages are drawn here), no ledger or process file that `clean` would act on, no address that results
would be written to (`origin.json`), no request that ``--resume`` would play.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from harness.run_ids import is_run_id
from harness.rundir import LATEST, RunDir

#: Below the folder of runs: bundles that a command was given as a file.
OPENED: Final = "bundles"
_RUN: Final = RunDir(Path())
_DOCUMENTS: Final = frozenset(
    path.as_posix()
    for path in (
        *(
            _RUN.scenario,
            _RUN.plan,
            _RUN.manifest,
            _RUN.campaign,
            _RUN.result,
            _RUN.left_out,
            _RUN.bundle,
        ),
        *(_RUN.faults, _RUN.events, _RUN.metrics, _RUN.log_transactions),
        *(_RUN.raw_leaderships, _RUN.raw_committed_offsets, _RUN.raw_replicas),
        *(_RUN.names, _RUN.log_bounds, _RUN.leaderships, _RUN.committed_offsets, _RUN.replicas),
        *(_RUN.transactions, _RUN.seal_report),
        *map(Path, ("issue.md", "rounds.jsonl", "rate.json")),
        # Answers of `bisect` and `shrink`: the rounds below their folder say nothing of them.
        *map(Path, ("bisect.json", "git-bisect.log", "smallest.yaml")),
    )
)
#: A text file of a worker or a node; logs that were rotated have a number or a date at their end.
_TEXT: Final = (
    r"[\w.-]+\.(?:json|jsonl|log|txt|properties|conf|cfg|flags|yaml|yml|toml)(?:\.[\d-]+)?"
)
_PART: Final = r"[\w.-]+"
_OTHERS: Final = re.compile(
    rf"sealed/\w+/bucket=\d+/part-\d+\.parquet|stacks/{_PART}\.txt|raw/{_PART}/{_TEXT}"
    rf"|cluster/{_PART}/(?:conf|logs)/{_TEXT}|cluster/{_PART}/{_PART}\.log",
    re.ASCII,
)
#: What a run writes and a bundle does not need: pages that are drawn again, raw segments (sealed,
#: they are in it), locks, and what only the machine of the run can act on.
_STAYS: Final = re.compile(
    rf"report\.html|junit\.xml|origin\.json|experiment\.(?:json|lock)|sealed/(?:\.lock|parts\.jsonl)"
    rf"|raw/{_PART}/{_PART}\.seg|cluster/{_PART}\.(?:json|lock)|cluster/{_PART}/(?:pid\.json|version)"
    rf"|so-far/.*",
    re.ASCII,
)


def is_of_a_bundle(path: str) -> bool:
    """Whether a bundle may hold a file of this path below the folder of a run, or of a campaign:
    there, also below the folder of a round."""
    if _is_of_a_run(path):
        return True
    folder, _, rest = path.partition("/")
    return is_run_id(folder) and _is_of_a_run(rest)


def stays_with_the_run(path: str) -> bool:
    """Whether a file of this path is left out of every bundle on purpose, so that no bundle has to
    say it."""
    folder, _, rest = path.partition("/")
    return _STAYS.fullmatch(path) is not None or (
        is_run_id(folder) and _STAYS.fullmatch(rest) is not None
    )


def _is_of_a_run(path: str) -> bool:
    return path in _DOCUMENTS or _OTHERS.fullmatch(path) is not None


def is_name_of_a_run(folder: str) -> bool:
    """Whether the folder of a bundle can become a run of its name: it is a run id, and not one of
    the names that the folder of runs has for itself."""
    return is_run_id(folder) and folder not in (LATEST, OPENED) and ".sqlite" not in folder
