"""Workers on real brokers: every one keeps the worker contract (`harness.contract`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from harness.contract import WorkerCheck, checks_of
from harness.contract.driving import READY_S, NotHere, messages, outcomes, places
from harness.contract.rig import RUN_TAG, CheckPlace, Rig
from harness.contract.running import run_checks, self_test
from harness.errors import WorkerError
from harness.records import Check as Payload
from harness.records import Event, Outcome, TableId
from harness.run.hangs import take_stacks
from harness.run.liveness import CHECK_EVERY_S, HangDetector, SendSegments
from harness.rundir import RunDir
from harness.systems import DEFAULT
from harness.workers import known_workers, load_worker
from harness.workers.spec import WorkerSpec
from tests.live.cluster_rig import ClusterPool, wait_until
from tests.page_worker import write_page_worker
from workers.python_kit.worker_kit import payload

pytestmark = pytest.mark.live


def name_of(worker: WorkerSpec) -> str:
    """Begins with the system: `tests.scheduling` divides the tests by it."""
    return f"{worker.system} {worker.library}"


@pytest.mark.parametrize("worker", list(known_workers().values()), ids=name_of)
def test_the_self_test_writes_the_golden_files(worker: WorkerSpec) -> None:
    try:
        self_test(worker)
    except WorkerError as error:
        if "requires go >=" in str(error):
            pytest.skip(f"{worker.library}: {error}")
        raise


# ----- what only one worker is asked --------------------------------------------------------------


@pytest.fixture
def rig(pool: ClusterPool, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """For the worker that the test is about: `about`."""
    worker = load_worker(request.param)
    made = Rig(CheckPlace(pool.get(worker.system), tmp_path), worker)
    yield made
    made.close()


def about(library: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "rig", [library], indirect=True, ids=[name_of(load_worker(library))]
    )


@about("confluent-kafka")
def test_a_full_queue_may_be_a_fail(rig: Rig) -> None:
    topic, options = rig.topic(), {"queue.buffering.max.messages": "50", "linger.ms": "20"}
    asked = {"when_full": "fail"}
    fails = rig.producer(
        topic, rate=5000, warm_up_s=0, load_s=1, options=options, asked=asked
    ).send_all()
    sends = fails.sends
    assert outcomes(sends) == {Outcome.OK, Outcome.FAIL}
    refused = sends[sends["outcome"] == Outcome.FAIL]
    assert [text.partition(":")[0] for text in fails.errors_of(refused)] == ["_QUEUE_FULL"]
    assert len(rig.stored(topic)) == fails.done_line.ok


@about("confluent-kafka")
def test_audit_names_what_is_not_ours(rig: Rig) -> None:
    topic = rig.topic()
    how = {"instance": 1, "lane": 0, "seq": 0, "t_intended_ns": 1, "length": 100}
    ours, other = payload.encode(run_tag=RUN_TAG, **how), payload.encode(run_tag=1, **how)
    producer = Producer({"bootstrap.servers": rig.cluster.bootstrap})
    for value in (ours, ours[:-1] + bytes([ours[-1] ^ 1]), ours[:60], b"hello", None, other):
        producer.produce(topic, value, b"k", 2)
    assert producer.flush(10) == 0
    audit = rig.audit(topic)
    log = audit.rows(TableId.LOG)
    log = log[log["stream"] == 3]
    assert log["check"].tolist() == [
        Payload.OK,
        Payload.OK,
        Payload.CORRUPT,
        Payload.CORRUPT,
        Payload.FOREIGN,
        Payload.FOREIGN,
        Payload.OTHER_RUN,
    ]  # fmt: skip - the first is the probe
    assert log["position"].tolist() == list(range(7))
    assert (log["broker_time_ms"] > 1.6e12).all()
    bounds = audit.bounds()[f"{topic}-2"]
    assert (bounds["begin"], bounds["end"], bounds["read_to"], bounds["why"]) == (0, 7, 7, "end")
    assert audit.bounds()[f"{topic}-0"]["why"] == "end"


@about("confluent-kafka")
def test_audit_of_transactions(rig: Rig) -> None:
    topic = rig.topic()
    producer = Producer({"bootstrap.servers": rig.cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"x", None, 0)
        producer.flush(10)
        (producer.commit_transaction if commit else producer.abort_transaction)(10)
    for isolation, count in (("read_uncommitted", 30), ("read_committed", 20)):
        audit = rig.audit(topic, isolation=isolation)
        log = audit.rows(TableId.LOG)
        assert np.count_nonzero(log["check"] == Payload.FOREIGN) == count
        bounds = audit.bounds()[f"{topic}-0"]
        assert (bounds["end"], bounds["read_to"], bounds["why"]) == (34, 34, "end"), (
            "markers have offsets too"
        )
        assert bounds["isolation"] == isolation


@pytest.mark.slow
@about("confluent-kafka")
def test_audit_gives_one_stalled_partition_up_and_reads_the_others(rig: Rig) -> None:
    topic = rig.topic(replication=1)
    rig.feed(topic, rate=20_000, warm_up_s=0, load_s=2)
    leaders = rig.cluster.admin.leaders(topic)
    node = leaders[0]
    assert node is not None
    # small fetches, so that the audit is still reading when the broker freezes
    slow = {
        "fetch.message.max.bytes": "50000",
        "queued.min.messages": "1",
        "queued.max.messages.kbytes": "1",
    }
    audit = rig.auditor(topic, stall_s=8, options=slow)
    audit.wait_ready(READY_S)
    audit.tell("start 1")
    try:
        audit.wait_stats(lambda stats: stats.read > 0)
        rig.cluster.runtime.pause(node)
        assert audit.wait_done(90)
    finally:
        rig.cluster.runtime.resume(node)
        rig.wait_ready(topic)
    bounds = audit.bounds()
    stalled = {f"{topic}-{p}" for p, leader in leaders.items() if leader == node}
    assert {name for name, row in bounds.items() if row["why"] == "stall"} == stalled
    assert all(row["read_to"] == row["end"] for name, row in bounds.items() if name not in stalled)
    assert all(row["read_to"] < row["end"] for name, row in bounds.items() if name in stalled)
    log = audit.rows(TableId.LOG)
    for row in bounds.values():
        positions = log["position"][log["stream"] == row["stream_id"]]
        assert positions.tolist() == list(range(row["read_to"]))


AFFECTED, FIXED = "1.37.2", "1.38.0"
IDEMPOTENT = {
    "Producer.Idempotent": "true",
    "Producer.RequiredAcks": "WaitForAll",
    "Net.MaxOpenRequests": "1",
    "Producer.Timeout": "2s",
}


@about("sarama")
def test_a_hang_is_judged_from_the_journal_and_shows_where_it_waits(rig: Rig) -> None:
    """sarama #2377: one replica of three is away, and three are demanded."""
    topic = rig.topic(config={"min.insync.replicas": "3"})
    calls = {"calls": "batch", "batch": 20}
    asked = {AFFECTED: calls, FIXED: {**calls, "results": "resent"}}
    runs = {
        version: rig.producer(
            topic, rate=200, load_s=60, options=IDEMPOTENT, version=version, name=version, asked=how
        )
        for version, how in asked.items()
    }
    judges = {
        version: HangDetector(SendSegments(worker.folder), 12) for version, worker in runs.items()
    }
    for worker in runs.values():
        worker.begin()
    for worker in runs.values():
        worker.wait_stats(lambda stats: stats.ok > 100, 40)
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
        assert runs[FIXED].wait_stats(lambda stats: stats.fail + stats.info > 0)
        assert runs[FIXED].stats.exposure["retriable_errors"] > 3
    finally:
        rig.cluster.runtime.start(node)
        rig.wait_ready(topic)
    assert runs[AFFECTED].exit_code is None
    # What became due meanwhile for the first time is sent before what is sent again.
    wait_until("a later attempt is stored", lambda: bool(sent_again(runs[FIXED].sends)))
    runs[FIXED].tell("stop")
    assert runs[FIXED].wait_end() == 0
    runs[AFFECTED].tell("stop")
    assert runs[AFFECTED].wait_end() == 0, "a blocked call must not keep the worker from ending"
    assert runs[AFFECTED].done_line.open == hang.count
    sends = runs[AFFECTED].sends
    assert np.count_nonzero(sends["outcome"] == Outcome.NONE) == hang.count


