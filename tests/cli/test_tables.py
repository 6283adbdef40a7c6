"""Lists and plans fit the terminal, and lines end between words."""

from __future__ import annotations

import pytest

from cli import main
from commands import tables
from commands.inventory import COLUMNS
from harness.scenario.bundled import bundled_scenarios


def words(text: str) -> list[str]:
    """In any order: columns of several lines interleave. Cells below each other have dots between them."""
    return sorted(word for word in text.split() if word != "·")


def shown(capsys: pytest.CaptureFixture[str], columns: str, *arguments: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", columns)
        assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        *(["list", kind] for kind in COLUMNS if kind != "runs"),
        *(["plan", name] for name in ("kafka-storm", "kafka-mix", "pulsar-storm", "qpid-storm", "qpid-1871")),
    ],
    ids=" ".join,
)
def test_no_line_is_too_long_and_no_word_is_cut(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    free = shown(capsys, "", *arguments)
    for columns in (60, 80):
        text = shown(capsys, str(columns), *arguments)
        assert words(text) == words(free)
        assert [line for line in text.splitlines() if len(line) > columns and len(line.split()) > 1] == []


def test_a_pipe_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "", "list", "scenarios").splitlines()
    assert len(lines) == len(bundled_scenarios()) + 3


def test_a_table_too_narrow_for_its_columns_has_the_last_cell_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        ["name", "keys", "about"],
        ["leader-move", "topic, moves", "Move the leaders of a topic to another replica."],
    ]
    monkeypatch.setattr(tables, "width", lambda: 64)
    tables.table(rows)
    assert capsys.readouterr().out == (
        "name         keys          about\n"
        "leader-move  topic, moves  Move the leaders of a topic to\n"
        "                           another replica.\n"
    )
    monkeypatch.setattr(tables, "width", lambda: 40)
    tables.table(rows)
    assert capsys.readouterr().out == (
        "name  keys\n"
        "    about\n"
        "leader-move  topic, moves\n"
        "    Move the leaders of a topic to\n"
        "    another replica.\n"
    )


def test_the_commands_of_a_fault_that_repeats_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "", "plan", "kafka-storm", "--seed", "0")
    assert text.count("leader-move orders all partitions") > 1
    assert text.count("ElectLeaders preferred orders") == 1
