"""client-kill and client-restart on clients that are real processes, but no workers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from experiments.resolved import Resolved
from faults.engine.claims import NodeClaims
from faults.kinds import KINDS
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.params import Inventory
from harness.errors import EnvironmentNotReady, ScenarioError
from harness.plan.build import build_plan
from harness.scenario.model import Scenario
from harness.waiting import wait_until


class Lives:
    """As `harness.run.lives.WorkerLives`, of processes that sleep."""

    def __init__(self, *names: str) -> None:
        self.processes = {name: self._process() for name in names}
        self.count = dict.fromkeys(names, 1)
        self.ready = True
        self.clocks = dict.fromkeys(names, (0.0, 1.0))
        self.silent: set[str] = set()

    @staticmethod
    def _process() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def pids(self) -> dict[str, int]:
        return {name: each.pid for name, each in self.processes.items() if each.poll() is None}

    def kill(self, name: str) -> bool:
        self.processes[name].kill()
        return self.processes[name].wait() == -signal.SIGKILL

    def stop(self, name: str, within_s: float) -> bool:
        self.processes[name].terminate()
        return self.processes[name].wait(within_s) == -signal.SIGTERM

    def begin(self, name: str) -> None:
        if self.processes[name].poll() is not None:
            self.processes[name] = self._process()
            self.count[name] += 1

    def life(self, name: str) -> str:
        return name if self.count[name] == 1 else f"{name}.{self.count[name]}"

    def is_ready(self, name: str) -> bool:
        return self.ready and name in self.pids()

    def set_clock(self, name: str, ahead_s: float, speed: float = 1.0) -> None:
        self.clocks[name] = (ahead_s, speed)

    def clock_told(self, name: str, *, within_s: float) -> float | None:
        ahead_s, speed = self.clocks[name]
        return None if name in self.silent else ahead_s + speed - 1

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def lives() -> Iterator[Lives]:
    made = Lives("producer-1", "producer-2", "consumer-1")
    yield made
    made.close()


class Instances(Lives):
    """The three instances of an application."""

    def instances(self, one: str, count: int) -> list[str]:
        return [f"{one.rpartition('-')[0]}-{number}" for number in range(1, count + 1)]

    def begin(self, name: str) -> None:
        if name not in self.processes:
            self.processes[name], self.count[name] = self._process(), 1
        super().begin(name)


def prepared(kind: str, lives: Lives | None, target: str, **keys: Any) -> Any:
    names = lives.processes if isinstance(lives, Instances) else ()
    billing = [name for name in names if name.startswith("application-")]
    view = ClusterView(
        SimpleNamespace(runtime=SimpleNamespace(nodes=())),
        Inventory((), (), applications={"billing": billing}),
    )  # type: ignore[arg-type]
    if lives is not None:
        view.lives, view.clients = lives, lives.pids
    return KINDS[kind].prepare(
        KINDS[kind].params.model_validate({"target": target, **keys}), view, 1
    )


@pytest.mark.parametrize(
    ("kind", "how"), [("client-kill", "killed"), ("client-restart", "stopped in ")]
)
def test_a_client_is_ended_and_begins_a_life_of_its_own(lives: Lives, kind: str, how: str) -> None:
    before = lives.pids()
    injection = prepared(kind, lives, "client:producer")
    assert injection.targets == ("producer-1", "producer-2")
    assert not injection.proof().effective
    injection.apply()
    assert injection.proof().effective
    assert f"producer-1 {how}" in injection.proof().evidence
    assert set(lives.pids()) == {"consumer-1"}
    assert not injection.is_undone()
    lives.ready = False
    injection.heal()
    injection.heal()
    assert injection.is_undone()
    assert injection.missing() == "producer-1.2, producer-2.2 not ready"
    lives.ready = True
    assert injection.missing() == ""
    assert "producer-1.2 ready" in injection.proof().evidence
    assert injection.confirmed_acks() == "kept"
    after = lives.pids()
    assert after["consumer-1"] == before["consumer-1"]
    assert after["producer-1"] != before["producer-1"]


@pytest.fixture
def instances() -> Iterator[Instances]:
    made = Instances(*(f"application-billing-{number}" for number in (1, 2, 3)))
    yield made
    made.close()


def test_instances_restart_one_after_the_other(instances: Instances) -> None:
    injection = prepared("rolling-restart", instances, "client:billing", ready_within=0.3)
    before = instances.pids()
    injection.apply()
    proof = injection.proof()
    assert proof.effective
    assert (
        "application-billing-2 stopped after 0.0 s, application-billing-2.2 ready" in proof.evidence
    )
    assert before.keys() == instances.pids().keys()
    assert not set(before.values()) & set(instances.pids().values())
    assert (injection.is_undone(), injection.missing()) == (True, "")


def test_a_rollout_stops_at_an_instance_that_does_not_get_ready(instances: Instances) -> None:
    injection = prepared("rolling-restart", instances, "client:billing", ready_within=0.1)
    instances.ready = False
    with pytest.raises(EnvironmentNotReady, match=r"billing-1\.2 was not ready 0\.1 s after"):
        injection.apply()
    assert not injection.proof().effective
    assert instances.count["application-billing-2"] == 1


@pytest.mark.parametrize(
    ("to", "during", "said"),
    [
        (5, 5, "now 5: application-billing-4 ready, application-billing-5 ready"),
        (1, 1, "now 1: application-billing-2 stopped, application-billing-3 stopped"),
    ],
)
def test_instances_come_and_go(instances: Instances, to: int, during: int, said: str) -> None:
    before = instances.pids()
    injection = prepared("scale", instances, "client:billing", to=to)
    assert not injection.proof().effective
    injection.apply()
    assert len(instances.pids()) == during
    assert not injection.is_undone()
    proof = injection.proof()
    assert proof.effective
    assert proof.evidence == said
    injection.heal()
    injection.heal()
    assert (injection.is_undone(), injection.missing()) == (True, "")
    assert instances.pids().keys() == before.keys()


def test_a_producer_with_the_name_of_an_application_is_not_scaled() -> None:
    lives = Instances("application-billing-1", "application-billing-2", "producer-billing-1")
    try:
        injection = prepared("scale", lives, "client:billing", to=1)
        injection.apply()
        assert injection.targets == ("application-billing-2",)
        assert lives.pids().keys() == {"application-billing-1", "producer-billing-1"}
    finally:
        lives.close()


def test_one_fault_at_a_time_scales_an_application(instances: Instances) -> None:
    """The former number of instances would not come back: each undoes its own instances."""
    more, fewer = (prepared("scale", instances, "client:billing", to=to) for to in (5, 1))
    claims = NodeClaims()
    claims.claim(1, more, more.view)
    with pytest.raises(FiringSkipped, match="the number of application-billing is held by fault 1"):
        claims.claim(2, fewer, fewer.view)
    claims.release(1)
    claims.claim(2, fewer, fewer.view)


def test_an_instance_that_was_never_ready_proves_nothing(instances: Instances) -> None:
    injection = prepared("scale", instances, "client:billing", to=4, ready_within=0.1)
    instances.ready = False
    with pytest.raises(EnvironmentNotReady, match=r"billing-4 not ready 0\.1 s after the start"):
        injection.apply()
    assert not injection.proof().effective
    assert "application-billing-4 not ready" in injection.proof().evidence
    with pytest.raises(FiringSkipped, match="4 instances of client:billing run already"):
        prepared("scale", instances, "client:billing", to=4)


def test_a_freeze_stops_the_children_of_a_process(lives: Lives) -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    parent = subprocess.Popen([sys.executable, "-c", program])
    assert lives.kill("producer-1")
    lives.processes["producer-1"] = parent
    assert wait_until(lambda: bool(psutil.Process(parent.pid).children()), 10)
    (child,) = psutil.Process(parent.pid).children()
    injection = prepared("client-freeze", lives, "client:producer-1", freeze=60, period=(70, 80))
    assert {each.pid for each in injection.ledger_entry().paused} == {parent.pid, child.pid}
    injection.apply()
    try:
        assert wait_until(lambda: child.status() == psutil.STATUS_STOPPED, 5)
    finally:
        injection.heal()
    assert wait_until(lambda: child.status() != psutil.STATUS_STOPPED, 5)
    child.kill()


def test_a_client_that_had_died_before_was_not_hit(lives: Lives) -> None:
    injection = prepared("client-kill", lives, "client:producer-1")
    lives.processes["producer-1"].terminate()
    lives.processes["producer-1"].wait()
    injection.apply()
    assert not injection.proof().effective
    assert "had died before" in injection.proof().evidence


def test_without_a_run_there_is_nobody_to_begin_again(lives: Lives) -> None:
    with pytest.raises(FiringSkipped, match="no run has clients"):
        prepared("client-kill", None, "client")
    with pytest.raises(FiringSkipped, match="no client:producer-7 runs"):
        prepared("client-kill", lives, "client:producer-7")


@pytest.mark.parametrize(
    ("kind", "keys", "set_to", "said"),
    [
        ("clock-jump", {"by": "1h", "way": "back"}, (-3600.0, 1.0), "3,600.00 s behind"),
        ("clock-drift", {"speed": 1.5}, (0.0, 1.5), "0.50 s ahead"),
    ],
)
def test_the_clock_of_a_client_is_another_until_it_is_healed(
    lives: Lives, kind: str, keys: dict[str, Any], set_to: tuple[float, float], said: str
) -> None:
    injection = prepared(kind, lives, "client:producer", **keys)
    assert not injection.proof().effective
    injection.apply()
    assert lives.clocks == {"producer-1": set_to, "producer-2": set_to, "consumer-1": (0.0, 1.0)}
    proof = injection.proof()
    assert (proof.effective, proof.evidence.count(said)) == (True, 2), proof
    assert not injection.is_undone()
    assert injection.missing() == "producer-1 still gets another time"
    injection.heal()
    assert (injection.is_undone(), injection.missing()) == (True, "")
    assert set(lives.clocks.values()) == {(0.0, 1.0)}


def test_a_clock_that_a_client_does_not_look_at_proves_nothing(lives: Lives) -> None:
    injection = prepared("clock-jump", lives, "client:producer")
    injection.apply()
    lives.silent = {"producer-2"}
    assert not injection.proof().effective
    with pytest.raises(FiringSkipped, match="no run has clients"):
        prepared("clock-jump", None, "client")


@pytest.mark.parametrize(
    ("client", "duration", "target", "said"),
    [
        ("confluent-kafka", "20s", "client:p", ""),
        ("sarama", "20s", "client", "sarama is in Go: its programs ask the kernel"),
        ("sarama", "20s", "random", ""),
        (
            "confluent-kafka",
            "3h",
            "client",
            "remove messages of this load by the time that clients give them",
        ),
        (
            "confluent-kafka",
            "20s",
            "client:q",
            "client:q is not a client of this load; clients: producer-p",
        ),
    ],
)
def test_whose_clock_can_be_set(client: str, duration: str, target: str, said: str) -> None:
    load = {"rate": 100, "duration": duration, "producers": {"p": {"client": client}}}
    faults = [{"fault": "clock-jump", "at": "1s", "target": target}]
    plan = build_plan(
        Scenario.model_validate({"name": "x", "load": load, "faults": faults}), seed=1
    )
    if said:
        with pytest.raises(ScenarioError, match=said):
            _ = Resolved(plans=[plan]).timelines
        return
    need = "client-clocks" if target.startswith("client") else "own-clocks"
    assert Resolved(plans=[plan]).needs == {need}
