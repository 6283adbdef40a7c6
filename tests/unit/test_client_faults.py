"""client-kill and client-restart on clients that are real processes, but no workers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from experiments.resolved import Resolved
from faults.kinds import KINDS
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.params import Inventory
from harness.errors import ScenarioError
from harness.plan.build import build_plan
from harness.scenario.model import Scenario


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


def prepared(kind: str, lives: Lives | None, target: str, **keys: Any) -> Any:
    view = ClusterView(None, Inventory((), ()))  # type: ignore[arg-type]
    if lives is not None:
        view.lives, view.clients = lives, lives.pids
    return KINDS[kind].prepare(KINDS[kind].params.model_validate({"target": target, **keys}), view, 1)


@pytest.mark.parametrize(("kind", "how"), [("client-kill", "killed"), ("client-restart", "stopped in ")])
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
        ("confluent-kafka", "20s", "client:q", "client:q is not a client of this load; clients: producer-p"),
    ],
)
def test_whose_clock_can_be_set(client: str, duration: str, target: str, said: str) -> None:
    load = {"rate": 100, "duration": duration, "producers": {"p": {"client": client}}}
    faults = [{"fault": "clock-jump", "at": "1s", "target": target}]
    plan = build_plan(Scenario.model_validate({"name": "x", "load": load, "faults": faults}), seed=1)
    if said:
        with pytest.raises(ScenarioError, match=said):
            _ = Resolved(plans=[plan]).timelines
        return
    need = "client-clocks" if target.startswith("client") else "own-clocks"
    assert Resolved(plans=[plan]).needs == {need}
