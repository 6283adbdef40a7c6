"""client-kill: the process of a client crashes, and the application is restarted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar, cast

from pydantic import Field

from faults.kit.clients import ClientFault, ClientParams, clients_of_run, refuse_clients
from faults.kit.cluster_view import ClusterView
from faults.kit.injection import Injection
from faults.kit.params import Inventory, Params
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Proof
from harness.protocols.faulting import ClientLives


class ClientKillParams(ClientParams):
    needs_pid = False

    for_: Seconds = Field(
        1.0, alias="for", gt=0, description="the process restarts after this time"
    )


class EndedClient(Injection):
    """Client processes that are gone; heal begins the next life of each, and waits until it is
    ready."""

    def __init__(self, view: ClusterView, clients: Sequence[str], params: Params) -> None:
        super().__init__(view, sorted(clients), params)
        self._before: dict[str, str] = {name: self.lives.life(name) for name in self.targets}
        self._ended: dict[str, str] = {}

    @property
    def lives(self) -> ClientLives:
        return cast("ClientLives", self.view.lives)

    def apply(self) -> None:
        for name in self.targets:
            self._ended[name] = self.end(name)

    def end(self, name: str) -> str:
        """End one process; how it ended, empty when it had ended before."""
        return "killed" if self.lives.kill(name) else ""

    def proof(self) -> Proof:
        """Effective when a process was ended by us; then also which life came after it."""
        told = []
        for name, how in self._ended.items():
            life = self.lives.life(name)
            begun = life != self._before[name] and self.lives.is_ready(name)
            told.append(
                f"{self._before[name]} {how or 'had died before'}"
                + (f", {life} ready" if begun else "")
            )
        effective = any(self._ended.values())
        return Proof(
            effective, "; ".join(told), {"ended": [n for n, how in self._ended.items() if how]}
        )

    def heal(self) -> None:
        for name in self.targets:
            self.lives.begin(name)

    def is_undone(self) -> bool:
        live = self.view.clients()
        return all(name in live for name in self.targets)

    def missing(self) -> str:
        late = [self.lives.life(name) for name in self.targets if not self.lives.is_ready(name)]
        return f"{', '.join(late)} not ready" if late else ""

    def confirmed_acks(self) -> ConfirmedAcks:
        """Nothing happens to a broker."""
        return "kept"


E = TypeVar("E", bound=ClientParams)


class EndingFault(ClientFault[E], Generic[E]):
    """Base of the kinds that end client processes."""

    def complete(self, params: E, inventory: Inventory) -> E:
        params = super().complete(params, inventory)
        refuse_clients(params.target, inventory, inventory.clients)
        return params


class ClientKill(EndingFault[ClientKillParams]):
    """SIGKILL client processes and start them again after `for`, as new producers and consumers."""

    kind = "client-kill"
    params = ClientKillParams

    def commands(self, params: ClientKillParams, inventory: Inventory) -> list[str]:
        return [f"SIGKILL {params.target}", f"after {params.for_:g} s: start its next life"]

    def prepare(self, params: ClientKillParams, view: ClusterView, draw: int) -> EndedClient:
        return EndedClient(view, clients_of_run(params.target, view), params)
