"""One night of a suite on disk: what is to be run, and how each turn ended.

runs/<id>/
  night.json               what is to be run: cells, seeds, versions; written before the first turn
  scenarios.json           every key of the scenario of each cell, as it was when the night began
  rounds.jsonl             how each turn ended that is finished
  <turn>/                  its run folder (of several variants: a campaign's)
  suite.json               the whole as one document; present = the night is over

A night that was killed can continue: a turn is finished or it is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from experiments.folders import kept
from experiments.nights.matrix import Cell
from experiments.nights.model import Keep
from harness.contracts import typed
from harness.errors import Exit, FailOn, UsageError
from harness.rundir import NIGHT_FILE, PathBelow, RunDir, read_json, write_json

SCHEMA_VERSION: Final = 1
Word = Literal["pass", "fail", "unknown", "broken"]
_NAME: Final = re.compile(r"\d{8}(?:[._-][A-Za-z0-9._-]*)?\Z")
_AGAIN: Final = "-again"
#: A turn that ends with one of these is run once more: it says nothing of clients and brokers.
BREAKS: Final = (Exit.ENVIRONMENT, Exit.NOT_HEALED, Exit.BUG)
_WORDS: Final[dict[int, Word]] = {Exit.PASS: "pass", Exit.FAIL: "fail", Exit.UNKNOWN: "unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A cell played with one seed: the unit that is finished or not.

    Attributes:
        number: from 1, within the cell.
        is_sticky: the seed of an earlier red round.
        expected_s: how long it is expected to take.
    """

    cell: str
    number: int
    seed: int
    folder: str
    is_sticky: bool = False
    expected_s: float = 0.0

    @property
    def key(self) -> str:
        """Return the key of what is run."""
        return f"{self.cell} seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a turn ended.

    Attributes:
        folder: of its last attempt, relative to the night's.
        verdict: pass, fail, unknown; broken: exit code 2, 4, 5 or 70.
        reasons: why it is not a pass, as far as the turn itself says.
        broken: what an attempt before the last one broke with; empty = there was one attempt.
        started, ended: wall clock, ISO 8601, UTC.
    """

    cell: str
    number: int
    seed: int
    is_sticky: bool
    folder: str
    verdict: Word
    exit_code: int
    reasons: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    started: str
    ended: str
    duration_s: float
    command: str = ""

    @property
    def name(self) -> str:
        """Return the folder of the turn."""
        return self.folder

    @property
    def key(self) -> str:
        """Return the cell and seed, which identify the turn."""
        return f"{self.cell} seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The plan of a night.

    Attributes:
        seed: decides the fresh seeds of every cell.
        shard: ``2/4``; empty = the whole suite.
        left_out: id of a cell that does not run -> why.
    """

    suite: str
    about: str
    file: str
    started: str
    seed: int
    budget_s: float | None
    fail_on: FailOn
    keep: Keep | None
    shard: str
    offline: bool
    command: str
    history: str
    cells: list[Cell]
    turns: list[Turn]
    left_out: dict[str, str]
    schema_version: int = SCHEMA_VERSION

    def cell(self, turn: Turn) -> Cell:
        """Return the cell of a turn."""
        return next(cell for cell in self.cells if cell.id == turn.cell)


@dataclass(frozen=True, slots=True)
class NightDir:
    """Paths of a night, and its state."""

    root: Path
    plan = PathBelow(NIGHT_FILE)
    document = PathBelow("suite.json")
    scenarios = PathBelow("scenarios.json")

    @property
    def id(self) -> str:
        """Return the id of the night: the name of its folder."""
        return self.root.name

    @property
    def run(self) -> RunDir:
        return RunDir(self.root)

    @property
    def is_over(self) -> bool:
        """Return whether the night has ended."""
        return self.document.exists()

    def folder(self, name: str) -> RunDir:
        """Return the folder of a turn."""
        return RunDir(self.root / name)

    def save(self, night: Night) -> None:
        """Say what is to be run, before any of it is."""
        write_json(self.plan, asdict(night))

    def load(self) -> Night:
        """Return the plan of the night.

        Raises:
            UsageError: no night, damaged, or of another version.
        """
        document = read_json(self.plan)
        version = document.get("schema_version")
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{self.plan}: schema_version is {version!r}, this version reads {SCHEMA_VERSION}"
            )
        return typed(document, Night, str(self.plan))

    def ended(self) -> dict[str, Ended]:
        """How turns ended, by their folder: of one that was played twice, the second time."""
        found: dict[str, Ended] = {}
        for each in kept(self.run, Ended):
            if each.broken or each.exit_code not in BREAKS:
                found[each.folder.removesuffix(_AGAIN)] = each
        return found


