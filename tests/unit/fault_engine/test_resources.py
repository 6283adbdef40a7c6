"""Faults on resources, on a cluster that is only state: the proof of effect, and that all is given
back."""

from __future__ import annotations

import math
import threading
import time

import pytest

import faults
from faults.engine.ledger import Ledger, heal_from_ledger
from harness.errors import ScenarioError
from harness.protocols.limits import CpuQuota, MemoryUse
from harness.rundir import RunDir
from tests.unit.fault_cluster import NAMES, StateCluster, StateRuntime
from tests.unit.fault_engine.rig import TOPICS, Rig

NEEDS = frozenset({"cpu-quota", "memory-group", "data-volume", "slow-volume"})


class HungryRuntime(StateRuntime):
    """Nodes that want more than they get: a look at one of them counts as its next try."""

    needs = NEEDS

    def __init__(self) -> None:
        super().__init__()
        self.cores: dict[str, float] = {}
        self.limit: dict[str, int] = {}
        self.full: set[str] = set()
        self.slow: dict[str, int] = {}
        self.idle = False
        self.tries = 0
        self.dies_of: set[str] = set()
        self.freed: set[str] = set()
        self.counts_anew = False
        self.gives_up = False
        self.given_up_s = 0.0
        self.timers: list[threading.Timer] = []
        self.limited: set[str] = set()

    def limit_cpu(self, node: str, cores: float | None) -> None:
        self._set(self.cores, node, cores)

    def cpu_use(self, node: str) -> CpuQuota:
        if node in self.cores and not self.idle:
            self.tries += 1
        return CpuQuota(self.tries, self.tries, self.tries / 10, self.cores.get(node))

    def limit_memory(self, node: str, limit_bytes: int | None) -> int | None:
        self._set(self.limit, node, limit_bytes)
        self.limited |= {node} if limit_bytes else set()
        if limit_bytes and "memory" in self.dies_of:
            self.kill(node)
        return limit_bytes

    def memory_use(self, node: str) -> MemoryUse:
        met = 12 * (node in self.limited and not self.idle)
        return MemoryUse(500_000_000, 300_000_000, self.limit.get(node), met, met // 12)

    def start(self, node: str) -> None:
        super().start(node)
        if self.counts_anew:
            self.limited.discard(node)

    def fill_disk(self, node: str) -> None:
        self.calls.append(f"fill {node}")
        self.full.add(node)
        self.freed.discard(node)
        if "disk" in self.dies_of and self.is_running(node):
            self.kill(node)
            if "disk, and frees blocks" in self.dies_of:
                self.freed.add(node)
        # lives, and is in sync no more before its next start, once that is noticed
        if self.gives_up:
            shrink = threading.Timer(
                self.given_up_s, lambda: self.changed_at.update({node: math.inf})
            )
            shrink.start()
            self.timers.append(shrink)

    def free_disk(self, node: str) -> None:
        self.full.discard(node)

    def is_filled(self, node: str) -> bool:
        return node in self.full

    def try_write(self, node: str, size: int) -> tuple[str, float]:
        said = "ENOSPC" if node in self.full - self.freed else ""
        return (said, 0.4 if node in self.slow else 0.01)

    def slow_disk(self, node: str, bytes_per_s: int | None) -> None:
        self._set(self.slow, node, bytes_per_s)

    def is_slowed(self, node: str) -> bool:
        return node in self.slow

    def written(self, node: str) -> int:
        self.tries += not self.idle
        return self.tries * 100_000

    def lift_limits(self, node: str) -> None:
        for limit in (self.cores, self.limit, self.slow):
            limit.pop(node, None)
        self.full.discard(node)

    def _set(
        self, values: dict[str, float] | dict[str, int], node: str, value: float | None
    ) -> None:
        self.calls.append(f"{'limit' if value else 'lift'} {node}")
        if value is None:
            values.pop(node, None)
        else:
            values[node] = value  # type: ignore[assignment]

    def untouched(self) -> bool:
        return not (self.cores or self.limit or self.full or self.slow) and self.running == set(
            NAMES
        )


@pytest.fixture
def cluster() -> StateCluster:
    # else who looks often sees a node dead before its leaders have moved
    found = StateCluster(fence_s=0.0)
    found.runtime = found.admin.runtime = HungryRuntime()
    return found


def hungry(cluster: StateCluster) -> HungryRuntime:
    assert isinstance(cluster.runtime, HungryRuntime)
    return cluster.runtime


def step(kind: str, **more: object) -> dict[str, object]:
    return {"fault": kind, "at": 0, "for": 0.3, "target": "kafka-2", **more}


@pytest.mark.parametrize(
    ("kind", "dies_of", "says"),
    [
        ("cpu-limit", "", "kafka-2: held to 0.1 cores in "),
        (
            "memory-limit",
            "",
            "kafka-2: 316 MB of memory, 500 MB before: met 12 times, the kernel killed 1",
        ),
        ("memory-limit", "memory", "kafka-2 died of it; leaders of 2 partitions moved"),
        (
            "disk-full",
            "disk",
            "kafka-2: no space left on its data volume (a write got ENOSPC); kafka-2 died",
        ),
        (
            "slow-disk",
            "",
            "kafka-2: 1 MB/s at most: 0.40 s for a synced write of 131 kB, 0.010 s before",
        ),
    ],
)
def test_it_takes_effect_and_is_given_back(
    cluster: StateCluster,
    run: RunDir,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    dies_of: str,
    says: str,
) -> None:
    # leaders move a moment after a node died
    monkeypatch.setattr("faults.engine.prover._FOLLOW_S", 0.02)
    hungry(cluster).dies_of = {dies_of}
    rig = Rig(cluster, run, step(kind))
    rig.injector.join(20)
    assert rig.rows("effect")[0]["effective"] is True, rig.rows()
    assert says in rig.rows("effect")[-1]["evidence"]
    assert rig.rows("healed")[0]["ok"] is True
    assert rig.rows("healed")[0]["confirmed_acks"] == ("at-risk" if dies_of else "unknown")
    assert hungry(cluster).untouched()
    assert Ledger(run).entries() == []


@pytest.mark.parametrize("noticed_s", [0.0, 0.5], ids=["before the heal", "after it"])
def test_a_node_that_lives_on_without_its_disk_and_does_not_come_back_is_started_anew(
    cluster: StateCluster, run: RunDir, noticed_s: float
) -> None:
    """Of a replica that no longer fetches, its leader hears nothing for seconds: it is in sync
    until then."""
    hungry(cluster).gives_up, hungry(cluster).given_up_s = True, noticed_s
    rig = Rig(cluster, run, step("disk-full"))
    rig.injector.join(20)
    assert rig.rows("effect")[-1]["effective"] is True, rig.rows()
    assert "died" not in rig.rows("effect")[-1]["evidence"]
    assert rig.rows("healed")[0]["ok"] is True
    assert [call for call in cluster.runtime.calls if "kafka-2" in call] == [
        "fill kafka-2", "kill kafka-2", "start kafka-2",
    ]  # fmt: skip
    assert hungry(cluster).untouched()


def test_a_disk_stays_full_when_the_node_that_died_of_it_freed_blocks(
    cluster: StateCluster, run: RunDir
) -> None:
    """Kafka gives back what it reserved for indexes."""
    hungry(cluster).dies_of = {"disk", "disk, and frees blocks"}
    rig = Rig(cluster, run, step("disk-full"))
    rig.injector.join(20)
    assert rig.rows("effect")[0]["effective"] is True, rig.rows()
    assert "(a write got ENOSPC); kafka-2 died" in rig.rows("effect")[-1]["evidence"]
    assert hungry(cluster).untouched()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("cpu-limit", "never wanted more than 0.1 cores"),
        ("memory-limit", "never wanted more than 316 MB"),
        ("disk-full", "no space left on its data volume, but it has not tried to write"),
        ("slow-disk", "its disk is slow, but it wrote nothing meanwhile"),
    ],
)
def test_a_node_that_wants_nothing_is_no_effect(
    cluster: StateCluster, run: RunDir, kind: str, says: str
) -> None:
    hungry(cluster).idle = True
    rig = Rig(cluster, run, step(kind))
    rig.injector.join(20)
    (effect,) = rig.rows("effect")
    assert effect["effective"] is False
    assert says in effect["evidence"]
    assert hungry(cluster).untouched()


