"""The live view: what it says in each form, and that feeding it from threads never blocks."""

from __future__ import annotations

import io
import os
import pty
import threading
import time
from typing import Any

import pytest
from rich.console import Console

from harness.contracts import typed
from harness.contracts.rows import FaultEvent
from harness.progress.choose import open_progress
from harness.progress.live import LiveProgress, render, strip
from harness.progress.plain import PlainProgress, QuietProgress
from harness.progress.view import BaseProgress, RunView, clock
from harness.protocols.cluster import Progress

INJECT = {
    "id": 1,
    "event": "inject",
    "t_ns": 1,
    "kind": "kill",
    "target": "leader-of:orders",
    "targets": ["kafka-1"],
}
EFFECT = {"id": 1, "event": "effect", "effective": True, "evidence": "process 4711 gone"}
HEALED = {"id": 1, "event": "healed", "t_ns": 2, "ok": True}


def event_of(row: dict[str, Any]) -> FaultEvent:
    return typed(row, FaultEvent, "")


def begun(progress: BaseProgress) -> BaseProgress:
    progress.begin("kafka-quick · unsafe · seed 7", rate_per_s=50_000, warm_up_s=2, load_s=10)
    return progress


def drawn(view: RunView, width: int = 100) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False, color_system=None).print(
        render(view, width)
    )
    return [line.rstrip() for line in out.getvalue().splitlines()]


