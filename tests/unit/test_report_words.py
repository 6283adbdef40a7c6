"""Numbers, times and sequences as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.findings import Attribution, SequenceStep
from analysis.report import words
from tests.report_samples import steps


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.42, "0.4 ms"), (35, "35 ms"), (4402.0, "4.4 s"), (None, "–"), (float("nan"), "–")],
)
def test_millis(value: float | None, text: str) -> None:
    assert words.millis(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.31, "0.3 s"), (41.2, "41 s"), (312, "5m 12s"), (119.96, "120 s")]
)
def test_seconds(value: float, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("t_s", "text"),
    [(89.812, "01:29.812"), (-1.2, "-00:01.200"), (59.9996, "01:00.000"), (0, "00:00.000")],
)
def test_clock(t_s: float, text: str) -> None:
    assert words.clock(t_s) == text


def test_facts_of_the_machine_are_told_in_units() -> None:
    assert words.fact("memory_bytes", "25276502016") == ("memory", "23.5 GiB")
    assert words.fact("kafka", "4.1.2") == ("kafka", "4.1.2")


def test_percent_is_never_rounded_up_to_all() -> None:
    assert words.percent(0.99999) == "99.99 %"
    assert words.percent(1) == "100 %"
    assert words.percent(0.987) == "98.7 %"


def test_sequence_is_written_as_the_docs_write_it() -> None:
    assert words.sequence(steps("1 [4] 2 3 4+")) == "... 1 [4] 2 3 4 ..."
    assert words.sequence(steps("3 (4) 5")) == "... 3 (4) 5 ..."
    assert words.sequence(steps("3 [4.1] 5")) == "... 3 [4.1] 5 ..."


def test_a_long_sequence_keeps_the_witness_in_view() -> None:
    around = [
        SequenceStep(seq=10**9 + i, attempt=0, position="", mark="!" if i == 17 else "")
        for i in range(20)
    ]
    text = words.sequence(around, width=40)
    assert len(text) <= 40
    assert f"[{10**9 + 17}]" in text


def test_plain_text_cannot_steer_a_terminal_or_turn_reading_direction() -> None:
    assert words.plain("a\x1b[31mb\nc\u202ed\x07") == "a�[31mb c�d�"


def test_attribution_says_chance_or_that_it_cannot_be_told() -> None:
    near = Attribution(
        kind="kill", inside=7, episodes=7, chance_share=0.18, p_value=0.0001, not_attributable=False
    )
    text = "7 of 7 episodes near kill (by chance 18.0 %, p < 0.001)"
    assert words.attribution(near) == text
    wide = Attribution(
        kind="kill",
        inside=7,
        episodes=7,
        chance_share=0.7,
        p_value=None,
        not_attributable=True,
        why_not="it fired once",
    )
    text = "7 of 7 episodes near kill: not attributable, it fired once"
    assert words.attribution(wide) == text
    text = "7 of 7 episodes near all faults together (by chance 18.0 %, p < 0.001)"
    assert words.attribution(replace(near, kind="")) == text
    assert words.attribution(replace(near, p_adjusted=0.03)).endswith(
        "p < 0.001, p 0.030 as one of several kinds)"
    )
