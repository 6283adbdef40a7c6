"""The load of a run from three machines: addresses of their own, and clocks of their own where the
kernel lets tests have time namespaces. Executors begin in empty folders, and the run is kept in an
S3 bucket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.clusters.security.made import CLIENT
from harness.errors import Exit
from harness.remote.server import MOST_STRANGERS
from harness.rundir import read_json
from harness.systems.kafka.assembly import KafkaCluster
from harness.waiting import wait_until
from tests.driver_rig.external import ACTIONS, commands, connection_file
from tests.live.cluster_rig import ClusterPool, make_whole
from tests.live.printed import follow_summary
from tests.live.run_rig import BROKERSTORM
from tests.s3_server import CREDENTIALS, s3_bucket
from tests.standalone import HOST, free_port, standalone

pytestmark = [pytest.mark.live, pytest.mark.spark]

HOSTS = ("127.0.0.11", "127.0.0.12", "127.0.0.13")
AHEAD_S = (0, 1000, -500)
RUN_S = 300.0
#: What is acknowledged without an answer is lost with the leader. On a busy machine it takes
#: seconds from when the fault is due until the leader is known, and what waits for it would make
#: batches of more than 1,001 messages, whose positions are false
#: (scenarios/bugs/librdkafka-acks0.yaml).
SCENARIO = """
name: several
topics: {orders: {partitions: 6, replication: 3}}
load:
  rate: 3000
  duration: 14s
  warm_up: 1s
  producers:
    shop:
      count: 3
      lanes: partition
      options: {acks: 0, enable.idempotence: false, batch.num.messages: 1000}
  consumers: {billing: {count: 3}}
faults:
  - {fault: kill, target: "leader-of:orders", at: 2s, for: 3s}
require: {delivery: durable, rate_ratio: 0.5}
"""
SAFE = """
name: safe
topics: {orders: {partitions: 3, replication: 3}}
load:
  rate: 300
  duration: 7s
  warm_up: 1s
  producers: {shop: {count: 3, options: {acks: all, enable.idempotence: true}}}
  consumers: {billing: {count: 3}}
faults:
  - {fault: pause, target: "leader-of:orders", at: 1s, for: 3s}
require: {rate_ratio: 0.5}
"""
#: Several times as many as may wait at the driver. Each that comes ends the oldest of those, so a
#: task has `MOST_STRANGERS` times this pause to show its token: most of a second, on a machine that
#: does other things.
STRANGERS = 100
PAUSE_S = 0.05
#: That a driver may grow by in the seconds of a load, strangers or not.
MOST_MB = 200
SENDS = 3000 * (1 + 14)

#: An application that commits every second does again what it did since, when it is killed. A
#: broker that is slow for a minute is sent what it has, so the producer is idempotent.
PIPELINE = """
name: piped
topics: {orders: {partitions: 6}, invoices: {partitions: 3}}
load:
  rate: 1500
  duration: 18s
  warm_up: 1s
  producers: {shop: {topics: [orders], count: 3, lanes: partition, options: {enable.idempotence: true}}}
  consumers: {ledger: {topics: [invoices]}}
  pipelines:
    billing:
      {from: orders, to: invoices, count: 3, commit_every: 1s, consumer_options: {session.timeout.ms: 6000}}
faults:
  - {fault: client-kill, target: "client:billing-1", at: 3s, for: 1s}
  - {fault: client-restart, target: "client:shop-2", at: 6s}
