"""request-stall: connections are held back where a request of a kind begins, and it arrives
late."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from faults.kit.cluster_view import ClusterView, ability_of
from faults.kit.network import Impaired, NetworkFault
from faults.kit.params import Inventory
from faults.kit.requests import RequestParams, drawn_requests, requests_refusal
from faults.kit.targets import target_text
from harness.contracts.plan import FaultStep
from harness.durations import Seconds
from harness.protocols.cluster import Cluster, HasPlacement, Proof
from harness.protocols.network import REQUESTS, Flow, Impairment, Stalled, StallsRequests
from harness.protocols.nodes import Killable


class RequestStallParams(RequestParams):
    delay: Seconds = Field(
        2.5,
        gt=0,
        le=60,
        description="how long a request, and all later requests on its connection, are held",
    )


class Stalling(Impaired):
    """Connections that wait where certain requests begin. The proxy counts those; what it measures
    of others shows nothing, for others pass."""

    params: RequestStallParams
    silences = False
    _found = Stalled(0, 0)

    def shows_effect(self, name: str, took_s: float | None) -> bool:
        return False

    def proof(self) -> Proof:
        """Effective when a request was held."""
        found = self.view.ability(StallsRequests).stalled(self.name)
        if found.seen:  # nothing is counted any more once it is healed
            self._found = found
            self._worst = (
                f"{found.held} of {found.seen} {', '.join(self.params.requests)} requests "
                f"held for {self.params.delay:g} s"
            )
        said = self._worst or f"no {', '.join(self.params.requests)} request was seen"
        details = {"seen": self._found.seen, "held": self._found.held}
        return Proof(bool(self._found.held), f"{', '.join(self.targets)}: {said}", details)


class RequestStall(NetworkFault[RequestStallParams]):
    """Hold connections to a node where a request of some kinds begins, so that it arrives late."""

    silences = False
    kind = "request-stall"
    how = "stall"
    abilities = (StallsRequests, Killable, HasPlacement)
    params = RequestStallParams
    needs = NetworkFault.needs | {REQUESTS}

    def needs_for(self, params: RequestStallParams) -> frozenset[str]:
        return super().needs_for(params) | {REQUESTS}

    def drawn_from(self, inventory: Inventory) -> Sequence[FaultStep]:
        return drawn_requests(self, inventory)

    def complete(self, params: RequestStallParams, inventory: Inventory) -> RequestStallParams:
        target_text(params.target, inventory)  # several nodes at once do not count as lost nodes
        return params

    def refusal(self, params: RequestStallParams, cluster: Cluster) -> str:
        kinds = ability_of(cluster, StallsRequests).request_kinds()
        if reason := requests_refusal(params, kinds, cluster):
            return reason
        return super().refusal(params, cluster)

    def action(self, params: RequestStallParams) -> str:
        which = "/".join(params.requests)
        return f"hold {params.share:.0%} of {which} requests, and all later ones, for {params.delay:g} s:"

    def impaired(
        self,
        view: ClusterView,
        targets: tuple[str, ...],
        params: RequestStallParams,
        flows: Sequence[Flow],
    ) -> Stalling:
        toward = [flow for flow in flows if flow.toward == "target"]
        impairment = Impairment(
            self.how, delay_s=params.delay, requests=params.requests, share=params.share
        )
        return Stalling(view, targets, params, toward, impairment)
