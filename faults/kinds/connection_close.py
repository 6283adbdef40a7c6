"""connection-close: the broker closes the connections of a client, as an operator or a limit
does."""

from __future__ import annotations

from collections.abc import Sequence

from faults.kit.clients import ClientFault, ClientParams, matching_workers, worker_names
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped
from faults.kit.injection import Instant
from faults.kit.params import Inventory
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import ClientConnection, HasConnections, Proof


class ConnectionCloseParams(ClientParams):
    """The keys of every fault on clients."""


class ConnectionsClosed(Instant):
    """The connections of some workers, closed by the broker; connecting again is the clients'
    part."""

    def __init__(
        self,
        view: ClusterView,
        workers: Sequence[str],
        chosen: Sequence[ClientConnection],
        params: ConnectionCloseParams,
    ) -> None:
        super().__init__(view, workers, params)
        self.chosen = tuple(chosen)
        self._gone: set[str] = set()

    def apply(self) -> None:
        for connection in self.chosen:
            self.view.ability(HasConnections).close_connection(connection)

    def proof(self) -> Proof:
        """Effective when the broker does not list a closed connection any more."""
        there = {
            (found.port, found.id) for found in self.view.ability(HasConnections).connections()
        }
        self._gone |= {one.id for one in self.chosen if (one.port, one.id) not in there}
        text = f"{len(self._gone)} of {len(self.chosen)} connections of {', '.join(self.targets)} closed"
        return Proof(bool(self._gone), text, {"closed": sorted(self._gone)})

    def confirmed_acks(self) -> ConfirmedAcks:
        """Nothing happens to a broker but for its connections."""
        return "kept"

    def missing(self) -> str:
        return ""


class ConnectionClose(ClientFault[ConnectionCloseParams]):
    """Let the broker close the connections of client processes."""

    kind = "connection-close"
    abilities = (HasConnections,)
    params = ConnectionCloseParams

    def commands(self, params: ConnectionCloseParams, inventory: Inventory) -> list[str]:
        return [f"DELETE /api/latest/connection/{{each connection of {params.target} then}}"]

    def prepare(
        self, params: ConnectionCloseParams, view: ClusterView, draw: int
    ) -> ConnectionsClosed:
        wanted = matching_workers(params.target, view)
        pids = set(wanted.values())
        chosen = [
            found
            for found in view.ability(HasConnections).connections()
            if found.pid in pids or found.client_name in wanted
        ]
        if not chosen:
            raise FiringSkipped(f"no connection of {params.target}; clients: {worker_names(view)}")
        return ConnectionsClosed(view, sorted(wanted), chosen, params)