def sent_again(sends: np.ndarray) -> set[tuple[int, int]]:
    """(lane, seq) of which the first attempt failed and a later one was stored."""

    def names(rows: np.ndarray) -> set[tuple[int, int]]:
        return {(int(row["lane"]), int(row["seq"])) for row in rows}

    first, ok = sends["attempt"] == 0, sends["outcome"] == Outcome.OK
    assert names(sends[~first]) <= names(sends[first & ~ok]), "sent again although it was stored"
    return names(sends[first & ~ok]) & names(sends[~first & ok])


@pytest.mark.parametrize(
    ("right", "wrong", "check", "words"),
    [
        (
            "told.offset,",
            "told.offset + 1,",
            "every send is one row with one outcome",
            "not where the client says",
        ),
        (
            "lay.FAIL, f",
            "lay.INFO, f",
            "too large for the client is a fail",
            "outcomes: INFO, must be FAIL",
        ),
    ],
    ids=["kafka a wrong place", "kafka a refusal that is called unknown"],
)
def test_a_worker_that_breaks_the_contract_is_found(
    pool: ClusterPool, tmp_path: Path, right: str, wrong: str, check: str, words: str
) -> None:
    """That of docs/howto/add-a-worker.md, with one thing wrong."""
    folder = write_page_worker(tmp_path)
    program = folder / "worker.py"
    assert right in program.read_text()
    program.write_text(program.read_text().replace(right, wrong))
    worker = WorkerSpec.read(folder)
    chosen = next(each for each in checks_of(worker) if each.name == check)
    (result,) = run_checks([chosen], CheckPlace(pool.get(worker.system), tmp_path), worker)
    assert result.outcome == "broken"
    assert words in result.text


