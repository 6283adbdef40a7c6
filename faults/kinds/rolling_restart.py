"""rolling-restart: what an upgrade does to a cluster, or a rollout to an application."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import Field, field_validator

from faults.kinds.client_kill import EndedClient
from faults.kinds.restart import Stopped
from faults.kit.clients import clients_of_run, is_client, is_target, refuse_clients
from faults.kit.cluster_view import POLL_S, ClusterView
from faults.kit.injection import FaultKind, Injection
from faults.kit.node_loss import Changes, changes_text, cluster_changes
from faults.kit.params import Inventory, Params
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Details, HasPlacement, Proof
from harness.protocols.nodes import Stoppable
from harness.waiting import wait_while

_TARGET: Final = r"^(all|client(:.+)?)$"


class RollingParams(Params):
    """Keys of a fault that takes one after the other."""

    down: Seconds = Field(0.0, description="time between the end of each and its next start")
    stop_within: Seconds = Field(
        30.0, gt=0, description="one that has not stopped by itself in this time gets SIGKILL"
    )
    ready_within: Seconds = Field(
        60.0, gt=0, description="time in which a node must be in sync again, a client ready"
    )


class RollingRestartParams(RollingParams):
    target: str = Field(
        "all",
        pattern=_TARGET,
        description="`all` brokers, or clients, as for client-restart: `client:billing` means the "
        "instances of an application",
    )

    @field_validator("target", mode="before")
    @classmethod
    def _is_all_or_clients(cls, target: object) -> object:
        if isinstance(target, str) and not re.search(_TARGET, target):
            raise ValueError("must be all, client or client:NAME; use restart for one broker")
        return target


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

    params: RollingParams  # type: ignore[assignment]  # has stop_within, too

    def __init__(
        self, view: ClusterView, params: RollingParams, nodes: Iterable[str] | None = None
    ) -> None:
        super().__init__(view, view.brokers if nodes is None else tuple(nodes), params)
        self._done: dict[str, Roll] = {}

    def objection(self) -> str:
        shrunk = self.before.shrunk() if self.before else {}
        return next(
            (f"{nodes[0]} is not in sync for {stream}" for stream, nodes in shrunk.items()), ""
        )

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
        return EnvironmentNotReady(
            f"{node} was not ready {limit_s:g} s after its restart: {missing}"
        )

    def proof(self) -> Proof:
        """Effective when every node was replaced and each of them gave something up."""
        done = dict(self._done)
        rolled = "; ".join(row.text(node) for node, row in done.items())
        complete = len(done) == len(self.targets)
        noticed = all(row.changed for row in done.values())
        text = f"{len(done)} of {len(self.targets)} nodes restarted" + (
            f": {rolled}" if rolled else ""
        )
        return Proof(
            complete and noticed, text, {node: row.details() for node, row in done.items()}
        )


class RolledClients(EndedClient):
    """One client process after the other; the next only when the one before is ready again."""

    params: RollingRestartParams

    def __init__(
        self, view: ClusterView, clients: Sequence[str], params: RollingRestartParams
    ) -> None:
        super().__init__(view, clients, params)
        self._ready: dict[str, str] = {}

    def apply(self) -> None:
        for name in self.targets:
            if self.view.stopping.is_set():
                return
            self._roll(name)

    def _roll(self, name: str) -> None:
        start = time.monotonic()
        by_itself = self.lives.stop(name, self.params.stop_within)
        how = "stopped" if by_itself else "killed"
        self._ended[name] = f"{how} after {time.monotonic() - start:.1f} s"
        self.view.stopping.wait(self.params.down)
        self.lives.begin(name)
        limit_s = self.params.ready_within
        is_late = wait_while(
            lambda: not self.lives.is_ready(name),
            limit_s,
            every_s=POLL_S,
            stop=self.view.stopping,
        )
        if is_late and not self.view.stopping.is_set():
            raise EnvironmentNotReady(
                f"{self.lives.life(name)} was not ready {limit_s:g} s after its start"
            )
        if not is_late:
            self._ready[name] = f"{time.monotonic() - start:.1f} s"

    def proof(self) -> Proof:
        """Effective when each was ended by us and became ready again."""
        told = [
            f"{self._before[name]} {self._ended[name]}, {self.lives.life(name)} ready after {took}"
            for name, took in dict(self._ready).items()
        ]
        text = f"{len(told)} of {len(self.targets)} clients restarted"
        return Proof(
            len(told) == len(self.targets),
            "; ".join([text, *told]),
            {"ended": list(self._ended), "ready": list(self._ready)},
        )


class RollingRestart(FaultKind[RollingRestartParams]):
    """Restart every broker, or clients, gracefully, one after the other, waiting until each is in
    sync or ready again."""

    kind = "rolling-restart"
    abilities = (Stoppable, HasPlacement)
    takes_nodes = True
    params = RollingRestartParams

    def complete(self, params: RollingRestartParams, inventory: Inventory) -> RollingRestartParams:
        if is_client(params.target):
            refuse_clients(params.target, inventory, inventory.clients)
        return params

    def abilities_for(self, params: RollingRestartParams) -> tuple[type, ...]:
        return () if is_client(params.target) else self.abilities

    def ends_within_s(self, params: RollingRestartParams) -> float | None:
        """Return the time that all nodes need."""
        return None

    def commands(self, params: RollingRestartParams, inventory: Inventory) -> list[str]:
        asked = is_client(params.target)
        stop = f"{'drain or stop' if asked else 'SIGTERM'}, SIGKILL after {params.stop_within:g} s"
        state = "ready" if asked else "in sync"
        ready = f"wait until it is {state}, {params.ready_within:g} s at most"
        later = f" {params.down:g} s later" if params.down else " again"
        steps = f"{stop}; start it{later}; {ready}"
        targets = (
            [name for name in inventory.clients if is_target(params.target, name)]
            if asked
            else target_text("all", inventory).split(", ")
        )
        return [f"{target}: {steps}" for target in targets]

    def prepare(self, params: RollingRestartParams, view: ClusterView, draw: int) -> Injection:
        if is_client(params.target):
            return RolledClients(view, clients_of_run(params.target, view), params)
        return Rolled(view, params)
