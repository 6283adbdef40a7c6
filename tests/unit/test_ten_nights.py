"""Ten nights of a suite through `suite run`: a regression and a slowdown are told on the right
nights, and nothing else. Only what plays a turn on brokers is replaced."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cli import main
from experiments.nights.night import Ended
from experiments.nights.playing import NightTurns, TurnRequest, ended_now
from harness.rundir import RunDir
from tests.history_samples import LOST, a_round

#: Night of the regression and of the slowdown, from 1.
REGRESSION, SLOWDOWN, NIGHTS = 6, 8, 10
SUITE = """\
name: ten
about: ten nights
cells:
  - scenarios: [kafka-smoke, kafka-quick]
    rounds: 3
  - scenarios: [kafka-smoke]
    settings: {control: {load.rate: 2000}}
    rounds: 3
    control: true
"""


class Scripted(NightTurns):
    """Turns whose kafka-smoke loses messages from night 6 on, and whose kafka-quick is slower from
    8."""

    night = 0

    def _fetch(self, turns: Any) -> None:
        return None

    def _play_live(self, turn: Any, root: RunDir) -> None:
        root.root.mkdir()

    def _judged(self, request: TurnRequest, root: RunDir) -> Ended | None:
        if not root.root.exists():
            return None
        turn = request.turn
        lost = self._loses(turn)
        command = f"brokerstorm run kafka-smoke --seed {turn.seed}"
        return ended_now(request, int(lost), [LOST] if lost else [], command=command)

    def _loses(self, turn: Any) -> bool:
        return bool(turn.cell == "kafka-smoke" and self.night >= REGRESSION)

    def _rows(self, turn: Any, ended: Any) -> list[Any]:
        dice = random.Random(f"{self.night} {turn.cell} {turn.number}")
        cell = self._night.cell(turn)
        slow = 3.0 if turn.cell == "kafka-quick" and self.night >= SLOWDOWN else 1.0
        row = a_round(self.night, turn.number, cell=cell.history_cells[0], hit=self._loses(turn))
        facts = {
            "night": self._dir.id,
            "suite": self._night.suite,
            "seed": turn.seed,
            "is_sticky": turn.is_sticky,
            "is_control": cell.is_control,
            "latency_ms": {"p99": 80.0 * slow * dice.lognormvariate(0, 0.08)},
            "longest_outage_s": 4.0 * dice.lognormvariate(0, 0.1),
            "rate_held_per_s": 3000.0,
        }
        return [type(row)(**{**{name: getattr(row, name) for name in row.__slots__}, **facts})]


def one_meaning(document: dict[str, Any]) -> tuple[int, str]:
    return document["exit_code"], document["verdict"]


@pytest.mark.long
def test_ten_nights_tell_a_regression_and_a_slowdown_on_their_nights_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("experiments.nights.playing.NightTurns", Scripted)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    file = tmp_path / "ten.yaml"
    file.write_text(SUITE)
    codes, told = [], {}
    for night in range(1, NIGHTS + 1):
        monkeypatch.setattr(Scripted, "night", night)
        clock = SimpleNamespace(strftime=lambda _, day=night: f"202611{day:02d}-030000")
        monkeypatch.setattr("harness.rundir.time", clock)
        arguments = ["--run-dir", str(tmp_path / "runs"), "suite", "run", str(file), "--offline"]
        codes.append(main([*arguments, "--fail-on", "new"]))
        capsys.readouterr()
        folder = tmp_path / "runs" / f"202611{night:02d}-030000-ten"
        report = json.loads((folder / "report.json").read_text())
        assert [
            one_meaning(each) for each in (report, json.loads((folder / "suite.json").read_text()))
        ] == [
            (codes[-1], "fail" if codes[-1] else "pass"),
        ] * 2
        failures = ET.parse(folder / "junit.xml").getroot().get("failures")
        assert int(failures or 0) == codes[-1]
        fresh = [change for change in report["changes"] if change["told"] == report["night"]]
        if fresh:
            told[night] = [(c["cell"], c["subject"], c["at"][6:8], c["machine"]) for c in fresh]
        arguments = ["--run-dir", str(tmp_path / "runs"), "list", "nights", "--json"]
        assert main(arguments) == 0
        newest = json.loads(capsys.readouterr().out)["items"][0]["verdict"]
        assert newest.startswith("fail: 1 fail, " if codes[-1] else "pass: ")
        assert ("1 fail (none new)" in newest) == (night > REGRESSION)
    assert codes == [1 if night == REGRESSION else 0 for night in range(1, NIGHTS + 1)]
    regression = told.pop(REGRESSION)
    assert regression == [("kafka-smoke", LOST, f"{REGRESSION:02d}", "")]
    ((night, slowdown),) = told.items()
    assert slowdown == [("kafka-quick/unsafe", "p99", f"{SLOWDOWN:02d}", "")]
    assert SLOWDOWN < night <= NIGHTS
