"""Programs under test, on live brokers: instances are killed and restarted, and their outputs
judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.clusters.limits.groups import why_not
from harness.errors import Exit
from harness.rundir import read_json
from harness.systems.kafka.assembly import KafkaCluster
from harness.waiting import wait_until
from tests.driver_rig.external import connection_file
from tests.live.cluster_rig import ClusterPool
from tests.live.run_rig import BROKERSTORM, ROOT, RUN_TIMEOUT_S, LiveRun, brokerstorm
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
        pytest.param("app-flink", marks=pytest.mark.slow),
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


#: The program, whose first instance takes more memory than it may when it runs for the first time.
HOG = f"""
import os, runpy, threading, time

def eat():
    time.sleep(3)
    held = b"x" * (400 << 20)
    time.sleep(600)

mark = os.path.join(os.environ["FOLDER"], "ate")
if os.environ["INSTANCE"] == "1" and not os.path.exists(mark):
    open(mark, "w").close()
    threading.Thread(target=eat, daemon=True).start()
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""


def test_instances_have_no_more_cpu_and_memory_than_their_limits(tmp_path: Path) -> None:
    for controller in ("cpu", "memory"):
        if reason := why_not(controller):
            pytest.skip(reason)
    (tmp_path / "hog.py").write_text(HOG)
    extra = "restarts: always\n    limits: {cpu: 0.2, memory: 250MB}"
    text = SCENARIO.replace("EXTRA", extra).replace(str(PROGRAM), "hog.py")
    text = text.replace("duration: 6s", "duration: 12s")
    own = 'FOLDER: "{folder}"\n      INSTANCE: "{instance}"'
    text = text.replace("COMMIT: after", f"COMMIT: after\n      {own}")
    text = text[: text.index("faults:")] + text[text.index("require:") :]
    with LiveRun(tmp_path, scenario=text) as live:
        assert live.wait() == Exit.PASS, live.errors()
        ended = (live.root / "events.jsonl").read_text()
        assert "because it needed more than its limit of 250 MB memory" in ended
        assert "application-billing-1 had to wait" in live.errors()
        (application,) = live.document()["applications"]
        assert application["lives"] == 3


@pytest.mark.parametrize(
    ("within", "exit_code", "ended_by"),
    [("10s", Exit.PASS, 0), ("100ms", Exit.FAIL, -signal.SIGKILL)],
)
def test_an_instance_that_is_stopped_loses_orders_only_without_time_to_finish(
    tmp_path: Path, within: str, exit_code: Exit, ended_by: int
) -> None:
    """It commits before it writes, so that only what it finishes in time is written."""
    step = f'  - {{fault: client-restart, target: "client:billing-1", stop_within: {within}, at: 3s}}\n'
    text = SCENARIO.replace("EXTRA", "").replace("COMMIT: after", "COMMIT: before")
    text = text[: text.index("  - {fault")] + step + text[text.index("require:") :]
    with LiveRun(tmp_path, scenario=text) as live:
        assert live.wait() == exit_code, live.errors()
        classes = [each["class"] for each in live.document()["findings"]]
        assert ("input-skipped" in classes) == (exit_code == Exit.FAIL)
        lives = read_json(live.root / "manifest.json")["applications"]
        (first,) = [life for life in lives if life["name"] == "application-billing-1"]
        assert first["exit_code"] == ended_by


ELSEWHERE = """
name: elsewhere
topics: {orders: {partitions: 4}, invoices: {partitions: 4}}
load:
  rate: 200
  duration: 14s
  warm_up: 1s
  producers: {shop: {topics: [orders]}}
applications:
  billing:
    instances: 2
    from: orders
    to: {topic: invoices}
require: {rate_ratio: 0.5}
limits: {drain: 20s}
"""


def test_an_application_that_the_user_started_is_judged_while_its_instances_change(
    pool: ClusterPool, tmp_path: Path
) -> None:
    cluster: KafkaCluster = pool.get("kafka")
    file = connection_file(cluster, tmp_path, {})
    scenario, runs, notes = tmp_path / "x.yaml", tmp_path / "runs", tmp_path / "stderr"
    scenario.write_text(ELSEWHERE)
    words = ["--json", "--run-dir", str(runs), "run", str(scenario), "--cluster", str(file)]
    own = {
        "IN": "brokerstorm-orders",
        "OUT": "brokerstorm-invoices",
        "GROUP": "brokerstorm-billing",
    }
    environment = {**os.environ, **own, "BOOTSTRAP": cluster.bootstrap, "COMMIT": "after"}

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(PROGRAM)], env=environment)

    def is_loading() -> bool:
        paths = list(runs.glob("*-elsewhere/manifest.json"))
        return bool(paths) and "load" in [each["name"] for each in read_json(paths[0])["phases"]]

    instances: list[subprocess.Popen[bytes]] = []
    with (
        notes.open("w") as stderr,
        subprocess.Popen([*BROKERSTORM, *words], stdout=subprocess.PIPE, stderr=stderr) as run,
    ):
        try:
            waits = "waiting for the members"
            assert wait_until(lambda: waits in notes.read_text() or run.poll() is not None, 120)
            instances += [begin(), begin()]
            assert wait_until(lambda: is_loading() or run.poll() is not None, 120)
            instances[0].kill()
            instances.append(begin())
            out, _ = run.communicate(timeout=RUN_TIMEOUT_S)
        finally:
            run.kill()
            for each in instances:
                each.kill()
                each.wait()
    assert run.returncode == Exit.PASS, notes.read_text()
    (application,) = json.loads(out)["applications"]
    assert application["outputs"] >= 3_000
    assert application["lives"] == 3
    assert application["drained"]
