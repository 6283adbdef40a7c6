"""blackhole: connections stay open and nothing comes through, as behind a router that forgot them."""

from __future__ import annotations

from collections.abc import Sequence

from faults.kit.cluster_view import ClusterView
from faults.kit.network import Impaired, NetworkFault, NetworkParams
from harness.protocols.network import Flow, Impairment


class BlackholeParams(NetworkParams):
    """The keys of every network fault."""


class Blackhole(NetworkFault[BlackholeParams]):
    """Swallow all bytes of a node's connections: they stay open (half-open) for `for` and are closed then."""

    kind = "blackhole"
    how = "swallow"
    takes_nodes = True
    params = BlackholeParams

    def action(self, params: BlackholeParams) -> str:
        return "swallow all bytes"

    def impaired(
        self, view: ClusterView, targets: tuple[str, ...], params: BlackholeParams, flows: Sequence[Flow]
    ) -> Impaired:
        return Impaired(view, targets, params, flows, Impairment(self.how))
