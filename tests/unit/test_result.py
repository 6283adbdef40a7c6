"""The result put together, without Spark: every task run here, one after the other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.capture.capture import Capture
from analysis.capture.context_files import load_context
from analysis.findings import Result, Verdict
from analysis.kernels.bucket_report import BucketReport
from analysis.spark.judge import read_files
from analysis.spark.task import Task, judge_numbers
from analysis.verdict.result import grid_of, result_of
from harness.contracts.rows import MetricRow, Problem
from harness.records import Kind
from harness.rundir import RunDir, read_json, read_jsonl, write_json, write_jsonl
from tests.planted.tiny import EPOCH_NS, History

S = 1_000_000_000


def reports_of(run: RunDir) -> list[BucketReport]:
    """As executors make them, through the bytes that they send."""
    import pickle

    context, files, capture = load_context(run), read_files(run), Capture.find(run)
    task = Task(capture.root_uri, capture.buckets(), context, grid_of(files, context))
    return [pickle.loads(answer) for answer in judge_numbers(task, iter(range(len(task.order))))]


def result(run: RunDir, **changes: Any) -> Result:
    context, capture = load_context(run), Capture.find(run)
    files = replace(read_files(run), **changes)
    return result_of(files, context, capture, grid_of(files, context), reports_of(run), 0.0)


def steady(
    *, rate: int = 100, seconds: int = 4, warm_up: int = 1, skip: range = range(0)
) -> History:
    """One partition, ``rate`` messages a second, acknowledged after 2 ms; those of ``skip`` never
    offered."""
    history = History()
    update = {"rate_per_s": float(rate), "warm_up_s": float(warm_up), "load_s": float(seconds)}
    history.plan = history.plan.model_copy(update=update)
    first = -warm_up * rate
    sent = 0
    for i in range(first, seconds * rate):
        if i in skip:
            continue
        kind = Kind.LOAD if i >= 0 else Kind.WARM_UP
        history.send(sent, at_ms=i * 1000 / rate, took_ms=2, kind=kind).log(sent, kind=kind)
        history.deliver(sent, kind=kind)
        sent += 1
    history.at(seconds * 1000 - 1000)  # the run ends a second after its clock
    return history


def test_warm_up_is_judged_but_enters_neither_rate_nor_latency(tmp_path: Path) -> None:
    found = result(steady().write(tmp_path / "run"))
    assert (found.verdict, found.reasons) == (Verdict.PASS, [])
    assert (found.sends["attempted"], found.sends["ok"], found.sends["warm_up"]) == (500, 500, 100)
    assert found.rate["target_per_s"] == 100
    assert found.rate["achieved_per_s"] == 100
    assert found.rate["ratio_outside_outages"] == 1
    assert found.latency_ms["p50"] == found.latency_ms["max"] == 2.0
    assert found.rows["sends"] == 500


def test_what_two_readers_of_the_log_saw_at_one_place_is_one_row(tmp_path: Path) -> None:
    history = steady().log(200, 201, position=200)
    assert result(history.write(tmp_path / "run")).rows["log"] == 500


def test_the_timeline_counts_every_message_once_and_zero_is_the_start_of_load(
    tmp_path: Path,
) -> None:
    timeline = result(steady().write(tmp_path / "run")).timeline
    assert timeline.start_s == -1
    assert sum(timeline.intended) == sum(timeline.ok) == sum(timeline.delivered) == 500
    zero = round(1 / timeline.step_s)
    assert sum(timeline.intended[:zero]) == 100
    assert timeline.p99_ms[0] is None
    assert timeline.p99_ms[zero] == pytest.approx(2, rel=0.01)


def test_messages_never_offered_are_intended_all_the_same(tmp_path: Path) -> None:
    found = result(steady(skip=range(300, 400)).write(tmp_path / "run"))
    assert sum(found.timeline.intended) == 500
    assert sum(found.timeline.ok) == 400
    assert found.verdict is Verdict.UNKNOWN
    assert found.reasons == [
        "rate not reached: 75/s outside outages, 75.0% of 100/s, 99.0% required"
    ]


def test_a_load_cut_short_is_judged_over_what_there_was(tmp_path: Path) -> None:
    """Interrupted after two of four seconds: the rate held, the run is unknown for being
    interrupted."""
    history = steady(skip=range(200, 400))
    run = history.write(tmp_path / "run")
    files = read_files(run)
    phases = [
        replace(p, end_ns=EPOCH_NS + 2 * S) if p.name == "load" else p
        for p in files.manifest.phases
    ]
    cut = replace(files.manifest, phases=phases, status="interrupted")
    found = result(run, manifest=cut)
    assert found.rate["ratio_outside_outages"] == 1
    assert found.reasons == ["the load was stopped after 2.0 s of 4.0 s; the rest was not tested"]
    unread = [phase for phase in phases if phase.name != "audit"]
    found = result(run, manifest=replace(cut, phases=unread))
    assert found.reasons == ["the run was interrupted before its audit"]


def test_only_lateness_during_the_load_is_saturation(tmp_path: Path) -> None:
    run = steady().write(tmp_path / "run")
    rows = [
        MetricRow(t_ns=EPOCH_NS - 1, worker="p-1", late_max_ns=9 * S),
        MetricRow(t_ns=EPOCH_NS + S, worker="p-1", late_max_ns=S // 2),
        MetricRow(t_ns=EPOCH_NS + S, node="kafka-1"),
    ]
    assert result(run, metrics=rows).verdict is Verdict.PASS
    late = [
        MetricRow(t_ns=EPOCH_NS + n * S // 10, worker="p-1", late_max_ns=3 * S) for n in range(20)
    ]
    # it caught up
    assert result(run, metrics=rows + late[:2] + [rows[1]] * 20).verdict is Verdict.PASS
    assert result(run, metrics=rows + late).reasons == [
        "the load generator was saturated: p-1 was 3.0 s late or more in a tenth of the load"
    ]


def test_the_same_reports_give_the_same_document(tmp_path: Path) -> None:
    history = History(partitions=4, buckets=4)
    for partition in range(4):
        history.sent(30, partition=partition)
        history.log(*(s for s in range(30) if s != 7), partition=partition)
    history.fault("kill", "kafka-1", 5, 20)
    run = history.write(tmp_path / "run")
    one, two = (json.dumps(result(run).document(), default=str) for _ in range(2))
    assert one == two


def test_a_run_that_never_got_to_its_load_is_unknown(tmp_path: Path) -> None:
    run = History().write(tmp_path / "run")
    files = read_files(run)
    manifest = replace(files.manifest, status="error", phases=[], workers=[])
    found = result(run, manifest=manifest)
    assert found.verdict is Verdict.UNKNOWN
    assert found.percentiles == []
    assert found.latency_ms == {}


def test_a_fault_that_stays_applied_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    run = steady().write(tmp_path / "run")
    problems = [Problem("not-healed", "kill kafka-2: its process does not run")]
    found = result(run, manifest=replace(read_files(run).manifest, problems=problems))
    assert found.exit_code == 5
    assert found.reasons[0] == "a fault could not be undone: kill kafka-2: its process does not run"


@pytest.mark.parametrize(
    ("damage", "verdict"), [({}, Verdict.FAIL), ({"missing_segments": 1}, Verdict.UNKNOWN)]
)
def test_rows_that_the_audit_lost_accuse_nobody(
    tmp_path: Path, damage: dict[str, int], verdict: Verdict
) -> None:
    """Message 4 is not in the log that the reader left; with one of its segments gone that proves
    nothing."""
    kept = (0, 1, 2, 3, 5, 6, 7, 8, 9)
    run = History().sent(10).log(*kept).deliver(*kept).at(9000).write(tmp_path / "run")
    write_jsonl(run.log_bounds, [row | {"reader": "audit-1"} for row in read_jsonl(run.log_bounds)])
    worker = {"segments": 1, "rows": {}, "damage": damage}
    write_json(
        run.seal_report, read_json(run.seal_report) | {"files": {}, "workers": {"audit-1": worker}}
    )
    judged = result(run)
    assert judged.verdict is verdict
    assert any("rows of audit-1" in reason for reason in judged.reasons) is bool(damage)


def test_what_could_not_be_shown_is_told_and_does_not_count_as_looked_for(tmp_path: Path) -> None:
    """Without consumers nothing is known of deliveries; with an audit cut short, nothing of
    losses."""
    history = History().sent(10).log(*range(10)).bounds(read_to=5).at(9000)
    history.plan = history.plan.model_copy(update={"consumers": []})
    untested = result(history.write(tmp_path / "run")).untested
    assert untested["not-dispatched"] == "not applicable: no consumer read"
    assert untested["stall"] == "not applicable: no consumer or application read"
    assert untested["acked-lost"].startswith("not shown that the audit read the stream to its end")
    assert "corrupt" not in untested
