"""Metrics of a run in progress: counted from what workers write, once each, and the same by both
ways out."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from harness.errors import EnvironmentNotReady
from harness.records import RAW, SEGMENT_HEADER_BYTES, Event, Kind, Outcome, TableId
from harness.rundir import RunDir, append_jsonl
from harness.telemetry.instruments import (
    CONSUMED,
    FAULT_ACTIVE,
    INSTRUMENTS,
    OPEN_CALLS,
    SEND_DURATION,
    SENT,
)
from harness.telemetry.otlp import OtlpPush
from harness.telemetry.prometheus import PrometheusPage
from harness.telemetry.run_follower import RunFollower
from harness.telemetry.telemetry import Telemetry
from tests.collector import Collector, collecting
from tests.planted.raw import Rows, segment_bytes, write_worker_names
from tests.unit.seal_rows import new_run, plan_of

ROOM = 8
MS = 1_000_000


def segment(run: RunDir, worker: str, table: TableId, index: int = 0) -> Rows:
    """A segment as a worker maps it, without a row so far."""
    folder = run.worker(worker)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table.name.lower()}-1-{index:06d}.seg"
    path.write_bytes(segment_bytes(table, np.zeros(ROOM, RAW[table]), owner=1))
    return np.memmap(path, RAW[table], "r+", SEGMENT_HEADER_BYTES, (ROOM,))


def answer(row: Rows, outcome: Outcome, took_ns: int, error: int = 0) -> None:
    row["t_done_ns"], row["error"] = row["t_start_ns"] + took_ns, error
    row["outcome"] = outcome


def offer(rows: Rows, numbers: range) -> None:
    for number in numbers:
        rows[number]["t_start_ns"] = 1_000 * MS
        rows[number]["kind"] = Kind.LOAD
        rows[number]["state"] = 1


def sums(follower: RunFollower, key: str) -> dict[str, float]:
    """Sent messages by one of their attributes."""
    found: dict[str, float] = {}
    for known, value in follower.values()[SENT].items():
        name = dict(known).get(key, "")
        assert isinstance(value, int)
        found[name] = found.get(name, 0) + value
    return found


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return new_run(tmp_path / "20261123-kafka-smoke")


@pytest.fixture
def follower(run: RunDir) -> RunFollower:
    return RunFollower(plan_of(), run, run.run_id)


def test_a_send_counts_once_when_it_is_answered(run: RunDir, follower: RunFollower) -> None:
    """Answers come in any order; a row that a full queue takes back stands for another message
    later."""
    rows = segment(run, "p-1", TableId.SENDS)
    write_worker_names(
        run, "p-1", [("stream", "orders-0"), ("error", "_MSG_TIMED_OUT: Local: timed out")]
    )
    offer(rows, range(4))
    answer(rows[2], Outcome.OK, 3 * MS)
    follower.read()
    assert sums(follower, "brokerstorm.outcome") == {"ok": 1}
    assert set(follower.values()[OPEN_CALLS].values()) == {3, 0}

    rows[3]["state"] = 0
    answer(rows[0], Outcome.INFO, 40 * MS, error=2)
    follower.read()
    offer(rows, range(3, ROOM))
    answer(rows[3], Outcome.OK, 3 * MS)
    offer(more := segment(run, "p-1", TableId.SENDS, index=1), range(1))
    answer(more[0], Outcome.FAIL, 0)
    for _ in range(2):
        follower.read()
        assert sums(follower, "brokerstorm.outcome") == {"ok": 2, "info": 1, "fail": 1}
    assert sums(follower, "error.type") == {"": 2, "_MSG_TIMED_OUT": 1, "_OTHER": 1}

    follower.close()
    assert sums(follower, "error.type")["no_answer"] == 5  # row 1 and rows 4 .. 7
    assert set(follower.values()[OPEN_CALLS].values()) == {0}


def test_durations_are_whole_distributions(run: RunDir, follower: RunFollower) -> None:
    rows = segment(run, "p-1", TableId.SENDS)
    offer(rows, range(3))
    for row, took_ns in zip(rows, (5 * MS, 5 * MS + 1, 60_000 * MS), strict=False):
        answer(row, Outcome.OK, took_ns)
    follower.read()
    ((known, found),) = follower.values()[SEND_DURATION].items()
    assert dict(known)["messaging.operation.type"] == "send"
    assert not isinstance(found, float)
    # a bound is of its bucket, the last has no bound
    assert found.counts.tolist() == [1, 1, *[0] * 12, 1]
    assert (found.sum_s, found.min_s, found.max_s) == pytest.approx((60.01, 0.005, 60.0))


def test_what_consumers_are_handed(run: RunDir, follower: RunFollower) -> None:
    rows = segment(run, "c-1", TableId.DELIVERIES)
    for row, kind, stream in zip(
        rows, (Event.ASSIGN, Event.DELIVER, Event.DELIVER), (1, 1, 99), strict=False
    ):
        row["stream"], row["kind"] = stream, kind
    follower.read()
    found = {
        dict(known).get("messaging.destination.name"): n
        for known, n in follower.values()[CONSUMED].items()
    }
    assert found == {"orders": 1, None: 1}  # a stream that the plan does not know has no name
    assert {dict(known)["messaging.system"] for known in follower.values()[CONSUMED]} == {"kafka"}


def test_faults_begin_and_end(run: RunDir, follower: RunFollower) -> None:
    fault = {"id": 1, "kind": "kill", "target": "random"}
    append_jsonl(run.faults, {**fault, "event": "inject", "t_ns": 10**9, "targets": ["kafka-2"]})
    with run.faults.open("a") as file:
        # a line that is being written
        file.write('{"id": 1, "event": "healed", "t_ns": 2000000000, "ok"')
        file.flush()
        follower.read()
        ((known, value),) = follower.values()[FAULT_ACTIVE].items()
        assert (dict(known)["brokerstorm.fault.target"], value) == ("kafka-2", 1)
        file.write(": true}\n")
    follower.read()
    assert set(follower.values()[FAULT_ACTIVE].values()) == {0}


def fill(run: RunDir) -> None:
    """A little of everything."""
    rows = segment(run, "p-1", TableId.SENDS)
    offer(rows, range(3))
    answer(rows[0], Outcome.OK, 20 * MS)
    answer(rows[1], Outcome.INFO, 3 * MS)
    deliveries = segment(run, "c-1", TableId.DELIVERIES)
    deliveries[0]["stream"], deliveries[0]["kind"] = 1, Event.DELIVER
    deliveries[0]["header"]["kind"] = Kind.LOAD
    inject = {"id": 1, "kind": "kill", "event": "inject", "t_ns": 10**9, "targets": ["kafka-2"]}
    append_jsonl(run.faults, inject)
    append_jsonl(run.events, {"worker": "p-1", "kind": "disconnect", "t_ns": 1})
    usage = {"t_ns": time.monotonic_ns(), "cpu_s": 1.5, "rss_bytes": 1 << 20}
    append_jsonl(run.metrics, {**usage, "worker": "p-1", "late_max_ns": 4 * MS, "blocked_ns": 0})
    append_jsonl(run.metrics, {**usage, "node": "kafka-1"})


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


def served(url: str) -> dict[str, float]:
    """The same of a page; names as Prometheus has them."""
    with urllib.request.urlopen(url) as page:
        text = page.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_sum", "_created")):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_both_ways_out_say_the_same(run: RunDir, collector: Collector) -> None:
    told: list[str] = []
    telemetry = Telemetry()
    telemetry.open(lambda now: PrometheusPage("127.0.0.1", 0, now))
    telemetry.open(lambda now: OtlpPush(f"{collector.url}/v1/metrics", now, tell=told.append))
    fill(run)
    telemetry.begin(plan_of(), run, run.run_id)
    telemetry.phase("load")
    telemetry.end()
    page = served(telemetry.urls[0])
    telemetry.close()
    last = collector.last()
    assert last.keys() == {each.name for each in INSTRUMENTS}  # `fill` has something of each
    names = {
        each.name: next(name for name in page if name.startswith(each.name.replace(".", "_")))
        for each in INSTRUMENTS
    }
    assert {name: page[names[name]] for name in last} == pytest.approx(last)
    assert last["messaging.client.sent.messages"] == 3
    assert last["messaging.client.operation.duration"] == 2  # one was never answered
    assert told == []


def test_a_collector_that_is_not_there_is_told_of_once(run: RunDir, unused_port: int) -> None:
    told: list[str] = []
    url = f"http://user:secret@127.0.0.1:{unused_port}/v1/metrics"
    telemetry = Telemetry()
    telemetry.open(lambda now: OtlpPush(url, now, tell=told.append))
    telemetry.begin(plan_of(), run, run.run_id)
    telemetry.phase("load")
    telemetry.end()
    telemetry.close()
    (line,) = told
    assert f"127.0.0.1:{unused_port}/v1/metrics" in line
    assert "Connection refused" in line
    assert "secret" not in line


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_that_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EnvironmentNotReady, match=f"127.0.0.1:{port}: Address already in use"):
            PrometheusPage("127.0.0.1", port, lambda: ({}, 0, 0))


def test_nothing_is_read_when_nobody_asked(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.telemetry.telemetry.RunFollower", None)
    before = threading.active_count()
    telemetry = Telemetry()
    telemetry.begin(plan_of(), run, run.run_id)
    telemetry.phase("load")
    telemetry.end()
    assert threading.active_count() == before
    telemetry.close()


# ----- the dashboard ------------------------------------------------------------------------------

DASHBOARD = Path(__file__).resolve().parents[2] / "examples" / "grafana" / "brokerstorm.json"
#: A name with the selector that follows it, in an expression or in `label_values(...)`.
NAMES = re.compile(r"\b((?:messaging|brokerstorm)_\w+)(?:\{([^}]*)\})?")


def expressions(document: dict[str, Any]) -> list[str]:
    """Everything that the dashboard asks Prometheus."""
    targets = [target for panel in document["panels"] for target in panel["targets"]]
    asked = [each["expr"] for each in (*targets, *document["annotations"]["list"])]
    return asked + [
        each["query"] for each in document["templating"]["list"] if "label_values" in each["query"]
    ]


def test_the_dashboard_is_one_of_grafana() -> None:
    """Read into Grafana's JSON model and written again it is the same; only of annotations does the
    model not know what belongs to the data source."""
    document = json.loads(DASHBOARD.read_text())
    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(document)))
    for annotation in document["annotations"]["list"]:
        for key in ("titleFormat", "useValueForTime", "step"):
            del annotation[key]
    assert again == document


def test_the_dashboard_asks_for_what_is_there(run: RunDir) -> None:
    """Names and labels of its expressions are those that Prometheus gets, and no metric is left
    out."""
    fill(run)
    follower = RunFollower(plan_of(), run, run.run_id)
    follower.phase("load")
    follower.read()
    page = PrometheusPage("127.0.0.1", 0, lambda: (follower.values(), 0, 0))
    with urllib.request.urlopen(page.url) as answer_:
        families = list(text_string_to_metric_families(answer_.read().decode()))
    page.close()
    samples = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    known = {label for found in samples.values() for label in found} - {"le"}
    asked: set[str] = set()
    for text in expressions(json.loads(DASHBOARD.read_text())):
        names = {name for name, _ in NAMES.findall(text) if name not in known}
        assert names, text
        assert names <= samples.keys(), text
        asked |= names
        for name, selector in NAMES.findall(text):
            assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= samples.get(name, set()), text
        for grouped in re.findall(r"by \(([^)]*)\)", text):
            assert set(re.split(r",\s*", grouped)) <= known | {"le"}, text
    families_asked = {
        family.name for family in families if any(s.name in asked for s in family.samples)
    }
    assert families_asked == {family.name for family in families}