# ----- what every worker is asked, one system after the other -------------------------------------


def kit_of(worker: WorkerSpec) -> tuple[str, bool]:
    """The kit that it shares with other workers: that of its language; of Python, whether that of
    asyncio."""
    programs = [path.read_text() for path in worker.folder.glob("*.py")]
    return worker.language, any("worker_kit.asyncio" in text for text in programs)


#: What rests on a client more than on its kit: by every change, every worker is asked this.
OF_EVERY_CLIENT = {
    "every send is one row with one outcome",
    "every stream is read to its last message",
    "what was acknowledged is not given again",
    "refused messages come again",
    "a member journals what it saw and committed",
    "no acknowledgement covers what the application was not given",
    "refused by the broker is a fail",
    "of each message one is made",
    "sends have the outcome of their transaction",
}


#: The worker that is asked everything.
FIRST = DEFAULT.client
#: Waits for timeouts, or starts several clients: no change has all workers of one kit asked this.
DEARER = {
    "a consumer that is fenced is reported and lives on",
    "a full queue is waited for",
    "an application that sends again does so ten times at most",
    "an older version writes the same rows",
    "brokers that do not answer end it before ready",
    "headers are sent",
    "no answer in time is info and a full queue a fail",
    "outputs and positions are in one transaction",
    "a producer that is fenced is reported and lives on",
    "a producer that gives itself up is reported and lives on",
    "a refused secret ends it before ready and is left nowhere",
    "what failed is sent again until it is stored",
    "work on a message delays neither heartbeats nor commits",
}
#: What the kit makes is equal byte for byte in the golden files, for every worker in every
#: language.
IN_GOLDEN_FILES = {
    "a rate profile is followed",
    "payloads are whole whatever their filling",
    "sizes are those of a table",
    "sizes differ by message",
}


