"""A hang that was seen during the run: rows of events.jsonl to context, coverage, result and
surfaces."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.capture.context_files import load_context
from analysis.capture.hangs import hang_rows, waits_in
from analysis.findings import HangRow, Status
from analysis.kernels.partial import Episode
from analysis.report.documents import read_result, write_result
from analysis.report.html import run_page
from analysis.report.terminal import print_result
from analysis.verdict.coverage import coverage
from analysis.verdict.stalls import judged_hangs
from harness.contracts import typed
from harness.contracts.rows import EventRow
from harness.rundir import RunDir
from tests.planted.plans import build_plan
from tests.planted.tiny import EPOCH_NS, History
from tests.report_samples import failing
from tests.unit.test_verdict import facts, finding, manifest, traffic

S = 1_000_000_000
WHERE = "github.com/Shopify/sarama.(*syncProducer).SendMessages (sync_producer.go:138)"
EVENTS: list[dict[str, Any]] = [
    {
        "worker": "consumer-1",
        "kind": "stall",
        "t_ns": 5_000_000_000,
        "text": "the client's own event",
    },
    {
        "worker": "producer-1",
        "kind": "hang",
        "t_ns": 31_000_000_000,
        "since_ns": 10_000_000_000,
        "text": "50 sends open <script>",
        "stacks": "stacks/producer-1.txt",
        "where": WHERE,
        "thread": "goroutine 35 [chan receive]",
        "stack": [
            "github.com/Shopify/sarama.(*syncProducer).SendMessages(0x1)",
            "    sync_producer.go:138\x1b[2J",
        ],
    },
    {
        "worker": "producer-2",
        "kind": "hang",
        "t_ns": 32_000_000_000,
        "since_ns": 1,
        "text": "no dump came",
    },
]
ROWS = hang_rows([typed(row, EventRow, "") for row in EVENTS], 9_000_000_000)


def test_rows_are_the_harness_own() -> None:
    assert [row.worker for row in ROWS] == ["producer-1", "producer-2"]
    assert ROWS[0].t_s == 22.0
    assert ROWS[1] == HangRow(worker="producer-2", kind="hang", t_s=23.0, text="no dump came")
    assert waits_in([typed(row, EventRow, "") for row in EVENTS]) == {"producer-1": WHERE}


@pytest.mark.long
def test_the_page_shows_the_stack_and_nothing_of_it_is_markup() -> None:
    page = run_page(failing(hangs=ROWS))
    assert "Hangs and stalls" in page
    assert "SendMessages (sync_producer.go:138)" in page
    assert 'href="./stacks/producer-1.txt"' in page
    assert "50 sends open &lt;script&gt;" in page
    assert "Hangs and stalls" not in run_page(failing())


@pytest.mark.parametrize("verbose", [False, True])
def test_the_summary_names_the_call_and_verbose_the_stack(verbose: bool) -> None:
    out = io.StringIO()
    print_result(
        Console(file=out, width=140, color_system=None), failing(hangs=ROWS), verbose=verbose
    )
    text = out.getvalue()
    assert "producer-1, hang noticed at 00:22.000: 50 sends open" in text
    assert f"waits in {WHERE}" in text
    assert ("goroutine 35 [chan receive]" in text) is verbose
    assert ("        sync_producer.go:138" in text) is verbose
    assert "\x1b" not in text


def test_it_survives_the_document(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_result(run, failing(hangs=ROWS))
    assert read_result(run).hangs == ROWS


def test_a_worker_that_was_ended_for_hanging_lost_no_record() -> None:
    def capture(**worker: Any) -> tuple[bool, str]:
        row = {"name": "producer-1", "done": False, "exit_code": -9, **worker}
        check = next(
            c for c in coverage(facts(manifest=manifest(workers=[row]))) if c.name == "capture"
        )
        return check.ok, check.text

    assert capture(hung=True) == (
        True,
        "1 workers recorded everything; producer-1 hung and was ended, every row kept",
    )
    assert not capture(hung=False)[0]
    assert not capture()[0]


def test_sends_that_were_open_for_too_short_to_be_a_hang_make_it_unknown() -> None:
    def drain(
        n_open: int, *, hang: int = 0, deadline_s: float = 20, **worker: Any
    ) -> tuple[bool, str]:
        series = traffic()
        series.totals["open"] = n_open
        found = (
            [replace(finding(Status.VIOLATION, "hang", hang), split={"never completed": hang})]
            if hang
            else []
        )
        row = {"name": "producer-1", "done": True, **worker}
        plan = {
            "faults": [{"fault": "kill"}],
            "rate_ratio": 0.99,
            "producers": [PRODUCER | {"call_deadline_s": deadline_s}],
        }
        run = facts(series, findings=found, manifest=manifest(workers=[row]), plan=plan)
        check = next(c for c in coverage(run) if c.name == "drain")
        return check.ok, check.text

    assert drain(50) == (
        False,
        "50 sends were open when the drain ended, and not past their deadline yet: raise "
        "limits.drain, or lower limits.call",
    )
    assert drain(0)[0]
    assert drain(50, deadline_s=0)[0], "imported, without a deadline"
    assert drain(50, hang=50)[0], "the hang is told already"
    assert drain(50, done=False)[0], "it died: told already"
    assert not drain(51, hang=50, done=False, hung=True)[0]


PRODUCER = build_plan(topics={"orders": 1}).producers[0].model_dump(mode="json")


def stalled(since_ns: int = EPOCH_NS + 6 * S) -> EventRow:
    return EventRow(
        worker="c-1",
        kind="stall",
        t_ns=EPOCH_NS + 30 * S,
        since_ns=since_ns,
        session=1,
        text="handed nothing",
    )


RULE = (
    "no violation: a queue is judged by what remains after the drain and by the silence before it; "
)
HELD = (
    "no violation: no partition that it held was silent for longer than limits.stall (15 s) with "
)
LEFT = "2 messages remained, and that silence was no longer than limits.stall (15 s)"


@pytest.mark.parametrize(
    ("system", "left", "said"),
    [
        ("qpid", 0, f"{RULE}nothing remained"),
        ("qpid", 2, f"{RULE}{LEFT}"),
        ("kafka", 0, f"{HELD}acknowledged messages waiting in it"),
    ],
)
def test_a_stall_that_is_no_violation_says_by_which_rule(
    system: str, left: int, said: str, tmp_path: Path
) -> None:
    h = (
        History(system=system)
        .fault("kill", "node-1", 5_000, 9_000)
        .sent(4)
        .deliver(0, 1, position=-1)
    )
    context = load_context(h.bounds(end=left, read_to=left).write(tmp_path / "run"))
    context = replace(context, stall_ns=15 * S)
    (row,) = judged_hangs([stalled()], context, [], {})
    assert row.judged == (
        f"{said}. Of the 24.0 s until it was noticed, 3.0 s with fault #1 (kill node-1) do not "
        "count"
    )
    (row,) = judged_hangs([stalled(since_ns=EPOCH_NS + 10 * S)], context, [], {})
    assert row.judged == said


def test_a_stall_that_judging_found_too_names_its_class(tmp_path: Path) -> None:
    context = load_context(History().sent(1).write(tmp_path / "run"))
    episode = Episode(
        cls="stall", split="resumed", unmet=(), instance=0, lane=-1, stream=1, session=1, first_ns=1,
        last_ns=2, count=1,
    )  # fmt: skip
    (row,) = judged_hangs([stalled()], context, [episode], {})
    assert row.judged.startswith("judged as stall, a violation: messages were waiting")
    (row,) = judged_hangs([stalled()], context, [], {"stall": "not known: who held what"})
    assert row.judged == "not judged: not known: who held what"


def test_the_terminal_and_the_page_say_what_judging_made_of_it() -> None:
    row = HangRow(
        worker="c-1", kind="stall", t_s=3.0, text="handed nothing", judged="no violation: <why>"
    )
    out = Console(file=io.StringIO(), width=100)
    print_result(out, failing(hangs=[row]))
    assert "no violation: <why>" in out.file.getvalue()  # type: ignore[attr-defined]
    assert "no violation: &lt;why&gt;" in run_page(failing(hangs=[row]))