require: {dedup: once, rate_ratio: 0.5}
"""


def clocks() -> list[list[str]]:
    """Words before the command of each Spark worker."""
    namespace = ["unshare", "--time", "--monotonic"]
    allowed = (
        subprocess.run([*namespace, "7", "true"], capture_output=True, check=False).returncode == 0
    )
    return [[*namespace, str(ahead)] if ahead and allowed else [] for ahead in AHEAD_S]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_bucket(tmp_path_factory.mktemp("s3") / "log") as url:
        yield url


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("spark")
    with standalone(folder, HOSTS, before=clocks(), environment=CREDENTIALS) as url:
        yield url


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenario") / "several.yaml"
    path.write_text(SCENARIO)
    return path


def begun(run_dir: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **CREDENTIALS, "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        [*BROKERSTORM, "--run-dir", str(run_dir), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def told(run_dir: Path, *words: str) -> tuple[int, Any, str]:
    process = begun(run_dir, "--json", *words)
    try:
        out, err = process.communicate(timeout=RUN_S)
    finally:
        process.kill()
    return process.returncode, json.loads(out), err


def violations(document: Any) -> set[str]:
    return {each["class"] for each in document["findings"] if each["status"] == "violation"}


def agents() -> list[psutil.Process]:
    """Tasks and workers on the machines of the load."""
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if "brokerstorm-box-" in " ".join(each.info["cmdline"] or [])]


@pytest.mark.extended
def test_three_machines_find_what_one_does(
    master: str, scenario: Path, bucket: str, tmp_path: Path
) -> None:
    one = told(tmp_path / "one", "run", str(scenario), "--seed", "7")
    words = ("--load-master", master, "--load-store", bucket)
    three = told(tmp_path / "three", "run", str(scenario), "--seed", "7", *words)
    assert (one[0], three[0]) == (Exit.FAIL, Exit.FAIL), one[2] + three[2]
    assert violations(three[1]) == violations(one[1]) == {"acked-lost"}
    assert three[1]["sends"]["attempted"] == one[1]["sends"]["attempted"] == SENDS
    (run,) = [path for path in (tmp_path / "three").iterdir() if not path.is_symlink()]
    follow_summary(run)
    executors = read_json(run / "manifest.json")["executors"]
    assert [each["clients"] for each in executors] == [
        [f"producer-shop-{n}", f"consumer-billing-{n}"] for n in (1, 2, 3)
    ]
    here = [
        -ahead_s * 10**9 if words else 0 for ahead_s, words in zip(AHEAD_S, clocks(), strict=True)
    ]
    # Spark numbers tasks as it likes
    found = sorted(executors, key=lambda each: int(each["ahead_ns"]))
    for each, ahead_ns in zip(found, sorted(here), strict=True):
        assert abs(each["ahead_ns"] - ahead_ns) <= each["bound_ns"] < 10**8
    address, _, query = bucket.partition("?")
    there = told(tmp_path / "copy", "show", f"{address}/{run.name}?{query}")
    assert there[1]["sends"] == three[1]["sends"]
    assert agents() == []


@contextmanager
def forwarded(source: tuple[str, int], target: tuple[str, int]) -> Iterator[list[str]]:
    """Carries connections from one address to another, as `ssh -R` does; yields who connected."""
    came: list[str] = []
    listener = socket.create_server(source)

    def carry(reading: socket.socket, writing: socket.socket) -> None:
        with suppress(OSError):
            while data := reading.recv(1 << 16):
                writing.sendall(data)
        with suppress(OSError):
            writing.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                near, peer = listener.accept()
                came.append(peer[0])
                far = socket.create_connection(target)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield came
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def fill(port: int, stop: threading.Event) -> None:
    """Opens `STRANGERS` connections to the driver's port, sends rubbish, then replaces one each
    `PAUSE_S`."""
    links: deque[socket.socket] = deque()
    while not stop.is_set():
        with suppress(OSError):
            link = socket.create_connection((HOST, port), timeout=1.0)
            links.append(link)
            link.sendall(os.urandom(64))
        if len(links) > STRANGERS:
            links.popleft().close()
            stop.wait(PAUSE_S)
    for link in links:
        link.close()


def at_port(process: psutil.Process, port: int, status: str) -> list[str]:
    """Own addresses of the connections of a process at a port, by what they are: LISTEN,
    ESTABLISHED."""
    found = [
        each for each in process.net_connections("tcp") if each.laddr and each.laddr.port == port
    ]
    return [each.laddr.ip for each in found if each.status == status]


@pytest.mark.extended
def test_tasks_come_through_a_tunnel_while_strangers_fill_the_port(
    master: str, tmp_path: Path
) -> None:
    port, end, stop = free_port(), ("127.0.0.21", free_port()), threading.Event()
    path = tmp_path / "safe.yaml"
    path.write_text(SAFE)
    words = (
        "--load-master",
        master,
        "--load-port",
        str(port),
        "--load-address",
        f"{end[0]}:{end[1]}",
    )
    strangers = threading.Thread(target=fill, args=(port, stop), daemon=True)
    with forwarded(end, (HOST, port)) as came:
        process = begun(tmp_path / "runs", "--json", "run", str(path), *words)
        try:
            driver = psutil.Process(process.pid)
            assert wait_until(lambda: at_port(driver, port, psutil.CONN_LISTEN) == [HOST], RUN_S)
            before = driver.memory_info().rss
            strangers.start()
            assert wait_until(lambda: list(tmp_path.glob("runs/*/faults.jsonl")), RUN_S)
            held = len(at_port(driver, port, psutil.CONN_ESTABLISHED))
            grown_mb = (driver.memory_info().rss - before) / 2**20
            out, err = process.communicate(timeout=RUN_S)
        finally:
            stop.set()
            process.kill()
    document = json.loads(out)
    assert (process.returncode, document["reasons"]) == (Exit.PASS, []), err
    assert len(came) == 2 * len(HOSTS), "two connections of each task"
    # Strangers that may wait, the tasks', each of which may be one that waits and one that was let
    # in, and one that was just accepted and ends the oldest.
    assert held <= MOST_STRANGERS + 4 * len(HOSTS) + 1
    assert grown_mb < MOST_MB, (held, grown_mb)


@pytest.mark.extended
@pytest.mark.parametrize("secure", [True, False], ids=["TLS and users", "plain"])
def test_a_cluster_of_others_is_loaded_as_from_one(
    master: str, scenario: Path, pool: ClusterPool, secure: bool, tmp_path: Path
) -> None:
    """Its operator kills the leader. Executors find the authority and the password where the file
    says."""
    cluster: KafkaCluster = pool.get("kafka", secure=secure)
    file = connection_file(cluster, tmp_path, commands(cluster.runtime.folder, *ACTIONS))
    words = ("run", str(scenario), "--seed", "7", "--cluster", str(file))
    try:
        one = told(tmp_path / "one", *words)
        three = told(tmp_path / "three", *words, "--load-master", master)
    finally:
        cluster.runtime.adopt()
        make_whole(cluster)
    assert (one[0], three[0]) == (Exit.FAIL, Exit.FAIL), one[2] + three[2]
    assert violations(three[1]) == violations(one[1]) == {"acked-lost"}
    assert three[1]["sends"]["attempted"] == one[1]["sends"]["attempted"] == SENDS


@pytest.mark.extended
def test_an_executor_without_a_secret_ends_the_run_before_the_load(
    master: str, scenario: Path, pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has it, and there it stays."""
    cluster: KafkaCluster = pool.get("kafka", secure=True)
    assert cluster.made
    file = connection_file(cluster, tmp_path, commands(cluster.runtime.folder, *ACTIONS))
    document = json.loads(file.read_text())
    document["auth"]["password"] = {"env": "STORM_PASSWORD"}
    file.write_text(json.dumps(document))
    monkeypatch.setenv("STORM_PASSWORD", cluster.made.secrets[CLIENT].reveal())
    said = told(tmp_path, "run", str(scenario), "--cluster", str(file), "--load-master", master)
    assert said[0] == Exit.ENVIRONMENT, said
    assert "auth.password: the environment variable STORM_PASSWORD is empty or not set" in str(
        said[1]
    )
    assert agents() == []


