"""`trace`: which message of which run, as users name them or leave it to the run."""

from __future__ import annotations

import itertools
import json

import pytest

from cli import main
from harness.errors import Exit
from harness.rundir import RunDir
from tests.planted.campaign import HOLDER, LOST, leave_campaign


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return leave_campaign(tmp_path_factory.mktemp("tracing") / "runs")


def traced(campaign: RunDir, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["--run-dir", str(campaign.root.parent), "trace", *words])
    return code, *capsys.readouterr()


WORDS = [
    *itertools.permutations(["--first", "acked-lost", "latest"]),
    *itertools.permutations(["--first", "latest/unsafe-1"]),
    *(["--first"], ["--first", "acked-lost"], [LOST], [LOST, "latest"], ["orders-2@3", "latest"]),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_the_message_and_the_run_that_are_meant(
    campaign: RunDir, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = traced(campaign, capsys, *words, "--json")
    found = json.loads(out)
    assert code == Exit.PASS
    assert found["run_id"] == "unsafe-1"
    assert found["message"] == (HOLDER if "@" in words[0] else LOST)


def test_the_first_is_the_one_that_the_summary_shows(
    campaign: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["show", str(campaign.root)])
    assert f"first acked-lost in unsafe: {LOST} on orders-2" in capsys.readouterr().out


def test_a_lost_message_with_what_the_log_holds_in_its_place(
    campaign: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = traced(campaign, capsys, "--first")
    assert out.splitlines()[-3:] == [
        "not in the log; orders-2: the audit read 0..6, its end",
        f"orders-2@3, where it was acknowledged, holds {HOLDER}",
        "  ... 0 1 2 [5] 6 7 8 ...",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "which message?"),
        (["--first", "phantom"], "shows no message as a witness of phantom"),
        (["--first", "latest/safe-1"], "shows no message as a witness of anything"),
        (["--first", "ackd-lost"], "no run 'ackd-lost'"),
        (["--first", "ackd-lost", "latest"], "neither 'ackd-lost' nor 'latest' is a class"),
        ([LOST, "none"], "no run 'none'"),
    ],
)
def test_what_is_not_there_is_said(
    campaign: RunDir, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = traced(campaign, capsys, *words)
    assert (code, out) == (Exit.USAGE, "")
    assert says in err
