"""connection-reset: connections are dropped without notice, as a firewall or a load balancer does it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.network import Impaired, NetworkFault, NetworkParams
from harness.durations import Seconds
from harness.protocols.network import Flow, Impairment


class ConnectionResetParams(NetworkParams):
    for_: Seconds = Field(
        1.0, alias="for", gt=0, description="new connections are reset, too, until this long after"
    )


class ConnectionReset(NetworkFault[ConnectionResetParams]):
    """Close every connection of a node, and reset (RST) each new one at its first byte during `for`."""

    kind = "connection-reset"
    how = "reset"
    params = ConnectionResetParams

    def action(self, params: ConnectionResetParams) -> str:
        return "close connections, reset new ones at the first byte"

    def impaired(
        self,
        view: ClusterView,
        targets: tuple[str, ...],
        params: ConnectionResetParams,
        flows: Sequence[Flow],
    ) -> Impaired:
        return Impaired(view, targets, params, flows, Impairment(self.how))
