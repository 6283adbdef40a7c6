"""A hunt as a cell of a night: what is asked of it, and what the history and the page say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.history.page import suite_page
from experiments.history.report import report_of
from experiments.history.rounds import Labels
from experiments.history.store import History
from experiments.history.summary import markdown
from experiments.hunt.hunting import RESULT, HuntRequest
from experiments.nights.hunts import hunt_round
from experiments.nights.matrix import Cell, HuntCell
from experiments.nights.night import Ended, Night, NightDir, turns_of
from experiments.nights.playing import NightTurns
from harness.rundir import RunDir, write_json
from tests.lent import settings

CELL = Cell(
    id="hunt sarama@latest",
    scenario="kafka-smoke",
    client="sarama",
    client_version="1.61.1",
    system="kafka",
    hunt=HuntCell(budget_s=60.0, known=("stall",), is_calm=True),
)
FOUND = {
    "what": ["acked-lost"],
    "is_violation": True,
    "rounds": ["round-0001", "round-0002", "round-0003"],
    "shown": 3,
    "reference_judged": 3,
    "reference_shown": 0,
    "file": "found-1.yaml",
}
NUMBERS = {"judged": 9, "features": 44, "new_features": 5, "entries": 12, "new_entries": 3}


@pytest.mark.parametrize("found", [[], [FOUND]], ids=["nothing found", "a broken promise"])
def test_a_night_plays_a_hunt_and_reports_it(
    found: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[HuntRequest] = []

    def hunted(context: object, request: HuntRequest, *, root: RunDir, session: object) -> None:
        asked.append(request)
        command = "brokerstorm hunt --client sarama"
        document = {"exit_code": int(bool(found)), "command": command, **NUMBERS, "found": found}
        write_json(root.create().root / RESULT, document)

    monkeypatch.setattr("experiments.nights.playing.hunt", hunted)
    night = Night(
        suite="s", about="", file="s.yaml", started="2026-01-01T00:00:00+00:00", seed=7,
        budget_s=None, fail_on="any", keep=None, shard="", offline=True, command="", history="",
        cells=[CELL], turns=turns_of([CELL], 7, {}, {CELL.id: 60.0}), left_out={},
    )  # fmt: skip
    night_dir = NightDir(tmp_path / "20260101-000000-s")
    night_dir.root.mkdir()
    night_dir.save(night)
    with (
        History.open(tmp_path / "history.sqlite") as history,
        NightTurns(settings(tmp_path), night_dir, night_dir.load(), history, print) as turns,
    ):
        turns.play()
        rounds = history.rounds("s")
    (request,) = asked
    assert (request.scenario, request.client, request.budget_s) == ("", "sarama@1.61.1", 60.0)
    assert request.seed == night.turns[0].seed
    assert request.corpus == tmp_path / "corpus" / CELL.slug
    (ended,) = night_dir.ended().values()
    said = "acked-lost in 3 of 3 rounds, with the reference client in 0 of 3: found-1.yaml"
    assert ended.reasons == ([said] if found else [])
    report = report_of("s", night_dir.id, rounds, {})
    assert report.exit_code == ended.exit_code == int(bool(found))
    assert [row.state.cls for row in report.findings] == [each["what"][0] for each in found]
    (hunt,) = report.hunts
    assert hunt.text == "9 rounds, 44 features (5 new), 3 new scenarios, 12 in the corpus"
    assert f"- hunt sarama@latest: {hunt.text}" in markdown(report)
    assert '<section id="hunts">' in suite_page(report, tmp_path, {})


def test_the_page_shows_two_hunts_by_night_and_what_is_new_since_last_night() -> None:
    cells = [CELL, replace(CELL, id="hunt franz-go@latest", client="franz-go")]
    ended = Ended(
        cell="", number=1, seed=7, is_sticky=False, folder="", verdict="pass", exit_code=0,
        started="", ended="", duration_s=60.0,
    )  # fmt: skip
    rounds = [
        hunt_round(
            RunDir(Path("hunt")),
            cell,
            Labels(night=night, suite="s", cell=cell.id),
            ended,
            {**NUMBERS, "entries": entries, "found": []},
        )
        for night, entries in (("20260101", 12), ("20260102", 15))
        for cell in cells
    ]
    report = report_of("s", "20260102", rounds, {})
    numbers = [(each.cell, each.night, each.entries, each.new_features) for each in report.hunts]
    assert numbers == [
        (f"hunt {client}@latest", night, entries, 5)
        for client in ("franz-go", "sarama")
        for night, entries in (("20260102", 15), ("20260101", 12))
    ]
    tonight = [line for line in markdown(report).splitlines() if line.startswith("- hunt ")]
    assert [line.rpartition(", ")[2] for line in tonight] == ["15 in the corpus"] * 2
