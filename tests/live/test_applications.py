"""Programs under test, on live brokers: instances are killed and restarted, and their outputs
judged."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.errors import Exit
from tests.live.run_rig import ROOT, LiveRun, brokerstorm
from tests.postgres import PASSWORD, postgres, postgres_programs

pytestmark = [pytest.mark.live, pytest.mark.extended]

PROGRAM = ROOT / "scenarios" / "applications" / "python" / "invoices.py"
SCENARIO = f"""
name: application
topics: {{orders: {{partitions: 4}}, invoices: {{partitions: 4}}}}
load:
  rate: 200
  duration: 6s
  warm_up: 1s
  producers: {{shop: {{topics: [orders]}}}}
applications:
  billing:
    run: [{sys.executable}, {PROGRAM}]
    env:
      BOOTSTRAP: "{{bootstrap}}"
      IN: "{{topic:orders}}"
      OUT: "{{topic:invoices}}"
      GROUP: "{{group}}"
      COMMIT: after
    instances: 2
    ready: {{log: started}}
    from: orders
    to: {{topic: invoices}}
    EXTRA
faults:
  - {{fault: client-kill, target: "client:billing-1", at: 2s, for: 1s}}
require: {{rate_ratio: 0.5}}
limits: {{drain: 20s}}
"""


@pytest.mark.parametrize(
    "ready",
    [
        "app-python",
        "app-kafka-streams",
        "app-outbox",
        "app-nats",
        pytest.param("app-spark", marks=pytest.mark.slow),
    ],
)
def test_the_unsafe_variant_shows_the_class_and_the_safe_one_is_clean(
    tmp_path: Path, ready: str
) -> None:
    both_are_as_expected(tmp_path, ready)


def test_a_sink_of_kafka_connect_loses_nothing(tmp_path: Path) -> None:
    said = brokerstorm("--json", "--run-dir", str(tmp_path), "run", "app-connect")
    assert said.code == Exit.PASS, said.err
    assert said.document["verdict"] == "pass"


def both_are_as_expected(run_dir: Path, *arguments: str) -> None:
    said = brokerstorm("--json", "--run-dir", str(run_dir), "run", *arguments)
    assert said.code == Exit.PASS, said.err
    found = {v["name"]: v for v in said.document["variants"]}
    assert found["unsafe"]["as_expected"]
    assert found["safe"]["as_expected"]


def test_the_outbox_keeps_events_in_postgresql_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server (apt-get install postgresql), or no user to run it")
    with postgres(programs) as server:
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        url = server.url.replace("+psycopg", "")
        setting = f"applications.billing.env.DATABASE={url}"
        both_are_as_expected(tmp_path, "app-outbox", "--set", setting)


@pytest.mark.parametrize(
    ("extra", "exit_code", "reason"),
    [
        ("identity: {json: /order/id}", Exit.UNKNOWN, "name no input (identity json: /order/id)"),
        ("group: other", Exit.PASS, ""),
    ],
)
def test_what_is_not_known_of_outputs_is_said(
    tmp_path: Path, extra: str, exit_code: Exit, reason: str
) -> None:
    with LiveRun(tmp_path, scenario=SCENARIO.replace("EXTRA", extra)) as live:
        assert live.wait() == exit_code, live.errors()
        texts = [check["text"] for check in live.document()["coverage"] if not check["ok"]]
        assert reason in "".join(texts)


SINK = """
import os, sqlite3, sys, time, urllib.request
from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": os.environ["BOOTSTRAP"], "group.id": os.environ["GROUP"],
    "enable.auto.commit": False, "auto.offset.reset": "earliest", "session.timeout.ms": 6000,
})
consumer.subscribe([os.environ["IN"]])
print("started", flush=True)
url = os.environ["URL"]
path = os.path.join(os.environ["FOLDER"], "invoices.txt")
file = None if url else open(path, "ab", buffering=0)
database = None
if url.startswith("sqlite:///"):
    database = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
elif url.startswith("postgresql"):
    import psycopg
    database = psycopg.connect(url, password=os.environ["PASSWORD"])
    database.execute("SELECT pg_advisory_xact_lock(7)")
if database:
    run = os.environ["GROUP"]
    columns = "run VARCHAR(200), id VARCHAR(100), stored_ms BIGINT"
    database.execute(f"CREATE TABLE IF NOT EXISTS paid ({columns})")
    database.commit()
def post(line):
    while True:
        try:
            return urllib.request.urlopen(urllib.request.Request(url, data=line)).read()
        except OSError:  # no answer, or 503: it does not know more, and tries again
            time.sleep(0.05)
while True:
    for order in consumer.consume(100, timeout=0.1):
        if order.error() is None and order.key() != b"brokerstorm-probe":
            head = order.value()
            numbers = [int.from_bytes(head[at:at + 4], "little") for at in (8, 12, 16)]
            line = "/".join(map(str, numbers)).encode() + b" paid"
            if file:
                file.write(line + b"\\n")
            elif database:
                row = f"('{run}', '{line.decode().split()[0]}', {time.time_ns() // 1_000_000})"
                database.execute(f"INSERT INTO paid VALUES {row}")
                database.commit()
            else:
                post(line)
            consumer.commit(order, asynchronous=False)
