"""Exposure counters: what of a bug's needs a capture shows."""

from __future__ import annotations

import itertools

import numpy as np

from analysis.capture.bucket import Bucket, Columns
from analysis.capture.context import Context
from analysis.kernels import deaths
from analysis.kernels.exposure import (
    COUNTED,
    COUNTED_ONCE,
    OF_FAULTS,
    Calls,
    exposure_of,
    of_bucket,
    open_at,
)
from harness.contracts.rows import FaultDetails, FaultEvent, WorkerRow
from harness.exposure import CAPTURED
from harness.faultlog import FaultLog, FaultRecord
from harness.records import Event, Kind, Outcome
from harness.workers import known_workers
from tests.oracles.judging import context_from
from tests.planted.tiny import EPOCH_NS, History


def table(name: str, **columns: list[int]) -> Columns:
    return Columns.from_arrays(name, {key: np.array(values) for key, values in columns.items()})


def bucket(sends: Columns, deliveries: Columns, faults: tuple[FaultRecord, ...] = ()) -> Bucket:
    log = Columns.from_arrays("log", {})
    return Bucket(0, Context(faults=faults), sends, log, deliveries)


def test_every_captured_counter_is_counted_and_explained() -> None:
    assert {*COUNTED, *COUNTED_ONCE, *OF_FAULTS} == set(CAPTURED)
    assert set(exposure_of([], [], [])) == set(CAPTURED)
    assert not any(CAPTURED.keys() & worker.exposure.keys() for worker in known_workers().values())


def test_a_send_is_open_from_its_call_to_its_outcome() -> None:
    start, done = np.array([10, 10, 30, 50]), np.array([20, 0, 40, 60])
    for time, number in ((5, 0), (15, 2), (25, 1), (35, 2), (55, 2), (1000, 1)):
        assert open_at(np.array([time]), start, done) == number, time
    assert open_at(np.array([15, 35, 55]), start, done) == 6
    assert open_at(np.array([], np.int64), start, done) == 0


def test_what_a_bucket_shows() -> None:
    sends = table(
        "sends",
        kind=[Kind.LOAD, Kind.LOAD, Kind.PROBE, Kind.WARM_UP],
        t_start_ns=[10, 20, 10, 30],
        t_done_ns=[30, 0, 0, 40],
        outcome=[Outcome.OK, Outcome.INFO, Outcome.INFO, Outcome.FAIL],
    )
    events = [
        Event.DELIVER,
        Event.DELIVER,
        Event.DELIVER,
        Event.ASSIGN,
        Event.NACK,
        Event.ROLLBACK_END,
    ]
    deliveries = table(
        "deliveries",
        event=list(events),
        kind=[Kind.LOAD, Kind.LOAD, Kind.PROBE, 0, 0, 0],
        redelivery=[0, 3, 1, -1, -1, 0],
        ordinal=[0, 1, 2, 3, 4, 5],
    )
    faults = tuple(
        FaultRecord(n, "kill", inject_ns=t, end_ns=t + 1, effective=n != 3)
        for n, t in ((1, 25), (2, 35), (3, 36))
    )
    found = of_bucket(bucket(sends, deliveries, faults))
    assert found == {
        "sends_open_at_fault": 2 + 2,
        "sends_before_first_ok": 2,
        "sends_not_ok": 2,
        "deliveries": 2,
        "redeliveries": 1,
        "assignments": 1,
        "acks_confirmed": 0,
        "nacks": 1,
        "rollbacks": 1,
    }


def test_calls_are_told_by_any_chunks() -> None:
    rng = np.random.default_rng(7)
    faults = tuple(
        FaultRecord(n, "kill", inject_ns=5 * n, end_ns=5 * n + 1, effective=True) for n in (2, 4)
    )
    for _ in range(100):
        count = int(rng.integers(0, 9))
        start = rng.integers(1, 30, count)
        done = np.where(rng.random(count) < 0.9, start + rng.integers(0, 9, count), 0)
        kind, outcome = rng.integers(1, 4, count), rng.integers(1, 5, count)
        sends = table("sends", kind=kind, outcome=outcome, t_start_ns=start, t_done_ns=done)
        calls, ends = Calls(Context(faults=faults)), np.sort(rng.integers(0, count + 1, 3))
        parts = itertools.pairwise([0, *ends.tolist(), count])
        for _ in calls.watching({n: sends[n][a:b] for n in Calls.NEEDED} for a, b in parts):
            pass
        ours = np.flatnonzero(kind != Kind.PROBE)
        acked = done[ours][outcome[ours] == Outcome.OK]
        never = np.iinfo(np.int64).max
        assert calls.longest_ns == max([0, *np.where(done == 0, never, done - start).tolist()])
        assert calls.counts() == {
            "sends_open_at_fault": open_at(np.array([10, 20]), start[ours], done[ours]),
            "sends_before_first_ok": int(np.count_nonzero(start[ours] < acked.min(initial=never))),
            "sends_not_ok": int(
                np.isin(outcome[ours], [Outcome.OK, Outcome.ABORTED], invert=True).sum()
            ),
        }


def test_a_client_is_exposed_to_a_fault_until_it_ends_or_gives_itself_up() -> None:
    history = History(producers=2).sent(1)
    for at_ms in (100, 200, 300):
        history.fault("kill", "kafka-1", at_ms, at_ms + 50)
    history.fault("kill", "kafka-2", 150, 160, effective=False)
    history.client_died("p-1", at_ms=150)
    history.workers["p-2"] = {"t_end_ns": EPOCH_NS + 250_000_000}
    found = deaths.judge(context_from(history, consumers=False))
    assert found.counts == {"clients_at_fault": 1 + 2}
    assert exposure_of([found.counts], [], [])["clients_at_fault"] == 3


def test_buckets_faults_and_workers_are_summed() -> None:
    rows = [
        FaultEvent(id=1, event="inject", kind="kill", t_ns=5),
        FaultEvent(id=1, event="effect", effective=True),
        FaultEvent(id=2, event="inject", kind="kill", t_ns=6),
        FaultEvent(id=2, event="effect", effective=True, details=FaultDetails(held=4, answers=3)),
    ]
    workers = [WorkerRow(name="p", exposure={"reconnects": n} if n else {}) for n in (3, 4, 0)]
    found = exposure_of(
        [{"deliveries": 5, "ok": 1}, {"deliveries": 7}],
        FaultLog(rows).records,
        [*workers, WorkerRow(name="p")],
    )
    assert (found["deliveries"], found["faults_effective"], found["reconnects"]) == (12, 2, 7)
    assert (found["requests_held"], found["answers_changed"]) == (4, 3)
    assert "ok" not in found
