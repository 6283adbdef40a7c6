"""blackhole: connections stay open and nothing comes through, as with a router that forgot them."""

from __future__ import annotations

from faults.kit.network import NetworkFault, NetworkParams


class BlackholeParams(NetworkParams):
    """The keys of every network fault."""


class Blackhole(NetworkFault[BlackholeParams]):
    """Swallow all bytes of a node's connections, which stay open for `for` and are then closed."""

    kind = "blackhole"
    how = "swallow"
    takes_nodes = True
    params = BlackholeParams

    def action(self, params: BlackholeParams) -> str:
        return "swallow all bytes"
