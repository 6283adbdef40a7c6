"""Sarama beyond the protocol: its versions, its three calls, a hang and the evidence of it."""

from __future__ import annotations

import subprocess
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from harness.records import Outcome, TableId
from harness.run.hangs import take_stacks
from harness.run.liveness import (
    CHECK_EVERY_S,
    HangDetector,
    SendSegments,
)
from harness.rundir import RunDir
from harness.workers import launch, load_worker
from tests.golden import assert_golden
from tests.live.cluster_rig import wait_until
from tests.live.kafka_workers import MARKS
from tests.live.worker_rig import Rig, begin, dense, whole_run

pytestmark = MARKS
AFFECTED, FIXED = "1.37.2", "1.38.0"
IDEMPOTENT = {
    "Producer.Idempotent": "true",
    "Producer.RequiredAcks": "WaitForAll",
    "Net.MaxOpenRequests": "1",
    "Producer.Timeout": "2s",
}


def test_the_self_test_writes_the_golden_files(tmp_path: Path) -> None:
    argv, env = launch(load_worker("sarama"), FIXED)
    subprocess.run([*argv, "--self-test", str(tmp_path)], check=True, env=env)
    assert_golden(tmp_path)


@pytest.mark.parametrize(("calls", "batch"), [("sync", 1), ("batch", 25)])
def test_a_call_is_made_when_its_last_message_is_due(rig: Rig, calls: str, batch: int) -> None:
    """100 + 310 messages: the last call of warm-up and load is as long as the schedule has messages left."""
    options = {**IDEMPOTENT, "Producer.Flush.Frequency": "0s"}
    producer = whole_run(
        rig.producer(
            "sarama",
            rig.topic(),
            rate=200,
            load_s=1.55,
            calls=calls,
            batch=batch,
            options=options,
            version=FIXED,
        )
    )
    assert producer.ready_message["client_version"] == FIXED
    sends = producer.rows(TableId.SENDS)
    assert len(sends) == 410 == producer.done_message["ok"]
    assert dense(sends)
    assert set(sends["outcome"].tolist()) == {Outcome.OK}
    for made in np.split(sends, range(batch, len(sends), batch)):
        assert made["t_start_ns"].min() >= made["t_intended_ns"].max()
    assert producer.done_message["blocked_ns"] > 0


def test_an_application_that_sends_again_does_so_ten_times_at_most(rig: Rig) -> None:
    """Refused by the client itself, at once: each message is tried until the application gives up."""
    options = {"Producer.MaxMessageBytes": "100"}
    producer = whole_run(
        rig.producer(
            "sarama", rig.topic(), rate=40, load_s=1, results="resent", options=options, version=FIXED
        )
    )
    sends = producer.rows(TableId.SENDS)
    tries: dict[tuple[int, int], list[np.void]] = {}
    for row in sends:
        tries.setdefault((int(row["lane"]), int(row["seq"])), []).append(row)
    assert len(tries) > 10
    done = producer.done_message
    assert (done["attempted"], done["resent"], done["open"]) == (10 * len(tries), 9 * len(tries), 0)
    for rows in tries.values():
        assert [int(row["attempt"]) for row in rows] == list(range(10))
        assert {int(row["outcome"]) for row in rows} == {Outcome.FAIL}
        assert len({(int(row["t_intended_ns"]), int(row["kind"])) for row in rows}) == 1
        for before, after in pairwise(rows):
            assert after["t_start_ns"] - before["t_done_ns"] >= 500_000_000


def test_near_options_are_named(rig: Rig) -> None:
    producer = rig.producer("sarama", rig.topic(), options={"Producer.Retry.Maxx": "1"}, version=FIXED)
    assert producer.wait_end() == 4
    assert "near: Producer.Retry.Max," in producer.errors[-1]["text"]


def test_a_hang_is_judged_from_the_journal_and_shows_where_it_waits(rig: Rig) -> None:
    """sarama #2377: one replica of three is away, and three are demanded."""
    topic = rig.topic(**{"min.insync.replicas": "3"})
    how = {"rate": 200, "load_s": 60, "calls": "batch", "batch": 20, "options": IDEMPOTENT}
    results = {AFFECTED: "checked", FIXED: "resent"}
    runs = {
        version: rig.producer(
            "sarama", topic, version=version, name=f"producer-{version}", results=results[version], **how
        )
        for version in (AFFECTED, FIXED)
    }
    judges = {version: HangDetector(SendSegments(worker.folder), 12) for version, worker in runs.items()}
    for worker in runs.values():
        begin(worker)
    for worker in runs.values():
        worker.wait_stats(lambda stats: stats["ok"] > 100, 40)
    node = rig.cluster.runtime.nodes[0].name
    rig.cluster.runtime.stop(node)
    try:
        hang = None
        deadline = time.monotonic() + 60
        while hang is None and time.monotonic() < deadline:
            time.sleep(CHECK_EVERY_S)
            now_ns = time.monotonic_ns()
            hang = judges[AFFECTED].check(now_ns, is_stopped=runs[AFFECTED].is_stopped)
            assert judges[FIXED].check(now_ns, is_stopped=False) is None
        assert hang is not None
        assert hang.count > 0
        assert hang.last_progress_ns > 0
        found = take_stacks(runs[AFFECTED], RunDir(rig.folder))
        assert found["where"].startswith(
            "github.com/Shopify/sarama.(*syncProducer).SendMessages (sync_producer.go:"
        )
        assert "goroutine" in found["thread"]
        assert runs[AFFECTED].is_alive, "SIGQUIT ended it"
        assert runs[FIXED].wait_stats(lambda stats: stats["fail"] + stats["info"] > 0)
        assert runs[FIXED].stats["exposure"]["retriable_errors"] > 3
    finally:
        rig.cluster.runtime.start(node)
        rig.cluster.admin.wait_ready([topic], timeout_s=60, run_tag=1)
    assert runs[AFFECTED].exit_code is None
    # What became due meanwhile for the first time is sent before what is sent again.
    wait_until("a later attempt is stored", lambda: bool(sent_again(runs[FIXED].rows(TableId.SENDS))))
    runs[FIXED].tell("stop")
    assert runs[FIXED].wait_end() == 0
    runs[AFFECTED].tell("stop")
    assert runs[AFFECTED].wait_end() == 0, "a blocked call must not keep the worker from ending"
    assert runs[AFFECTED].done_message["open"] == hang.count
    sends = runs[AFFECTED].rows(TableId.SENDS)
    assert np.count_nonzero(sends["outcome"] == Outcome.NONE) == hang.count


def sent_again(sends: np.ndarray) -> set[tuple[int, int]]:
    """(lane, seq) of which the first attempt failed and a later one was stored."""

    def names(rows: np.ndarray) -> set[tuple[int, int]]:
        return {(int(row["lane"]), int(row["seq"])) for row in rows}

    first, ok = sends["attempt"] == 0, sends["outcome"] == Outcome.OK
    assert names(sends[~first]) <= names(sends[first & ~ok]), "sent again although it was stored"
    return names(sends[first & ~ok]) & names(sends[~first & ok])