@pytest.mark.extended
def test_clients_are_killed_and_pipelines_run_on_other_machines(
    master: str, tmp_path: Path
) -> None:
    path = tmp_path / "piped.yaml"
    path.write_text(PIPELINE)
    code, document, err = told(tmp_path / "runs", "run", str(path), "--load-master", master)
    # Without transactions a kill between output and commit makes an output twice; not every kill
    # comes there.
    twice = violations(document)
    assert twice <= {"input-twice"}, err
    assert code == (Exit.FAIL if twice else Exit.PASS), err
    assert [fault["effective"] for fault in document["faults"]] == [True, True], document["faults"]
    checks = {each["name"]: each for each in document["coverage"]}
    assert checks["capture"]["ok"], checks
    assert checks["drain"]["ok"], checks
    (run,) = [each for each in (tmp_path / "runs").iterdir() if not each.is_symlink()]
    lives = {each["name"]: each["life_of"] for each in read_json(run / "manifest.json")["workers"]}
    assert lives["pipeline-billing-1.2"] == "pipeline-billing-1"
    assert lives["producer-shop-2.2"] == "producer-shop-2"
    assert agents() == []


@pytest.mark.extended
def test_a_machine_that_is_lost_makes_the_run_unknown(
    master: str, scenario: Path, tmp_path: Path
) -> None:
    """Spark then ends the other tasks, too; what they had captured is kept, and the rest accuses
    nobody."""
    kept = ("--set", "load.producers.shop.options.acks=all")
    process = begun(tmp_path, "--json", "run", str(scenario), *kept, "--load-master", master)
    try:
        assert wait_until(
            lambda: len(agents()) >= 9 and list(tmp_path.glob("*/faults.jsonl")), RUN_S
        )
        next(each for each in agents() if "harness.remote.agent" in each.info["cmdline"]).kill()
        out, err = process.communicate(timeout=RUN_S)
    finally:
        process.kill()
    document = json.loads(out)
    assert (process.returncode, document["verdict"]) == (Exit.UNKNOWN, "unknown"), err
    # A busy machine may have been late to answer before it was lost; that text is kept then.
    cut_short = "what ran there was cut short"
    assert any(cut_short in reason for reason in document["reasons"]), document["reasons"]
    assert violations(document) == set()
    assert 0 < document["sends"]["attempted"] < SENDS
    assert agents() == []