def again(folder: str) -> str:
    """The folder of the second attempt."""
    return f"{folder}{_AGAIN}"


def word_of(exit_code: int) -> Word:
    """The verdict that an exit code means."""
    return _WORDS.get(exit_code, "broken")


def nights(run_dir: Path, suite: str = "") -> Iterator[NightDir]:
    """Every night below a folder of runs, of one suite or of all, newest first."""
    if not run_dir.is_dir():
        return
    for path in sorted(run_dir.glob(f"*/{NIGHT_FILE}"), reverse=True):
        night = NightDir(path.parent)
        if path.parent.is_symlink():
            continue
        if not suite or read_json(path).get("suite") == suite:
            yield night


def night_named(run_dir: Path, name: str, last: str) -> NightDir:
    """The folder of a night whose name is given, so that several machines play the same one.

    Args:
        last: the last night that the history knows; empty = none.

    Raises:
        UsageError: the name does not sort after the nights before, or is taken here.
    """
    if not _NAME.match(name):
        raise UsageError(
            f"--night {name} must begin with the day, and have letters, digits, '.', '_' and '-' only",
            hint="nights sort by their names: 20261122, 20261122-2, 20261122-011700-nightly",
        )
    if name < last:
        raise UsageError(
            f"--night {name} would sort before {last}, the last night of the history",
            hint=f"choose a name that sorts after {last}",
        )
    try:
        (run_dir / name).mkdir(parents=True)
    except FileExistsError:
        raise UsageError(
            f"{run_dir / name} is there already",
            hint="--resume continues a night; or use another name",
        ) from None
    except OSError as error:
        raise UsageError(
            f"cannot write to the run folder {run_dir}: {error.strerror}",
            hint="--run-dir names another",
        ) from error
    return NightDir(run_dir / name)


def unfinished(run_dir: Path, suite: str) -> NightDir:
    """The newest night of a suite, which must be one that was cut short.

    Raises:
        UsageError: there is none, or it is over.
    """
    newest = next(nights(run_dir, suite), None)
    if newest is None:
        raise UsageError(
            f"no unfinished night of {suite} in {run_dir}", hint="remove --resume to start one"
        )
    if newest.is_over:
        raise UsageError(f"{newest.id} is over: nothing is left to run", hint="remove --resume")
    return newest


def turns_of(
    cells: Sequence[Cell],
    night_seed: int,
    sticky: dict[str, list[int]],
    expected_s: dict[str, float],
) -> list[Turn]:
    """The turns of a night in their order: of each cell the fresh seeds, then those that are still
    red.

    Args:
        sticky: cell -> seeds of earlier red rounds.
        expected_s: cell -> time of one turn.
    """
    made = []
    for cell in cells:
        fresh = cell.fresh_seeds(night_seed)
        seeds = [(seed, False) for seed in fresh]
        seeds += [(seed, True) for seed in sticky.get(cell.id, []) if seed not in fresh]
        for number, (seed, is_sticky) in enumerate(seeds, start=1):
            folder = f"{cell.slug}-{'seed-' if is_sticky else ''}{seed if is_sticky else number}"
            made.append(
                Turn(
                    cell=cell.id, number=number, seed=seed, folder=folder, is_sticky=is_sticky,
                    expected_s=expected_s.get(cell.id, 0.0),
                )
            )  # fmt: skip
    return made