@pytest.mark.parametrize(
    ("kind", "dies_of", "says"),
    [
        (
            "disk-full",
            "disk",
            "no space left on its data volume (a write got ENOSPC); kafka-2 died of it",
        ),
        ("memory-limit", "memory", "met 12 times, the kernel killed 1 for it; kafka-2 died of it"),
    ],
)
def test_it_is_proved_also_when_the_cluster_answers_only_after_the_heal(
    cluster: StateCluster,
    run: RunDir,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    dies_of: str,
    says: str,
) -> None:
    """Of a node that died others are not told for seconds, and a container that is started counts
    anew."""
    runtime, answer = hungry(cluster), cluster.admin.partition_states
    runtime.dies_of, runtime.counts_anew = {dies_of}, True

    def late(topics: list[str]) -> object:
        time.sleep(0 if not runtime.calls or threading.current_thread().name == "fault-1" else 0.6)
        return answer(topics)

    monkeypatch.setattr(cluster.admin, "partition_states", late)
    rig = Rig(cluster, run, step(kind))
    rig.injector.join(30)
    assert rig.rows("effect")[-1]["effective"] is True, rig.rows()
    assert says in rig.rows("effect")[-1]["evidence"]
    assert runtime.untouched()


def test_a_starved_node_is_claimed(cluster: StateCluster, run: RunDir) -> None:
    rig = Rig(
        cluster,
        run,
        step("cpu-limit") | {"for": 30},
        {"fault": "kill", "at": 50, "target": "kafka-3", "for": 0.1},
    )
    rig.wait_for("inject")
    rig.fire_last()
    rig.wait_for("skipped")
    assert rig.injector.heal_all(20) == []
    assert "kafka-2 is still away" in rig.rows("skipped", 2)[0]["reason"]


