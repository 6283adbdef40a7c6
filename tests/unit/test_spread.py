"""When, where and beside which fault messages of a class were; CPU and memory of the processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.capture.context import Context
from analysis.findings import FaultCount, StreamCount
from analysis.kernels.partial import Episode
from analysis.verdict import cores, spread
from analysis.verdict.causes import CauseWords
from analysis.verdict.cores import usage_of
from analysis.verdict.spread import by_fault, by_stream
from harness.contracts.rows import MetricRow
from harness.faultlog import FaultRecord
from tests.planted.judged import judge_here
from tests.planted.tiny import History

S = 1_000_000_000
CONTEXT = Context(
    epoch_ns=1000 * S, load_end_ns=1060 * S, streams=("orders-0", "orders-1", "orders-2")
)
EPISODE = Episode(
    cls="acked-lost", split="", unmet=(), instance=1, lane=0, stream=1, session=0,
    first_ns=1009 * S, last_ns=1010 * S, count=6, windows=((1, 9, 2), (1, 10, 3), (2, 9, 1)),
)  # fmt: skip


def test_what_the_kernels_find_is_counted_by_second_and_stream(tmp_path: Path) -> None:
    history = History().sent(6).log(0, 1, 4, 5).deliver(0, 1, 4, 5).commit(4)
    history.send(6, at_ms=2_300.0)
    (lost,) = [
        f for f in judge_here(history.write(tmp_path / "run")).findings if f.cls == "acked-lost"
    ]
    assert (lost.count, lost.window_s) == (3, 1)
    assert lost.by_stream == (StreamCount(stream="orders-0", count=3, windows=[(0, 2), (2, 1)]),)


def test_a_long_load_is_counted_by_fewer_wider_windows() -> None:
    assert [replace(CONTEXT, load_end_ns=(1000 + s) * S).window_s for s in (0, 600, 601, 86_400)] == [
        1, 1, 2, 144]  # fmt: skip


def test_streams_of_all_buckets_add_up_and_the_smallest_stand_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spread, "MAX_STREAMS", 1)
    rows = by_stream([EPISODE, replace(EPISODE, windows=((3, 9, 1), (3, 12, 1)))], CONTEXT)
    assert rows == (
        StreamCount(stream="orders-0", count=5, windows=[(9, 2), (10, 3)]),
        StreamCount(stream="", count=3, windows=[(9, 2), (12, 1)], streams=2),
    )


def test_an_episode_belongs_to_the_fault_in_whose_window_it_began_or_to_none() -> None:
    faults = [FaultRecord(4, "kill", inject_ns=1010 * S, end_ns=1012 * S, effective=True)]
    # its window: from 1 s before to 2 s after
    late = replace(EPISODE, first_ns=1014 * S, last_ns=1015 * S, count=2)
    assert by_fault(
        [late, EPISODE], faults, CONTEXT, CauseWords("acked-lost", CONTEXT, faults)
    ) == (
        FaultCount(fault=4, count=6, episodes=1, first_s=9.0, last_s=10.0),
        FaultCount(fault=0, count=2, episodes=1, first_s=14.0, last_s=15.0),
    )


def test_cpu_is_cores_since_the_last_sample_and_unknown_over_a_restart() -> None:
    metrics = [
        MetricRow(t_ns=(1000 + i) * S, node="kafka-1", cpu_s=cpu_s, rss_bytes=100 + i)
        for i, cpu_s in enumerate((1.0, 1.5, 0.2, 2.2))
    ]
    metrics.append(MetricRow(t_ns=1000 * S, worker="producer-1", cpu_s=0.0, rss_bytes=7))
    metrics.append(MetricRow(t_ns=1000 * S, worker="producer-1"))
    client, node = sorted(usage_of(metrics, 1000 * S), key=lambda row: row.role)
    assert (client.name, client.role, client.cpu, client.rss_bytes) == (
        "producer-1",
        "client",
        [None],
        [7],
    )
    assert (node.t_s, node.cpu) == ([0, 1, 2, 3], [None, 0.5, None, 2.0])


def test_of_a_long_run_every_nth_sample_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "MAX_SAMPLES", 3)
    metrics = [MetricRow(t_ns=i * S, node="n", cpu_s=i * 0.5, rss_bytes=i) for i in range(9)]
    (row,) = usage_of(metrics, 0)
    assert (row.t_s, row.cpu) == ([0, 3, 6], [None, 0.5, 0.5])
