"""Whole runs from outside: a verdict, every way of being stopped, workers and brokers that die."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import Exit
from harness.rundir import read_json
from tests.live.printed import follow_summary
from tests.live.run_rig import SCENARIO, LiveRun, brokerstorm
from tests.machine import ORPHANS

#: `analyze` judges in the session of this process.
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("spark")]


FOLLOWED = """
name: followed
topics: {orders: {partitions: 3}}
load:
  rate: 300
  duration: 46s
  warm_up: 1s
  producers: {shop: {options: {enable.idempotence: true}}}
faults:
  - {fault: wrong-bytes, target: all, together: true, requests: [Fetch], share: 0.2, at: 3s, for: 20s}
  - {fault: request-error, target: all, together: true, requests: [Fetch], error: CORRUPT_MESSAGE,
     at: 26s, for: 9s}
require: {rate_ratio: 0.5}
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    with LiveRun(tmp_path) as live:
        yield live


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    """A run from its start to its end."""
    with LiveRun(tmp_path_factory.mktemp("passed"), inside=True) as live:
        live.wait()
        yield live


def test_a_run_from_cluster_to_verdict(passed: LiveRun) -> None:
    document = passed.document()
    found = (document["exit_code"], document["verdict"], document["reasons"])
    assert (passed.wait(), *found) == (Exit.PASS, Exit.PASS, "pass", []), passed.errors()
    sends = document["sends"]
    assert 0.9 * 9 * 2000 <= sends["attempted"] <= 9 * 2000
    assert sends["ok"] + sends["fail"] + sends["info"] == sends["attempted"]
    (fault,) = document["faults"]
    assert (fault["kind"], fault["effective"], fault["healed"]) == ("pause", True, True)
    assert document["rows"]["log"] >= sends["ok"]
    assert document["rows"]["deliveries"] >= sends["ok"]
    for name in ("report.html", "junit.xml", "result.json"):
        assert (passed.root / name).stat().st_size > 0
    assert passed.processes() == []
    assert follow_summary(passed.root)
    judged = passed.command("--json", "analyze")
    assert judged.document["sends"] == sends, judged.err


def kill_producer(run: LiveRun) -> None:
    """As soon as the fault is applied."""
    run.wait_for_fault()
    (producer,) = [
        p for p in run.processes() if any("raw/producer" in word for word in p.cmdline())
    ]
    producer.kill()


@pytest.mark.extended
def test_the_same_faults_again_and_a_producer_that_dies_makes_the_run_unknown(
    passed: LiveRun, tmp_path: Path
) -> None:
    with LiveRun(tmp_path, replay=passed, inside=True) as run:
        assert run.wait_while(lambda: kill_producer(run)) == Exit.UNKNOWN, run.errors()
        document = run.document()
    targets = [
        [fault["target"].split()[0] for fault in each["faults"]]
        for each in (passed.document(), document)
    ]
    assert targets[0] == targets[1]
    assert any("producer-shop" in reason for reason in document["reasons"]), document["reasons"]
    sends = document["sends"]
    assert sends["ok"] + sends["fail"] + sends["info"] == sends["attempted"] > 0
    assert not [f for f in document["findings"] if f["status"] == "violation"]


#: A client that has 50 messages under way for 50 ms sends no more than a thousand in a second.
NOT_KEPT = """
name: not-kept
topics: {orders: {partitions: 2}}
load:
  rate: {at_most: 3000}
  profile: {steps: [50%, 100%, 0%]}
  duration: 3s
  warm_up: 0s
  producers: {shop: {options: {linger.ms: 50, queue.buffering.max.messages: 50}}}
"""


