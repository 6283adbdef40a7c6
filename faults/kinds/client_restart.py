"""client-restart: an application is shut down in good order and restarted, as in a rollout."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from pydantic import Field

from faults.kinds.client_kill import EndedClient, EndingFault
from faults.kit.clients import ClientParams, clients_of_run
from faults.kit.cluster_view import ClusterView
from faults.kit.params import Inventory
from harness.durations import Seconds


class ClientRestartParams(ClientParams):
    needs_pid = False

    down: Seconds = Field(0.0, description="time between the end of the process and its next start")
    stop_within: Seconds = Field(
        10.0, gt=0, description="a process that has not stopped by itself in this time gets SIGKILL"
    )


class Closed(EndedClient):
    """Client processes that were asked to finish: producers flush, consumers commit and leave."""

    params: ClientRestartParams

    def apply(self) -> None:
        # one that hangs does not hold up the others
        with ThreadPoolExecutor(len(self.targets)) as pool:
            self._ended.update(zip(self.targets, pool.map(self.end, self.targets), strict=True))

    def end(self, name: str) -> str:
        start = time.monotonic()
        by_itself = self.lives.stop(name, self.params.stop_within)
        took_s = time.monotonic() - start
        return f"stopped in {took_s:.1f} s" if by_itself else f"killed after {took_s:.1f} s"


class ClientRestart(EndingFault[ClientRestartParams]):
    """Shut client processes down and start them again after `down`, as new producers and
    consumers."""

    kind = "client-restart"
    params = ClientRestartParams
    lasts_word = "down"

    def lasts_s(self, params: ClientRestartParams) -> float | None:
        return params.down

    def commands(self, params: ClientRestartParams, inventory: Inventory) -> list[str]:
        later = f"{params.down:g} s later: " if params.down else "then "
        return [
            f"drain or stop {params.target}; SIGKILL if it has not ended within {params.stop_within:g} s",
            f"{later}start its next life",
        ]

    def prepare(self, params: ClientRestartParams, view: ClusterView, draw: int) -> Closed:
        return Closed(view, clients_of_run(params.target, view), params)