@pytest.mark.extended
def test_a_signal_ends_every_worker_everywhere(master: str, scenario: Path, tmp_path: Path) -> None:
    process = begun(tmp_path, "run", str(scenario), "--load-master", master)
    try:
        assert wait_until(lambda: len(agents()) >= 9, RUN_S)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=RUN_S)
    finally:
        process.kill()
    assert process.returncode == Exit.INTERRUPTED, err
    assert "Traceback" not in err
    assert wait_until(lambda: agents() == [], 30.0)


def stores() -> set[psutil.Process]:
    """The S3 servers that this process has started."""
    return {each for each in psutil.Process().children() if "moto" in " ".join(each.cmdline())}


@pytest.mark.extended
def test_a_store_that_goes_away_leaves_the_run_here(
    scenario: Path, master: str, tmp_path: Path
) -> None:
    others = stores()
    with s3_bucket(tmp_path / "log") as bucket:
        (server,) = stores() - others
        words = ("--load-master", master, "--load-store", bucket)
        process = begun(tmp_path / "runs", "--json", "run", str(scenario), *words)
        try:
            assert wait_until(lambda: list(tmp_path.glob("runs/*/faults.jsonl")), RUN_S)
            server.kill()
            out, err = process.communicate(timeout=RUN_S)
        finally:
            process.kill()
    document = json.loads(out)
    assert (process.returncode, document["verdict"]) == (Exit.UNKNOWN, "unknown"), err
    assert violations(document) == set()
    (run,) = [path for path in (tmp_path / "runs").iterdir() if not path.is_symlink()]
    assert f"the run stays in {run}: cannot write s3://" in err
    assert (run / "sealed" / "seal.json").exists()
    left = [each["left"] for each in read_json(run / "manifest.json")["executors"]]
    assert all("NETWORK_CONNECTION" in text for text in left), left
    for text in left:
        shutil.rmtree(text.partition(": ")[0])  # the part, on its machine