"""


@pytest.mark.parametrize(
    ("to", "url", "identity"),
    [
        ("http: true", "{endpoint}", "regex: '(\\S+) paid'"),
        ("file: '*.txt'", "", "regex: '(\\S+) paid'"),
        ("sql: 'sqlite:///{shared}/x.db', QUERY", "{database}", "column: id"),
    ],
)
def test_outputs_elsewhere_are_judged(tmp_path: Path, to: str, url: str, identity: str) -> None:
    judge_outputs(tmp_path, to, url, identity)


def test_rows_in_postgresql_are_judged_and_its_password_is_nowhere(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server (apt-get install postgresql), or no user to run it")
    (tmp_path / "password").write_text(PASSWORD)
    with postgres(programs) as server:
        to = f"sql: '{server.url}', password: {{file: password}}, QUERY"
        judge_outputs(tmp_path, to, "{database}", "column: id")
    kept = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if PASSWORD.encode() in path.read_bytes()]


OUTPUT_FAULTS = """\
faults:
  - {fault: output-fault, how: drop, share: 0.3, at: 1s, for: 1s}
  - {fault: output-fault, how: refuse, at: 3s, for: 1s}
  - {fault: output-fault, how: delay, delay: 300ms, at: 5s, for: 1s}
"""


@pytest.mark.parametrize(
    ("promise", "exit_code"), [("at-least-once", Exit.PASS), ("exactly-once", Exit.FAIL)]
)
def test_requests_that_are_sent_again_are_judged_by_the_promise(
    tmp_path: Path, promise: str, exit_code: Exit
) -> None:
    text = sink_scenario(tmp_path, "http: true", "{endpoint}", "regex: '(\\S+) paid'")
    text = text.replace("    instances: 2\n", f"    instances: 2\n    promise: {promise}\n")
    # without the kill, whose rebalance stops all requests for seconds
    text = text[: text.index("faults:")] + OUTPUT_FAULTS + text[text.index("require:") :]
    with LiveRun(tmp_path, scenario=text) as live:
        assert live.wait() == exit_code, live.errors()
        (application,) = live.document()["applications"]
        assert application["outputs_again"] > 0
        met = [each for each in live.document()["faults"] if each["kind"] == "output-fault"]
        assert [each["effective"] for each in met] == [True] * 3


def judge_outputs(folder: Path, to: str, url: str, identity: str) -> None:
    """Run a program that leaves its outputs elsewhere than in a topic; each must be found."""
    with LiveRun(folder, scenario=sink_scenario(folder, to, url, identity)) as live:
        assert live.wait() == Exit.PASS, live.errors()
        (application,) = live.document()["applications"]
        assert application["outputs"] >= 700
        assert application["drained"]


def sink_scenario(folder: Path, to: str, url: str, identity: str) -> str:
    """A scenario of a program that leaves its outputs elsewhere than in a topic."""
    (folder / "sink.py").write_text(SINK)
    query = "query: 'SELECT id, stored_ms FROM paid WHERE run = :group', time: stored_ms"
    extra = f"restarts: always\n    identity: {{{identity}}}"
    text = SCENARIO.replace("EXTRA", extra)
    text = text.replace("{topic: invoices}", f"{{{to}}}").replace("QUERY", query)
    text = text.replace(str(PROGRAM), str(folder / "sink.py")).replace(
        ", invoices: {partitions: 4}", ""
    )
    password = '"{database-password}"' if "password" in to else "none"
    places = f'URL: "{url}"\n      FOLDER: "{{folder}}"\n      PASSWORD: {password}'
    text = text.replace('OUT: "{topic:invoices}"', places)
    return text.replace("rate: 200", "rate: 100")


FAULTS = """
  - {fault: latency, link: "application:billing-1", target: kafka-1, delay: 300ms, at: 1s, for: 2s}
  - {fault: rolling-restart, target: "client:billing", at: 4s}
  - {fault: scale, target: "client:billing", to: 3, at: 9s, for: 3s}
  - {fault: clock-jump, target: "client:billing-2", at: 9s, for: 3s}
  - {fault: scale, target: "client:billing", to: 1, at: 14s, for: 3s}
"""


def test_every_fault_on_instances_takes_effect_and_no_input_is_skipped(tmp_path: Path) -> None:
    text = SCENARIO.replace("EXTRA", "").replace("duration: 6s", "duration: 19s")
    text = text[: text.index("  - {fault")] + FAULTS.lstrip("\n") + text[text.index("require:") :]
    with LiveRun(tmp_path, scenario=text) as live:
        assert live.wait() == Exit.PASS, live.errors()
        document = live.document()
        assert all(fault["effective"] and fault["healed"] for fault in document["faults"])
        latency, rolled, *_ = document["faults"]
        assert "(application-billing-1 -> kafka-1)" in latency["evidence"]
        assert "2 of 2 clients restarted" in rolled["evidence"]
        (application,) = document["applications"]
        assert application["outputs"] >= 4_000
        assert application["lives"] == 2 + 2 + 1 + 1
