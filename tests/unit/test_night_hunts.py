"""A hunt as a cell of a night: what is asked of it, and what the history and the page say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.history.page import suite_page
from experiments.history.report import report_of
from experiments.history.store import History
from experiments.history.summary import markdown
from experiments.hunt.hunting import RESULT, HuntRequest
from experiments.nights.matrix import Cell, HuntCell
from experiments.nights.night import Night, NightDir, turns_of
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
NUMBERS = {"judged": 9, "features": 44, "entries": 12, "new_entries": 3}


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
    assert hunt.text == "9 rounds, 44 features, 3 new scenarios, 12 in the corpus"
    assert f"- hunt sarama@latest: {hunt.text}" in markdown(report)
    assert '<section id="hunts">' in suite_page(report, tmp_path, {})
