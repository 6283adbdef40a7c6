"""Limits of a container, on an engine that is only state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from harness.clusters.docker.limits import LimitedContainers
from harness.errors import EnvironmentNotReady
from harness.protocols.limits import CpuQuota, LiftsLimits, LimitsCpu, LimitsMemory, MemoryUse

MB = 1_000_000


class StateContainer(LimitedContainers):
    """A container with a 900 MB limit of its own that uses 500 MB; below ``floor`` the kernel says
    busy."""

    def __init__(self, compose: Path, floor: int = 0) -> None:
        compose.write_text("services: {kafka-1: {mem_limit: 900m}}\n")
        self.compose, self.floor = compose, floor
        self.host: dict[str, int] = {"Memory": 900 * 2**20, "CpuQuota": 0}
        self.updates: list[dict[str, int]] = []
        self.refusal = "write memory.limit_in_bytes: device or resource busy"
        self.oom_killed = False
        self.stats: dict[str, Any] = {
            "cpu_stats": {
                "throttling_data": {
                    "periods": 40,
                    "throttled_periods": 38,
                    "throttled_time": 3_500_000_000,
                }
            },
            "memory_stats": {"usage": 500 * MB, "failcnt": 7, "stats": {"total_rss": 300 * MB}},
        }

    def compose_path(self) -> Path:
        return self.compose

    def pid(self, node: str) -> int | None:
        return None

    def container(self, node: str) -> Any:
        api = SimpleNamespace(stats=lambda name, *, stream, one_shot: self.stats)
        attrs = {"HostConfig": dict(self.host), "State": {"OOMKilled": self.oom_killed}}
        return SimpleNamespace(
            id="1", attrs=attrs, update=self._update, client=SimpleNamespace(api=api)
        )

    def _update(self, **changes: int) -> None:
        if 0 < changes.get("mem_limit", 0) < self.floor:
            raise APIError("500", explanation=self.refusal)
        self.updates.append(changes)
        self.host["Memory"] = changes.get("mem_limit", self.host["Memory"])
        self.host["CpuQuota"] = changes.get("cpu_quota", self.host["CpuQuota"])


def test_abilities(tmp_path: Path) -> None:
    for ability in (LimitsCpu, LimitsMemory, LiftsLimits):
        assert isinstance(StateContainer(tmp_path / "c"), ability)


def test_cpu(tmp_path: Path) -> None:
    node = StateContainer(tmp_path / "c")
    assert node.cpu_use("kafka-1") == CpuQuota(40, 38, 3.5, None)
    node.limit_cpu("kafka-1", 0.05)
    assert node.cpu_use("kafka-1").cores == 0.05
    node.limit_cpu("kafka-1", None)
    assert node.cpu_use("kafka-1").cores is None
    assert node.updates == [{"cpu_period": 100_000, "cpu_quota": quota} for quota in (5000, -1)]


def test_memory_goes_back_to_what_the_compose_file_gives(tmp_path: Path) -> None:
    node = StateContainer(tmp_path / "c")
    assert node.memory_use("kafka-1") == MemoryUse(500 * MB, 300 * MB, None, 7, 0)
    assert node.limit_memory("kafka-1", 316 * MB) == 316 * MB
    assert node.memory_use("kafka-1").limit == 316 * MB
    assert node.limit_memory("kafka-1", None) is None
    assert node.updates[-1] == {"mem_limit": 900 * 2**20, "memswap_limit": 1800 * 2**20}
    assert node.memory_use("kafka-1").limit is None


@pytest.mark.parametrize(
    "refusal",
    [
        "write memory.limit_in_bytes: device or resource busy",
        "runc: unable to set memory limit to 204177984 (current usage: 207237120, peak usage: 230801408)",
    ],
    ids=["kernel", "runc"],
)
def test_a_limit_that_the_kernel_refuses_is_raised(tmp_path: Path, refusal: str) -> None:
    node = StateContainer(tmp_path / "c", floor=400 * MB)
    node.refusal = refusal
    holds = node.limit_memory("kafka-1", 316 * MB)
    assert holds is not None
    assert 400 * MB <= holds <= 510 * MB
    with pytest.raises(EnvironmentNotReady, match="cannot be limited: all of it is in use"):
        StateContainer(tmp_path / "c", floor=2**50).limit_memory("kafka-1", 316 * MB)


def test_without_a_count_a_full_group_met_its_limit(tmp_path: Path) -> None:
    node = StateContainer(tmp_path / "c")
    node.stats["memory_stats"] = {"usage": 500 * MB, "stats": {"anon": 300 * MB}}
    assert node.memory_use("kafka-1").met == 0
    node.limit_memory("kafka-1", 502 * MB)
    assert node.memory_use("kafka-1").met == 1
    node.stats["memory_stats"] = {}
    assert node.memory_use("kafka-1") == MemoryUse(0, 0, 502 * MB, 0, 0)
    node.oom_killed = True  # its counts ended with it
    assert node.memory_use("kafka-1") == MemoryUse(0, 0, 502 * MB, 1, 1)