@pytest.mark.parametrize("kind", ["cpu-limit", "memory-limit", "disk-full", "slow-disk"])
def test_a_later_process_heals_it_on_a_kept_cluster(
    cluster: StateCluster, run: RunDir, kind: str
) -> None:
    hungry(cluster).dies_of = {"disk"}
    timeline = faults.compile(
        [step(kind)], faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=7, load_s=60
    )
    injector = faults.Injector(timeline, cluster, run)  # type: ignore[arg-type]
    injector.fire(timeline.firings[0], leave=True)
    injector.join(20)
    assert not hungry(cluster).untouched()
    assert heal_from_ledger(cluster, run) == []  # type: ignore[arg-type]
    assert hungry(cluster).untouched()


def test_a_cluster_that_was_not_started_for_it_is_refused(cluster: StateCluster) -> None:
    cluster.runtime.needs = frozenset({"cpu-quota"})  # type: ignore[attr-defined]
    steps = [step("cpu-limit"), {**step("disk-full"), "at": 3}]
    timeline = faults.compile(
        steps, faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=7, load_s=60
    )
    with pytest.raises(ScenarioError, match=r"faults\[1\].fault: disk-full .* without data-volume"):
        faults.refuse_unsupported(timeline, cluster)  # type: ignore[arg-type]
    with pytest.raises(
        ScenarioError, match=r"cpu-limit needs a cluster that can limit the CPU time"
    ):
        faults.refuse_unsupported(timeline, StateCluster())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fault": "cpu-limit", "cores": 0}, "cores: must be greater than or equal to 0.01, got 0"),
        ({"fault": "memory-limit", "limit": "lots"}, "limit: must be a size such as 300MB, 64KiB"),
        ({"fault": "memory-limit", "limit": -1}, "limit: must be greater than 0, got -1"),
        ({"fault": "slow-disk", "rate": "1kB"}, "rate: must be greater than or equal to 4096"),
    ],
)
def test_mistakes(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        faults.compile(
            [{"at": 1, **keys}], faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=7, load_s=60
        )
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("300MB", 300_000_000), ("64KiB", 65_536), ("1.5 GB", 1_500_000_000), (4096, 4096)],
)
def test_sizes(text: object, size: int) -> None:
    steps = [{"fault": "memory-limit", "at": 1, "limit": text}]
    timeline = faults.compile(
        steps, faults.inventory_of(topics=TOPICS, nodes=NAMES), seed=7, load_s=60
    )
    assert timeline.firings[0].params.document()["limit"] == size
