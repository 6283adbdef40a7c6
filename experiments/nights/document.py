"""A night as one document for programs: suite.json, and what ``suite run --json`` prints.

The JSON Schema in ``schemas/suite.json`` is made from these classes; a change that would break a
reader raises ``schema_version``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaValue

from experiments.nights.night import SCHEMA_VERSION, Ended, Night, NightDir, Word
from harness.contracts import typed
from harness.errors import FailOn, UsageError
from harness.rundir import DIALECT, Document, read_json

SCHEMA_FILE: Final = Path(__file__).with_name("schemas") / "suite.json"


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
    """One night. ``verdict``: as ``fail_on`` decides; ``counts``: cells of the history by word, as
    text. ``verdicts``: pass, fail, unknown, broken -> rounds, by what `run` or `repro` of them
    alone says."""

    kind: Literal["suite"] = "suite"
    night: str
    suite: str
    verdict: str
    exit_code: int
    fail_on: FailOn
    counts: str
    seed: int
    shard: str
    started: str
    ended: str
    verdicts: dict[str, int]
    cells: list[CellDocument]
    not_run: list[NotRun]
    command: str
    schema_version: int = SCHEMA_VERSION

    def document(self) -> Document:
        """Return the form that JSON holds."""
        return {"schema_version": self.schema_version, **asdict(self)}


def not_run_of(folder: NightDir, night: Night) -> list[NotRun]:
    """Cells that did not run, and the ones of which rounds did not run; with the reason."""
    ended = folder.ended()
    late = dict.fromkeys(turn.cell for turn in night.turns if turn.folder not in ended)
    return [
        *(NotRun(cell=cell, why=why) for cell, why in night.left_out.items()),
        *(NotRun(cell=cell, why="the budget was used up") for cell in late),
    ]


def unplayed_of(folder: NightDir, night: Night) -> dict[str, str]:
    """Cell -> why it did not run to its end, of a night that was ended early."""
    ended = folder.ended()
    why = f"the night was ended early; `brokerstorm suite run {night.file} --resume` continues it"
    late = dict.fromkeys((turn.cell for turn in night.turns if turn.folder not in ended), why)
    return {**night.left_out, **late}


def summarize(
    folder: NightDir, night: Night, *, verdict: str, exit_code: int, counts: str
) -> SuiteDocument:
    """A night whose turns are over, and what its report decided."""
    ended = folder.ended()
    finished = [ended[turn.folder] for turn in night.turns if turn.folder in ended]
    return SuiteDocument(
        night=folder.id,
        suite=night.suite,
        verdict=verdict,
        exit_code=exit_code,
        fail_on=night.fail_on,
        counts=counts,
        seed=night.seed,
        shard=night.shard,
        started=night.started,
        ended=max((each.ended for each in finished), default=night.started),
        verdicts={word: sum(each.verdict == word for each in finished) for word in get_args(Word)},
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
        not_run=not_run_of(folder, night),
        command=night.command,
    )


def read_outcome(folder: NightDir) -> SuiteDocument:
    """The document of a night that is over.

    Raises:
        UsageError: the night is not over, or the document is damaged or of another version.
    """
    if not folder.is_over:
        raise UsageError(
            f"{folder.id} is not over: it is running, or it was interrupted",
            hint=f"`brokerstorm list runs {folder.id}` shows the runs that have ended",
        )
    return typed(read_json(folder.document), SuiteDocument, str(folder.document))


def schema() -> JsonSchemaValue:
    """JSON Schema of the document."""
    made = TypeAdapter(SuiteDocument).json_schema(mode="serialization")
    made["required"] = sorted(made["properties"])
    head = {"$schema": DIALECT, "title": "brokerstorm suite"}
    rest = {key: value for key, value in made.items() if key != "title"}
    return {**head, **rest}
