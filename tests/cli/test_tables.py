"""Lists and plans fit the terminal, and lines end between words."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import main
from commands import tables
from commands.inventory import COLUMNS
from harness.clusters.limits import node_limits
from harness.scenario.bundled import bundled_scenarios


def words(text: str) -> list[str]:
    """In any order: columns of several lines interleave. Cells below each other have dots between
    them."""
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
        *(
            ["plan", name]
            for name in ("kafka-storm", "kafka-mix", "pulsar-storm", "qpid-storm", "qpid-1871")
        ),
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
        assert [
            line for line in text.splitlines() if len(line) > columns and len(line.split()) > 1
        ] == []


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


def test_a_fault_that_repeats_is_shown_once_with_all_of_its_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, "", "plan", "kafka-storm", "--seed", "0")
    (line,) = [line for line in text.splitlines() if "leader-move" in line]
    assert line.split("; ") == [
        "            +24.2 s  leader-move orders all partitions",
        "again at 27.0, 30.3, 46.3, 49.4, 52.2 s",
    ]
    assert "ElectLeaders" not in text
    assert (
        shown(capsys, "", "plan", "kafka-storm", "--seed", "0", "-v").count(
            "ElectLeaders preferred"
        )
        == 1
    )


@pytest.mark.parametrize("name", ["kafka-storm", "kafka-mix", "pulsar-storm"])
def test_the_plan_of_a_storm_fits_a_page(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # what this machine lacks is said below it
    monkeypatch.setattr(node_limits, "why_not", lambda need: "")
    assert len(shown(capsys, "80", "plan", name, "--seed", "0").splitlines()) < 30


def test_the_plan_of_a_further_variant_shows_what_differs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second, _ = shown(capsys, "", "plan", "kafka-quick").split("\n\n")
    assert "  topic " in first
    assert "  faults " in first
    assert [line.split()[0] for line in second.splitlines() if line[2:3].strip()] == [
        *("kafka-quick", "expect", "producer", "same")
    ]
    assert second.endswith("  same      cluster, topics, load, required, faults as in unsafe")


def test_a_plan_says_in_the_words_of_the_scenario_who_writes_what_and_what_is_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    lines = [" ".join(line.split()) for line in shown(capsys, "", "plan", str(file)).splitlines()]
    assert (
        "required no acknowledged message may be lost, whatever the settings promise; none stored "
        "twice; 99 % of the rate" in lines
    )
    assert any(
        line.startswith("producer producer-shop to orders (by partition): kafka-clients")
        for line in lines
    )
    assert any(
        line.startswith("producer producer-bookkeeping-2 to ledger (40 keys): ") for line in lines
    )
    assert any(line.startswith("consumer consumer-billing from orders: ") for line in lines)
    delayed = (
        "+ 3.0 s latency random for 5 s (link clients, delay 250 ms, delay_jitter 50 ms, way both)"
    )
    assert next(line for line in lines if "latency" in line) == f"faults {delayed}"
    frozen = "+10.0 s client-freeze client:shop for 5 s (freeze 60 ms, period 160 ms to 250 ms)"
    assert frozen in lines


TWO = """
name: two
topics: {orders: {}, ledger: {}}
load:
  rate: 1000
  duration: 20s
  producers:
    shop: {topics: [orders], client: kafka-clients}
    bookkeeping: {topics: [ledger], lanes: key, keys: 40, count: 2}
  consumers:
    billing: {topics: [orders]}
faults:
  - {fault: latency, at: 3s, delay: 250ms, delay_jitter: 50ms, way: both}
  - {fault: client-freeze, target: "client:shop", at: 10s}
require: {dedup: once}
"""
