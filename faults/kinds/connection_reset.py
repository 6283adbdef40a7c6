"""connection-reset: connections are dropped without notice, as a firewall or a load balancer does
it."""

from __future__ import annotations

from pydantic import Field

from faults.kit.network import NetworkFault, NetworkParams
from harness.durations import Seconds


class ConnectionResetParams(NetworkParams):
    for_: Seconds = Field(
        1.0, alias="for", gt=0, description="for how long new connections are reset as well"
    )


class ConnectionReset(NetworkFault[ConnectionResetParams]):
    """Close every connection of a node, and reset (RST) each new one at its first byte during
    `for`."""

    kind = "connection-reset"
    how = "reset"
    params = ConnectionResetParams

    def action(self, params: ConnectionResetParams) -> str:
        return "close connections, reset new ones at the first byte"
