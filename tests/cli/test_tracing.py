"""`trace`: which message of which run, as users name them or leave it to the run."""

from __future__ import annotations

import io
import itertools
import json

import pytest
from rich.console import Console

from analysis.report.documents import read_campaign, read_result
from analysis.report.html import write_campaign_page, write_run_page
from analysis.report.terminal_lookups import print_trace
from analysis.report.trace import trace
from cli import main
from harness.errors import Exit, UsageError
from harness.rundir import RunDir, read_json
from tests.planted.campaign import HOLDER, LOST, leave_campaign


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return leave_campaign(tmp_path_factory.mktemp("tracing") / "runs")


def traced(
    campaign: RunDir, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
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
        ([], "no message given"),
        (["--first", "phantom"], "shows no example message of phantom"),
        (["--first", "latest/safe-1"], "shows no example message"),
        (
            ["--first", "ackd-lost"],
            "'ackd-lost' is neither a class nor a run; did you mean acked-lost?",
        ),
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


LINES = [
    "[2026-11-20 12:00:00,004] INFO [Broker id=1] Leader orders-2 starts at leader epoch 1 (state)",
    "[2026-11-20 12:00:00,005] ERROR [Log partition=orders-2] \x1b[31mFailed\u202e (kafka.log)",
    "java.io.IOException: gone",
    "\tat kafka.log.UnifiedLog.append(UnifiedLog.scala:1)",
    "[2026-11-20 12:00:00,006] INFO [Broker id=1] Follower orders-20 starts at leader epoch 1 (state)",
]


@pytest.fixture(scope="module")
def logged(campaign: RunDir) -> RunDir:
    """The same, with what a broker said."""
    log = campaign.cluster / "kafka-1" / "logs" / "stdout.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"{line}\n" for line in LINES))
    return campaign


def test_lines_of_the_logs_are_folded_and_the_rest_is_named(
    logged: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = traced(logged, capsys, "--first")
    shown = out.split("in the logs\n")[1].splitlines()
    assert " ".join(shown[0].split()).startswith(
        "00:00.004 kafka-1 INFO [Broker id=1] Leader orders-2"
    )
    assert "�[31mFailed�" in shown[1]
    assert "leader  kafka-1: INFO [Broker id=1] Leader orders-2 starts" in out
    _, out, _ = traced(logged, capsys, "--first", "--log-lines", "1")
    assert "Failed" not in out.split("in the logs\n")[1]
    assert f"2 more lines of kafka-1: `brokerstorm trace {LOST}" in out.replace("\n", " ")
    assert "in the logs" not in traced(logged, capsys, "--first", "--log-lines", "0")[1]


def test_lines_that_are_asked_for_are_whole(
    logged: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = traced(logged, capsys, "--first", "--log-lines", "9")
    assert "java.io.IOException: gone" in out
    assert "at kafka.log.UnifiedLog.append(UnifiedLog.scala:1)" in out
    _, out, _ = traced(logged, capsys, "--first", "--json")
    leader, failed, other = json.loads(out)["logs"]["lines"]
    assert (leader["why"], failed["why"], other["why"]) == ("leader", "named", "near")
    assert failed["more"] == [
        "java.io.IOException: gone",
        "    at kafka.log.UnifiedLog.append(UnifiedLog.scala:1)",
    ]
    assert leader["file"] == "cluster/kafka-1/logs/stdout.log"


@pytest.mark.parametrize("whole", [False, True], ids=["run", "campaign"])
def test_the_report_folds_the_lines_below_a_witness(logged: RunDir, whole: bool) -> None:
    run = RunDir(logged.root / "unsafe-1")
    written = (
        write_campaign_page(logged, read_campaign(logged))
        if whole
        else write_run_page(run, read_result(run))
    )
    page = written.read_text()
    assert "Log lines of kafka-1: 3" in page
    assert "\x1b" not in page
    assert page.index("Log lines of") < page.index("java.io.IOException: gone")


def test_a_log_that_cannot_be_read_is_told_and_costs_no_report(
    logged: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "stdout.log")

    monkeypatch.setattr("analysis.report.trace_logs.RunLogs.around", refuse)
    run = RunDir(logged.root / "unsafe-1")
    page = write_run_page(run, read_result(run)).read_text()
    assert "no lines of logs: cannot read the log stdout.log: Permission denied" in page
    with pytest.raises(UsageError, match="cannot read the log"):
        trace(run, LOST)


def test_events_and_the_stack_of_its_client(campaign: RunDir) -> None:
    run = RunDir(campaign.root / "unsafe-1")
    epoch_ns = read_json(run.manifest)["epoch_ns"]
    (name,) = (
        row["name"] for row in read_json(run.manifest)["workers"] if row["role"] == "producer"
    )
    own = {"worker": name, "t_ns": epoch_ns + 2_000_000_000}
    rows = [
        {**own, "kind": "disconnect", "text": "reset by \x1b[7mpeer"},
        {**own, "kind": "disconnect", "t_ns": epoch_ns + 60_000_000_000, "text": "later"},
        {**own, "worker": "another", "kind": "disconnect", "text": "of another"},
        {
            **own,
            "kind": "hang",
            "text": "waits",
            "where": "poll",
            "stack": ["poll (a.py:1)"],
            "stacks": "s.txt",
        },
    ]
    run.events.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = trace(run, LOST)
    assert [(event.kind, event.text) for event in found.events] == [
        ("disconnect", "reset by �[7mpeer")
    ]
    assert [(hang.where, hang.stack) for hang in found.hangs] == [("poll", ["poll (a.py:1)"])]
    with Console(file=io.StringIO(), width=100) as out:
        print_trace(out, found)
        shown = out.file.getvalue()  # type: ignore[attr-defined]
    assert f"disconnect  {name}: reset by" in shown
    assert "it waits in poll" in shown
    assert "every stack: s.txt" in shown
