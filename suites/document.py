"""A night as one document for programs: suite.json, and what ``suite run --json`` prints.

The JSON Schema in ``schemas/suite.json`` is made from these classes; a change that would break a reader
raises ``schema_version``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from harness.errors import Exit
from suites.model import FailOn
from suites.night import SCHEMA_VERSION, Ended, Night, NightDir

SCHEMA_FILE: Final = Path(__file__).with_name("schemas") / "suite.json"
#: Exit codes of broken turns, the most urgent first.
_URGENT: Final = (Exit.NOT_HEALED, Exit.BUG, Exit.ENVIRONMENT, Exit.USAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDocument:
    """A cell with how each of its rounds ended; versions are what they resolved to that night."""

    id: str
    scenario: str
    pair: str
    client: str
    client_version: str
    broker: str
    broker_version: str
    settings: str
    runtime: str
    priority: int
    is_control: bool
    rounds: list[Ended]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """A cell, or rounds of it, that did not run."""

    cell: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDocument:
    """One night. ``verdicts``: pass, fail, unknown, broken -> rounds."""

    kind: Literal["suite"] = "suite"
    night: str
    suite: str
    exit_code: int
    fail_on: FailOn
    seed: int
    shard: str
    started: str
    ended: str
    verdicts: dict[str, int]
    cells: list[CellDocument]
    not_run: list[NotRun]
    command: str
    schema_version: int = SCHEMA_VERSION

    def document(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"schema_version": self.schema_version, **asdict(self)}


def exit_code_of(ended: Sequence[Ended], fail_on: FailOn, new: Collection[str]) -> int:
    """The exit code of a night: 1 for what ``fail_on`` says, else that of what broke, else 3, else 0.

    Args:
        new: cells with something red that was not there the nights before.
    """
    if fail_on == "none":
        return Exit.PASS
    red = [each for each in ended if each.verdict == "fail"]
    if any(fail_on == "any" or each.cell in new for each in red):
        return Exit.FAIL
    codes = {each.exit_code for each in ended if each.verdict == "broken"}
    if codes:
        return next((code for code in _URGENT if code in codes), Exit.BUG)
    is_unknown = any(each.verdict == "unknown" for each in ended) or not ended
    return Exit.UNKNOWN if is_unknown else Exit.PASS


def summarize(folder: NightDir, night: Night, new: Collection[str]) -> SuiteDocument:
    """A night whose turns are over; ``new`` as of `exit_code_of`."""
    turns = [(turn, folder.ended(turn)) for turn in night.turns]
    finished = [ended for _, ended in turns if ended is not None]
    words = ("pass", "fail", "unknown", "broken")
    late = dict.fromkeys(turn.cell for turn, ended in turns if ended is None)
    return SuiteDocument(
        night=folder.id,
        suite=night.suite,
        exit_code=exit_code_of(finished, night.fail_on, new),
        fail_on=night.fail_on,
        seed=night.seed,
        shard=night.shard,
        started=night.started,
        ended=max((each.ended for each in finished), default=night.started),
        verdicts={word: sum(each.verdict == word for each in finished) for word in words},
        cells=[
            CellDocument(
                id=cell.id,
                scenario=cell.scenario,
                pair=cell.pair,
                client=cell.client,
                client_version=cell.client_version,
                broker=cell.system,
                broker_version=cell.broker_version,
                settings=cell.settings,
                runtime=cell.runtime,
                priority=cell.priority,
                is_control=cell.is_control,
                rounds=[each for each in finished if each.cell == cell.id],
            )
            for cell in night.cells
        ],
        not_run=[
            *(NotRun(cell=cell, why=why) for cell, why in night.left_out.items()),
            *(NotRun(cell=cell, why="the budget was used up") for cell in late),
        ],
        command=night.command,
    )


def schema_text() -> str:
    """The published JSON Schema as it stands in its file."""
    made = TypeAdapter(SuiteDocument).json_schema(mode="serialization")
    made["required"] = sorted(made["properties"])
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "brokerstorm suite"}
    rest = {key: value for key, value in made.items() if key != "title"}
    return json.dumps({**head, **rest}, indent=1) + "\n"
