"""A fault injector on a cluster that is only state, and a kill to plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import faults
from harness.protocols.cluster import TopicSettings
from harness.rundir import RunDir, read_jsonl
from harness.waiting import wait_until
from tests.unit.fault_cluster import NAMES, StateCluster

TOPICS = [TopicSettings("orders", 6, 3)]


class Rig:
    """An injector that started, and what it wrote."""

    def __init__(
        self,
        cluster: StateCluster,
        run: RunDir,
        *steps: dict[str, Any],
        topics: Sequence[TopicSettings] = TOPICS,
        since_s: float = 0.0,
        system: str = "kafka",
        **more: Any,
    ) -> None:
        self.run = run
        self.timeline = faults.compile(
            list(steps),
            faults.inventory_of(topics=topics, nodes=NAMES, system=system),
            seed=7,
            load_s=60,
        )
        self.injector = faults.Injector(self.timeline, cluster, run, **more)  # type: ignore[arg-type]
        self.epoch_ns = time.monotonic_ns()
        self.injector.start(self.epoch_ns, since_s=since_s)

    def fire_last(self) -> None:
        """Fire the last step now, whenever it is due."""
        self.injector.fire(self.timeline.firings[-1])

    def rows(self, event: str = "", fault_id: int = 0) -> list[dict[str, Any]]:
        rows = read_jsonl(self.run.faults)
        return [r for r in rows if event in ("", r["event"]) and fault_id in (0, r["id"])]

    def events(self, fault_id: int) -> list[str]:
        return [row["event"] for row in self.rows(fault_id=fault_id)]

    def wait_for(self, event: str, count: int = 1) -> None:
        there = wait_until(lambda: len(self.rows(event)) >= count, 20, every_s=0.005)
        assert there, f"no {event} in {self.rows()}"


def kill(at: float, seconds: float = 0.2, **more: Any) -> dict[str, Any]:
    return {"fault": "kill", "at": at, "for": seconds, **more}