def counted(view: RunView, monkeypatch: pytest.MonkeyPatch, **totals: int) -> None:
    """Feed two samples a second apart: 0, then ``totals``."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(now[0] * 1e9))
    view.update({"elapsed_s": 3.0, **dict.fromkeys(totals, 0)})
    now[0] += 1.0
    view.update({"elapsed_s": 4.0, **totals})


def test_each_form_is_a_progress() -> None:
    progress: Progress = PlainProgress(io.StringIO())
    progress.close()


def test_clock_counts_down_to_the_start_of_load() -> None:
    assert clock(102) == "01:42"
    assert clock(-3) == "-00:03"


def test_live_view_shows_rate_against_target_and_every_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = RunView()
    view.begin("kafka-quick · safe", 50_000, 2, 10)
    view.phase = "load"
    counted(
        view,
        monkeypatch,
        ok=49_900,
        info=37,
        fail=2,
        open=812,
        delivered=49_000,
        late_max_ns=3_000_000,
    )
    lines = drawn(view)
    assert lines[0].startswith("kafka-quick · safe load 00:04 of 00:10")
    assert lines[1:5] == [
        "rate     49,900/s of 50,000   delay 3 ms",
        "minute   █",
        "sends    ok 49,900   info 37   fail 2   open 812",
        "consume  49,000/s   delivered 49,000   behind 900",
    ]
    assert "37 info, 2 fail" in lines[5]
    assert lines[-1].startswith("Ctrl-C stops the load")


def test_live_view_names_the_most_that_was_asked_for_where_the_machine_keeps_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = RunView()
    view.begin("kafka-quick · safe", 31_000, 2, 10, 50_000)
    view.phase = "load"
    counted(view, monkeypatch, ok=30_900)
    assert drawn(view)[1].startswith("rate     30,900/s of 31,000 (at most 50,000)")


def test_live_view_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    view = RunView()
    view.begin(
        "a-very-long-scenario-name · with-a-long-variant-name · seed 1234567890", 50_000, 2, 10
    )
    view.phase = "load"
    counted(view, monkeypatch, ok=10**9, info=10**6, fail=10**6, open=10**6, delivered=10**9)
    assert len(drawn(view, 100)) == len(drawn(view, 60)) == 7


def test_the_sparkline_is_the_last_minute_in_as_many_cells_as_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, now = RunView(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view.begin("x", 1_000, 0, 200)
    view.phase = "load"
    for second in range(101):
        view.update({"elapsed_s": second, "ok": min(second, 90) * 1_000})
        now[0] += 1.0
    (wide,) = [line for line in drawn(view, 80) if line.startswith("minute")]
    assert wide == "minute   " + "█" * 50 + "▁" * 10
    (narrow,) = [line for line in drawn(view, 40) if line.startswith("minute")]
    assert narrow == "minute   " + "█" * 25 + "▁" * 5


def test_faults_to_come_are_named_until_they_are_due() -> None:
    view = RunView()
    view.begin("x", 0, 0, 40)
    view.planned = ((4.0, "kill a"), (14.0, "pause b"), (20.0, "kill c"), (30.0, "kill d"))
    view.update({"elapsed_s": 13.0, "ok": 1})
    view.phase = "load"
    assert drawn(view)[-2] == "next     in 1 s pause b   in 7 s kill c"
    view.update({"elapsed_s": 31.0})
    assert view.coming() == []


def test_fault_strip_is_high_while_a_fault_is_applied() -> None:
    view = RunView()
    view.begin("x", 0, 0, 40)
    view.update({"elapsed_s": 20.0})
    at = view.epoch_ns
    view.record_fault(event_of({**INJECT, "t_ns": at + 5_000_000_000}))
    view.record_fault(event_of({**HEALED, "t_ns": at + 9_000_000_000}))
    assert strip(view) == "▁" * 5 + "█" * 5 + "▁" * 11


def test_plain_lines_for_phases_and_fault_events() -> None:
    out = io.StringIO()
    progress = begun(PlainProgress(out))
    progress.phase("load")
    later = {**EFFECT, "evidence": "process 4711 gone; 2 leaders moved"}
    for event in (INJECT, EFFECT, later, {"id": 1, "event": "heal", "t_ns": 2}, HEALED):
        progress.fault(event_of(event))
    skipped = {
        "id": 2,
        "event": "skipped",
        "kind": "pause",
        "target": "random",
        "reason": "overlaps #1",
    }
    progress.fault(event_of(skipped))
    said = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert said == [
        "kafka-quick · unsafe · seed 7: load",
        "fault #1: kill kafka-1",
        "fault #1: kill kafka-1 took effect: process 4711 gone",
        "fault #1: kill kafka-1: by its end, process 4711 gone; 2 leaders moved",
        "fault #1: kill kafka-1 healed",
        "fault #2: pause random skipped, overlaps #1",
    ]


def test_plain_figures_come_every_so_often_only() -> None:
    out = io.StringIO()
    progress = begun(PlainProgress(out, every_s=3600))
    progress.update(elapsed_s=1.0, ok=10)
    assert out.getvalue() == ""
    progress = begun(PlainProgress(out, every_s=0))
    progress.update(elapsed_s=1.0, ok=10, delivered=4)
    assert "ok 10" in out.getvalue()
    assert "delivered 4" in out.getvalue()


def test_plain_downloads_say_quarters() -> None:
    out = io.StringIO()
    progress = PlainProgress(out)
    for percent in range(101):
        progress.download("kafka 4.1.2", percent / 100)
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == [
        "0%",
        "25%",
        "50%",
        "75%",
        "100%",
    ]


def test_plain_downloads_say_one_line_a_package() -> None:
    out = io.StringIO()
    progress = PlainProgress(out)
    for package in ("kafka 4.1.2", "spark 4.0.1"):
        progress.download(f"resolving {package} with mvn", None)
        for number in range(80):
            progress.download(f"{package}: {number + 1} jars, {number}.jar", None)
        progress.download(f"{package}: 80 jars", 1.0)
    said = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert said == [
        "resolving kafka 4.1.2 with mvn",
        "kafka 4.1.2: 1 jars, 0.jar",
        "kafka 4.1.2: 80 jars 100%",
        "resolving spark 4.0.1 with mvn",
        "spark 4.0.1: 1 jars, 0.jar",
        "spark 4.0.1: 80 jars 100%",
    ]


def test_quiet_says_only_what_went_wrong() -> None:
    out = io.StringIO()
    progress = begun(QuietProgress(out))
    progress.phase("load")
    progress.update(elapsed_s=1.0, ok=10)
    progress.fault(event_of(INJECT))
    progress.fault(event_of({**HEALED, "ok": False}))
    progress.note("worker p-1 died")
    assert out.getvalue() == "fault #1: kill kafka-1 NOT HEALED\nworker p-1 died\n"


def test_text_from_outside_cannot_move_the_cursor() -> None:
    out = io.StringIO()
    PlainProgress(out).note("bad \x1b[2Jname\nsecond")
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("\n") == 1


@pytest.mark.parametrize(("mode", "form"), [("auto", PlainProgress), ("quiet", QuietProgress)])
def test_a_pipe_gets_plain_lines(mode: Any, form: type) -> None:
    assert isinstance(open_progress(mode, stream=io.StringIO()), form)


@pytest.mark.long
def test_live_on_a_terminal_takes_events_from_threads_and_leaves_it_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")  # not that of whoever runs the tests
    parent, child = pty.openpty()
    heard: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(parent, heard), daemon=True)
    reader.start()
    with os.fdopen(child, "w") as terminal:
        progress = LiveProgress(terminal, color=False)
        begun(progress).phase("load")
        threads = [threading.Thread(target=_feed, args=(progress, number)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
            assert not thread.is_alive(), "the live view blocked a thread that fed it"
        progress.close()
        progress.close()
    reader.join(timeout=5)
    text = b"".join(heard).decode()
    assert "note 3-49" in text
    assert text.count("\x1b[?25h") >= 1  # the cursor is back
    assert "\x1b[31m" not in text


def _feed(progress: BaseProgress, number: int) -> None:
    for i in range(50):
        progress.update(elapsed_s=i / 10, ok=i * 1000)
        progress.fault(event_of({**INJECT, "id": number * 100 + i}))
        progress.note(f"note {number}-{i}")


def _drain(parent: int, heard: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # Linux says EIO when the last writer is gone
            return
        if not chunk:
            return
        heard.append(chunk)


def test_who_waits_in_vain_stays_in_view_until_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = begun(QuietProgress(io.StringIO()))
    progress.view.phase = "load"
    counted(progress.view, monkeypatch, ok=1)
    progress.waiting("producer-1", "hangs: 50 sends open, the oldest since 00:07.2\x1b[2J")
    (line,) = [line for line in drawn(progress.view) if line.startswith("waiting")]
    assert line == "waiting  producer-1 hangs: 50 sends open, the oldest since 00:07.2 [2J"
    assert all(len(line) <= 40 for line in drawn(progress.view, 40))
    progress.waiting("producer-1", "")
    assert not any(line.startswith("waiting") for line in drawn(progress.view))
    progress.waiting("producer-1", "hangs")
    begun(progress)
    assert progress.view.waiting == {}