@pytest.mark.extended
def test_a_load_that_claims_no_rate_goes_at_what_is_kept(tmp_path: Path) -> None:
    path, runs = tmp_path / "not-kept.yaml", tmp_path / "runs"
    path.write_text(NOT_KEPT)
    said = brokerstorm("--json", "--run-dir", str(runs), "run", str(path), "--runtime", "process")
    assert said.code == Exit.PASS, said.err
    assert "this machine does not keep 3,000/s" in said.err
    document = said.document
    plan = read_json(runs / document["run_id"] / "plan.json")
    steps = plan["rate_choice"]["steps"]
    assert (steps[0]["rate_per_s"], steps[0]["held"]) == (3000, False)
    assert plan["producers"][0]["rate_per_s"] == plan["rate_per_s"] < 1000
    rate = document["rate"]
    assert (rate["peak_per_s"], rate["at_most_per_s"]) == (plan["rate_per_s"], 1500)
    assert rate["target_per_s"] == pytest.approx(plan["rate_per_s"] / 2)
    timeline = document["timeline"]
    second, begin = round(1 / timeline["step_s"]), round(-timeline["start_s"] / timeline["step_s"])
    wanted = [sum(timeline["intended"][begin + k * second :][:second]) for k in range(3)]
    assert wanted == pytest.approx([plan["rate_per_s"] / 2, plan["rate_per_s"], 0], abs=1)
    assert (
        document["sends"]["attempted"] <= 1.5 * plan["rate_per_s"] + 1
    )  # what was measured is not in the run


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        pytest.param([signal.SIGINT], Exit.UNKNOWN, marks=pytest.mark.slow),
        ([signal.SIGTERM], Exit.UNKNOWN),
        pytest.param([signal.SIGINT, signal.SIGINT], Exit.INTERRUPTED, marks=pytest.mark.slow),
    ],
    ids=["ctrl-c", "sigterm", "ctrl-c twice"],
)
def test_stopped_while_a_fault_is_applied(run: LiveRun, signals: list[int], code: int) -> None:
    """One signal: what was sent is audited and judged, a run cut short proves nothing. Two end at
    once."""
    run.wait_for_fault()
    for number in signals:
        run.signal(number)
        time.sleep(0.5)
    assert run.wait() == code, run.errors()
    assert run.document()["exit_code"] == code
    assert run.processes() == []
    assert list((run.root / "ledger").iterdir()) == []
    assert (run.root / "result.json").exists() is (len(signals) == 1)
    assert run.command("analyze").code == Exit.UNKNOWN  # what was captured can be judged


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param("up", marks=pytest.mark.slow),
        pytest.param("warm-up", marks=pytest.mark.slow),
        "fault",
        pytest.param("audit", marks=pytest.mark.slow),
    ],
)
def test_a_killed_harness_leaves_nothing_that_clean_does_not_find(run: LiveRun, phase: str) -> None:
    run.wait_for_fault() if phase == "fault" else run.wait_for_phase(phase)
    kill_and_clean(run)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_a_random_moment(run: LiveRun, seed: int) -> None:
    run.wait_for_phase("up")
    time.sleep(random.Random(seed).uniform(0.0, 40.0))
    kill_and_clean(run)


def kill_and_clean(run: LiveRun) -> None:
    with ORPHANS:
        run.signal(signal.SIGKILL)
        run.process.wait()
        done = run.command("clean")
    assert done.code == Exit.PASS, done.out + done.err
    assert run.processes() == []
    assert not (run.root / "ledger").exists() or list((run.root / "ledger").iterdir()) == []
    judged = run.command("analyze")
    allowed = {Exit.USAGE, Exit.UNKNOWN}  # nothing captured yet; or too little to prove anything
    assert judged.code in allowed | {Exit.PASS}, judged.out + judged.err


def spoil_storage(run: LiveRun) -> None:
    """Of a node that was killed: it refuses to start from it."""
    run.wait_for_fault()
    for meta in (run.root / "cluster" / "kafka-2").rglob("meta.properties"):
        meta.write_text("node.id=99\nversion=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")


@pytest.mark.extended
def test_a_broker_that_never_comes_back(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("duration: 8s", "duration: 4s").replace(
        'pause, target: "leader-of:orders", at: 1s, for: 4s',
        "kill, target: kafka-2, at: 1s, for: 2s",
    )
    scenario += "limits: {recovery: 2s, drain: 4s}\n"
    with LiveRun(tmp_path, scenario=scenario, inside=True) as live:
        code = live.wait_while(lambda: spoil_storage(live))
        assert code == Exit.NOT_HEALED, live.errors()
        document = live.document()
        assert (document["exit_code"], document["verdict"]) == (code, "unknown")
        assert any("kafka-2" in reason for reason in document["reasons"]), document["reasons"]
        assert live.processes() == []


@pytest.mark.slow
def test_readers_of_the_log_meet_no_false_answers(tmp_path: Path) -> None:
    """From a load of 45 s on they read during the load. Damaged on their way, messages looked lost
    and corrupt. Here nothing else fetches, so the faults have no effect."""
    path, runs = tmp_path / "followed.yaml", tmp_path / "runs"
    path.write_text(FOLLOWED)
    said = brokerstorm("--json", "--run-dir", str(runs), "run", str(path), "--runtime", "process")
    assert said.code == Exit.UNKNOWN, said.err
    assert said.document["reasons"] == ["none of 2 injected faults had an effect"]
    assert said.err.count("no Fetch request was seen") == 2
