"""Words of other tools get a hint where they are typed, and the hint leads to something that is
there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.plans import read_scenario
from faults.kinds import KINDS
from faults.schedule.other_words import FAULT_WORDS
from harness.errors import ScenarioError
from harness.other_words import OTHER_WORDS, other_word


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "load: {messageSize: 100}",
            "messageSize of OpenMessaging Benchmark, here: load.payload; allowed",
        ),
        ("load: {record-size: 100}", "record-size of kafka-producer-perf-test, here: load.payload"),
        ("rate: 5", "rate of pulsar-perf, here: load.rate"),
        ("thresholds: {}", "thresholds of k6, here: require, such as latency_p99: 500ms"),
        (
            "load: {producers: {p: {deliverAfter: 5s}}}",
            "did you mean deliver_after?",
        ),
        (
            "load: {consumers: {c: {seek: 5}}}",
            "seek, here: load.consumers.NAME.seeks: {every: 10s, back: 500}",
        ),
        ("faults: [{fault: pod-kill, at: 1s}]", "pod-kill of Chaos Mesh, here: fault: kill"),
        ("faults: [{fault: packet-loss, at: 1s, loss: 1}]", "here: fault: packet-loss with share"),
        (
            "faults: [{fault: delay, at: 1s}]",
            "delay of Chaos Mesh, here: fault: latency with delay",
        ),
    ],
)
def test_a_word_of_another_tool_is_answered_where_it_is_typed(
    tmp_path: Path, text: str, hint: str
) -> None:
    (tmp_path / "a.yaml").write_text(f"name: x\n{text}\n")
    with pytest.raises(ScenarioError) as caught:
        read_scenario(str(tmp_path / "a.yaml"))
    assert hint in str(caught.value)


def test_hints_name_kinds_of_fault_that_there_are() -> None:
    named = {
        kind
        for words in (*OTHER_WORDS.values(), *FAULT_WORDS.values())
        for here in words.values()
        for kind in re.findall(r"`fault: ([a-z-]+)`", here)
    }
    assert named
    assert named <= KINDS.keys()


def test_a_misspelt_key_of_ours_is_no_word_of_another_tool() -> None:
    assert other_word("loaad") == ""
    assert other_word("loss") == "", "a word of faults only there"
