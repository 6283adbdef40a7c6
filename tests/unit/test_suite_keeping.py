"""Captures of earlier nights that go or stay, and the seeds that are run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from experiments.history.rounds import Round
from experiments.nights.matrix import Cell
from experiments.nights.model import Keep
from experiments.nights.night import Night, NightDir, turns_of
from experiments.nights.retention import apply, removals
from experiments.nights.sticky import evidence, open_seeds
from harness.rundir import write_json
from tests.unit.test_nights import an_end, finish

NOW = datetime(2026, 6, 30, tzinfo=UTC)
DAY_S = 86_400.0
MB = 1_000_000


def a_night(folder: Path, age_d: int, verdicts: Sequence[str], *, is_over: bool = True) -> NightDir:
    """One turn a verdict, each with a capture of 1 MB."""
    cells = [Cell(id=f"c{n}", scenario=f"{n}") for n in range(len(verdicts))]
    started = NOW - timedelta(days=age_d)
    night = Night(
        suite="s", about="", file="", started=started.isoformat(), seed=1, budget_s=None, fail_on="any",
        keep=Keep(1.0, 0.0, None), shard="", offline=False, command="", history="",
        cells=cells, turns=turns_of(cells, 1, {}, {}), left_out={},
    )  # fmt: skip
    night_dir = NightDir(folder / f"{started:%Y%m%d}-s")
    night_dir.save(night)
    for turn, verdict in zip(night.turns, verdicts, strict=True):
        run = night_dir.root / turn.folder
        (run / "sealed").mkdir(parents=True)
        (run / "sealed" / "rows").write_bytes(b"x" * MB)
        (run / "report.html").write_text("report")
        finish(night_dir, replace(an_end(turn), verdict=verdict))
    (night_dir.root / "cluster").mkdir()
    (night_dir.root / "cluster" / "log").write_bytes(b"x" * MB)
    if is_over:
        write_json(night_dir.document, {})
    return night_dir


def captures(night: NightDir) -> list[str]:
    """Turns that can still be judged again, and whether the brokers' logs are there."""
    kept = [path.parent.name.split("-")[0] for path in sorted(night.root.glob("*/sealed"))]
    return [*kept, *(["logs"] if (night.root / "cluster").exists() else [])]


def tidy(nights: Sequence[NightDir], rule: Keep, protected: Sequence[Path] = ()) -> list[str]:
    return list(apply(removals(nights, rule, protected, NOW)))


def test_captures_of_green_turns_go_and_red_ones_stay_for_their_time(tmp_path: Path) -> None:
    old, new = a_night(tmp_path, 40, ["pass", "fail"]), a_night(tmp_path, 1, ["pass", "unknown"])
    told = tidy([new, old], Keep(30 * DAY_S, 0.0, None))
    assert (captures(old), captures(new)) == ([], ["c1", "logs"])
    assert len(list(old.root.glob("*/report.html"))) == 2  # verdicts stay
    assert [line.split(" (")[0] for line in told] == [
        f"{old.id}: removed 2 capture folders; 1 broker logs",
        f"{new.id}: removed 1 capture folders",
    ]
    assert "green: verdicts are kept" in told[1]


def test_the_evidence_of_a_sticky_seed_is_never_touched(tmp_path: Path) -> None:
    night = a_night(tmp_path, 400, ["fail", "fail"])
    turn = night.load().turns[0]
    round_of_it = night.root / turn.folder / "unsafe-1"
    tidy([night], Keep(DAY_S, 0.0, 1), [round_of_it])
    assert captures(night) == ["c0", "logs"]


def test_a_night_that_was_cut_short_keeps_everything(tmp_path: Path) -> None:
    night = a_night(tmp_path, 400, ["pass", "fail"], is_over=False)
    assert tidy([night], Keep(DAY_S, 0.0, 1)) == []


def test_over_the_total_the_oldest_captures_go_first_and_green_before_red(tmp_path: Path) -> None:
    old, new = a_night(tmp_path, 3, ["pass", "fail"]), a_night(tmp_path, 1, ["pass", "fail"])
    keep = Keep(30 * DAY_S, 30 * DAY_S, int(4.3 * MB))  # of 6 MB
    tidy([old, new], keep)
    assert (captures(old), captures(new)) == (["c1", "logs"], ["c1", "logs"])
    tidy([old, new], replace(keep, total_bytes=int(2.3 * MB)))
    assert (captures(old), captures(new)) == ([], ["c1", "logs"])


def row(
    night: str, seed: int, verdict: str | None, expect: str = "clean", folder: str = ""
) -> Round:
    about = {"key": "", "suite": "s", "cell": "c", "scenario": "x"}
    return Round(**about, night=night, seed=seed, verdict=verdict, expect=expect, folder=folder)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("1", 7, "fail")], [7]),
        ([("1", 7, "fail"), ("2", 7, "pass"), ("3", 7, "pass")], [7]),
        ([("1", 7, "fail"), ("2", 7, "pass"), ("3", 7, "pass"), ("4", 7, "pass")], []),
        (
            [
                ("1", 7, "fail"),
                ("2", 7, "pass"),
                ("3", 7, "fail"),
                ("4", 7, "pass"),
                ("5", 7, "pass"),
            ],
            [7],
        ),
        ([("1", 7, "fail"), *((str(n), 7, "unknown") for n in range(2, 9))], [7]),
        ([("1", 7, "fail"), *((str(n), 7, None) for n in range(2, 9))], [7]),
        ([("1", 7, "fail"), ("2", 8, "fail"), ("3", 9, "fail")], [9, 8]),
        ([("1", 7, "pass"), ("2", 7, "unknown")], []),
    ],
)
def test_a_red_seed_is_open_until_it_was_green_three_times(
    rows: Sequence[tuple[str, int, str | None]], expected: Sequence[int]
) -> None:
    assert open_seeds(row(*each) for each in rows) == expected


def test_what_a_variant_is_expected_to_show_is_no_regression() -> None:
    assert open_seeds([row("1", 7, "fail", expect="acked-lost")]) == []


def test_evidence_is_every_red_round_of_an_open_seed() -> None:
    rows = [
        row("1", 7, "fail", folder="a"),
        row("2", 7, "pass", folder="b"),
        row("2", 8, "fail", folder="c"),
    ]
    assert evidence(rows) == ["a", "c"]


def test_a_sticky_seed_is_a_turn_beside_the_fresh_ones() -> None:
    cell = Cell(id="c", scenario="s", rounds=2)
    turns = turns_of([cell], 1, {"c": [77]}, {"c": 5.0})
    assert [(turn.number, turn.is_sticky) for turn in turns] == [(1, False), (2, False), (3, True)]
    assert turns[2].seed == 77
