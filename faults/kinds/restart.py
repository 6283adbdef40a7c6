"""restart: an orderly stop, as an operator or a rolling upgrade does it."""

from __future__ import annotations

import time
from typing import Final

from pydantic import Field

from faults.kinds.kill import Killed
from faults.kit.node_loss import NodeFault
from faults.kit.params import Inventory, NodeParams
from faults.kit.targets import target_text
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import HasPlacement
from harness.protocols.nodes import Stoppable

#: A broker whose topics do not close ends anyway (Pulsar: brokerShutdownTimeoutMs, 10 s in our
#: clusters).
_ORDERLY_S: Final = 8.0


class RestartParams(NodeParams):
    down: Seconds = Field(0.0, description="time between the end of the process and its next start")
    stop_within: Seconds = Field(
        30.0, gt=0, description="a process that has not stopped by itself in this time gets SIGKILL"
    )


class Stopped(Killed):
    """Nodes stopped by SIGTERM: they hand their leaders over first."""

    params: RestartParams

    #: Of the nodes that were stopped so far; None before the first.
    _orderly: bool | None = None

    def stop(self, node: str) -> float:
        """Stop one node; seconds that it took."""
        start = time.monotonic()
        by_itself = self.view.ability(Stoppable).stop(node, timeout_s=self.params.stop_within)
        took_s = time.monotonic() - start
        self._orderly = self._orderly is not False and by_itself and took_s < _ORDERLY_S
        return took_s

    def confirmed_acks(self) -> ConfirmedAcks:
        """An orderly stop closes topics, which writes their cursors. One that was cut short did
        not."""
        if self._orderly is None:
            return "unknown"
        return "kept" if self._orderly else super().confirmed_acks()

    def apply(self) -> None:
        start = time.monotonic()
        for node in self.targets:
            self.stop(node)
        self._gone = not any(self.view.is_running(node) for node in self.targets)
        self._stopped_s = time.monotonic() - start

    def process_evidence(self) -> str:
        return f"stopped in {self._stopped_s:.1f} s" if self._gone else ""


class Restart(NodeFault[RestartParams]):
    """Stop a node gracefully (SIGTERM) and start it again after `down`."""

    kind = "restart"
    abilities = (Stoppable, HasPlacement)
    params = RestartParams
    injects = Stopped
    lasts_word = "down"

    def lasts_s(self, params: RestartParams) -> float | None:
        return params.down

    def commands(self, params: RestartParams, inventory: Inventory) -> list[str]:
        stop = f"SIGTERM {target_text(params.target, inventory)}"
        later = f"{params.down:g} s later: " if params.down else "then "
        return [
            f"{stop}; SIGKILL if it has not stopped within {params.stop_within:g} s",
            f"{later}start it again",
        ]
