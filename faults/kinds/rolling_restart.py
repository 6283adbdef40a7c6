"""rolling-restart: what an upgrade does to a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import Field

from faults.kinds.restart import Stopped
from faults.kit.cluster_view import POLL_S, ClusterView
from faults.kit.injection import FaultKind
from faults.kit.node_loss import Changes, changes_text, cluster_changes
from faults.kit.params import Inventory, Params
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Details, HasPlacement, Proof
from harness.protocols.nodes import Stoppable
from harness.waiting import wait_while


class RollingRestartParams(Params):
    down: Seconds = Field(0.0, description="start each node again this long after it has stopped")
    stop_within: Seconds = Field(30.0, gt=0, description="SIGKILL a node that has not stopped by itself")
    ready_within: Seconds = Field(60.0, gt=0, description="each node must be in sync again within this")


@dataclass(frozen=True, slots=True)
class Roll:
    """A node that is back in sync. ``was``, ``version``: where it became another one."""

    stopped_s: float
    ready_s: float
    changed: Changes
    was: str = ""
    version: str = ""

    def details(self) -> Details:
        versions = {"was": self.was, "version": self.version} if self.version else {}
        return {"stopped_s": self.stopped_s, "ready_s": self.ready_s, **self.changed, **versions}

    def text(self, node: str) -> str:
        versions = f" {self.was} -> {self.version}" if self.version else ""
        moved = changes_text(self.changed) or "nothing moved"
        return f"{node}{versions} back in sync after {self.ready_s:.1f} s, {moved}"


class Rolled(Stopped):
    """One node after the other; the next only when the one before is in sync again."""

    params: RollingRestartParams  # type: ignore[assignment]  # has stop_within, too

    def __init__(
        self, view: ClusterView, params: RollingRestartParams, nodes: Iterable[str] | None = None
    ) -> None:
        super().__init__(view, view.brokers if nodes is None else tuple(nodes), params)
        self._done: dict[str, Roll] = {}

    def objection(self) -> str:
        shrunk = self.before.shrunk() if self.before else {}
        return next((f"{nodes[0]} is not in sync for {stream}" for stream, nodes in shrunk.items()), "")

    def apply(self) -> None:
        for node in self.targets:
            if self.view.stopping.is_set():
                return
            self._roll(node)

    def _roll(self, node: str) -> None:
        before, start = self.view.snapshot(), time.monotonic()
        stopped_s = self.stop(node)
        now = self.view.snapshot()
        changed = cluster_changes(before, now, [node]) if before and now else {}
        self.view.stopping.wait(self.params.down)
        self.before_start(node)
        self.view.start(node)
        limit_s = self.params.ready_within
        missing = wait_while(self.missing, limit_s, every_s=POLL_S, stop=self.view.stopping)
        if missing and not self.view.stopping.is_set():
            raise self.not_ready(node, missing)
        away_s = time.monotonic() - start
        self._done[node] = Roll(round(stopped_s, 2), round(away_s, 2), changed)
        self.after_start(node)

    def before_start(self, node: str) -> None:
        """Called of a node that is down. Default: nothing."""

    def after_start(self, node: str) -> None:
        """Called of a node that is in sync again. Default: nothing."""

    def not_ready(self, node: str, missing: str) -> EnvironmentNotReady:
        """Return the error for a node that is not in sync in time, which ends the fault."""
        limit_s = self.params.ready_within
        return EnvironmentNotReady(f"{node} was not ready {limit_s:g} s after its restart: {missing}")

    def proof(self) -> Proof:
        """Effective when every node was replaced and each of them gave something up."""
        done = dict(self._done)
        rolled = "; ".join(row.text(node) for node, row in done.items())
        complete = len(done) == len(self.targets)
        noticed = all(row.changed for row in done.values())
        text = f"{len(done)} of {len(self.targets)} nodes restarted" + (f": {rolled}" if rolled else "")
        return Proof(complete and noticed, text, {node: row.details() for node, row in done.items()})


class RollingRestart(FaultKind[RollingRestartParams]):
    """Restart every broker gracefully, one after the other, waiting until each is in sync again."""

    kind = "rolling-restart"
    abilities = (Stoppable, HasPlacement)
    takes_nodes = True
    params = RollingRestartParams

    def ends_within_s(self, params: RollingRestartParams) -> float | None:
        """Return the time that all nodes need."""
        return None

    def commands(self, params: RollingRestartParams, inventory: Inventory) -> list[str]:
        stop = f"SIGTERM, SIGKILL after {params.stop_within:g} s"
        ready = f"wait until it is in sync, {params.ready_within:g} s at most"
        later = f" {params.down:g} s later" if params.down else " again"
        steps = f"{stop}; start it{later}; {ready}"
        return [f"{node}: {steps}" for node in target_text("all", inventory).split(", ")]

    def prepare(self, params: RollingRestartParams, view: ClusterView, draw: int) -> Rolled:
        return Rolled(view, params)