def asked() -> Iterator[Any]:
    """Worker and check of everything that can be asked.

    For every change, `FIRST` is asked everything. The first worker of each other kit is asked all
    that is cheap and that its golden files do not show, and the others what rests on their client.
    """
    workers = sorted(known_workers().values(), key=lambda worker: (worker.system, worker.library))
    of_kits = {
        kit_of(worker): worker for worker in reversed(workers) if worker.system == DEFAULT.name
    }
    for worker in workers:
        for check in checks_of(worker):
            of_its_kit = worker in of_kits.values()
            marks = []
            if check.is_slow(worker) or (check.by_kit and not of_its_kit):
                marks.append(pytest.mark.slow)
            asked_of_one = check.name in DEARER | IN_GOLDEN_FILES and worker.library != FIRST
            if check.name not in OF_EVERY_CLIENT and (not of_its_kit or asked_of_one):
                marks.append(pytest.mark.extended)
            name = f"{worker.system} {worker.library}: {check.name}"
            if not check.missing(worker):
                yield pytest.param(worker, check, id=name, marks=marks)


#: Checks that run on a cluster at the same time: each of them waits most of the time.
AT_A_TIME = 3


@pytest.mark.parametrize(("worker", "check"), list(asked()))
def test_contract(
    request: pytest.FixtureRequest,
    pool: ClusterPool,
    worker: WorkerSpec,
    check: WorkerCheck,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cluster = pool.get(worker.system)
    for nodeid, each in [(request.node.nodeid, check), *next_checks(request.node)]:
        place = CheckPlace(cluster, tmp_path_factory.mktemp("check"))
        pool.begin(nodeid, partial(run_check, each, place, worker))
    try:
        pool.result(request.node.nodeid)
    except NotHere as error:
        pytest.skip(str(error))


def run_check(check: WorkerCheck, place: CheckPlace, worker: WorkerSpec) -> None:
    rig = Rig(place, worker)
    try:
        check.run(rig)
    finally:
        rig.close()


def next_checks(test: pytest.Function) -> list[tuple[str, WorkerCheck]]:
    """Node ids and checks of the tests that follow, as far as they can run at the same time as
    ``test``."""
    found: list[tuple[str, WorkerCheck]] = []
    worker, check = test.callspec.params["worker"], test.callspec.params["check"]
    tests = test.session.items
    begin = tests.index(test) + 1
    for later in tests[begin : begin + AT_A_TIME - 1]:
        params = later.callspec.params if hasattr(later, "callspec") else {}
        if check.freezes_brokers or params.get("worker") is not worker or "check" not in params:
            break
        check = params["check"]
        if check.freezes_brokers:
            break
        found.append((later.nodeid, check))
    return found


@pytest.mark.slow
@about("pulsar-client-java")
def test_failover_gives_the_streams_to_who_is_left(rig: Rig) -> None:
    """The Java client tells of its turns; all before a cumulative acknowledgement is settled."""
    topic = rig.topic()
    how, options = {"settle": "cumulative"}, {"subscriptionType": "Failover"}
    first = rig.consumer(topic, **how, options={**options, "consumerName": "a"})
    second = rig.consumer(topic, **how, options={**options, "consumerName": "b"})
    before = rig.feed(topic, mode="key").done_line.ok
    deadline = time.monotonic() + 60
    while sum(consumer.stats.delivered for consumer in (first, second)) < before:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.tell("stop")
    assert first.wait_end() == 0
    after = rig.feed(topic, mode="key")
    second.wait_stats(lambda stats: stats.delivered >= after.done_line.ok, 60)
    second.tell("stop")
    assert second.wait_end() == 0
    turns = second.events(Event.ASSIGN)
    assert set(turns["stream"].tolist()) == set(range(1, 7))
    assert (np.diff(turns["epoch"].astype(np.int64)) >= 1).all()
    got = second.events(Event.DELIVER)
    assert set(messages(after.sends)) <= set(messages(got["header"]))
    confirmed = second.events(Event.ACK_CONFIRMED)
    for stream in range(1, 7):
        last = max(places(got[got["stream"] == stream]))
        assert max(places(confirmed[confirmed["stream"] == stream])) == last
