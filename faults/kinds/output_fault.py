"""output-fault: the endpoint that takes outputs of an application answers late, refuses, or is
silent."""

from __future__ import annotations

from typing import ClassVar, Literal, cast

from pydantic import Field

from faults.kit.clients import NO_RUN
from faults.kit.cluster_view import ClusterView
from faults.kit.errors import FiringSkipped, StepProblem
from faults.kit.injection import FaultKind, Injection
from faults.kit.params import Inventory, Params, Share
from harness.durations import Seconds
from harness.faultlog import ConfirmedAcks
from harness.protocols.cluster import Proof
from harness.protocols.faulting import HasOutputEndpoints, OutputEndpoint

#: What happens to a request -> for people.
_DONE = {
    "delay": "answered late",
    "refuse": "refused with status 503",
    "drop": "accepted and not answered",
}


class OutputFaultParams(Params):
    """Keys of a fault on requests with outputs."""

    application: str = Field(
        "",
        description="an application with `to: {http: true}`; may be left out if there is only one",
    )
    how: Literal["delay", "refuse", "drop"] = Field(
        description="`delay`: the request is accepted, and answered late; `refuse`: it is not accepted, and "
        "answered with status 503; `drop`: it is accepted, and the connection is closed without an answer"
    )
    share: Share = Field(
        1.0, description="share of the requests, spread evenly, that are concerned"
    )
    delay: Seconds = Field(1.0, gt=0, description="with `how: delay`: time before the answer")
    for_: Seconds = Field(5.0, alias="for", gt=0, description="how long the fault lasts")


class OutputsDisturbed(Injection):
    """Requests with outputs meet a disturbed endpoint; heal restores it."""

    looks_last: ClassVar[bool] = True
    params: OutputFaultParams

    def __init__(
        self, view: ClusterView, endpoint: OutputEndpoint, params: OutputFaultParams
    ) -> None:
        super().__init__(view, [f"outputs of {params.application}"], params)
        self._endpoint = endpoint
        self._is_applied = False

    def apply(self) -> None:
        own = self.params
        self._is_applied = True
        self._endpoint.disturb(own.how, share=own.share, delay_s=own.delay)

    def proof(self) -> Proof:
        """Effective when a request met it."""
        count = self._endpoint.disturbed
        many = f"{count:,} request{'' if count == 1 else 's'}"
        return Proof(count > 0, f"{many} {_DONE[self.params.how]}", {"requests": count})

    def heal(self) -> None:
        self._endpoint.restore()
        self._is_applied = False

    def is_undone(self) -> bool:
        return not self._is_applied

    def missing(self) -> str:
        return ""

    def confirmed_acks(self) -> ConfirmedAcks:
        """Nothing happens to a broker."""
        return "kept"


class OutputFault(FaultKind[OutputFaultParams]):
    """The endpoint for outputs of an application answers late, refuses, or accepts without an
    answer."""

    kind = "output-fault"
    abilities: ClassVar[tuple[type, ...]] = ()
    params = OutputFaultParams
    said: ClassVar[frozenset[str]] = FaultKind.said | {"application", "how", "delay", "share"}

    def complete(self, params: OutputFaultParams, inventory: Inventory) -> OutputFaultParams:
        known = sorted(inventory.output_endpoints)
        name = params.application or (known[0] if len(known) == 1 else "")
        if name in known:
            return params.model_copy(update={"application": name})
        if not known:
            raise StepProblem("fault", "needs an application with to: {http: true}")
        problem = f"must be an application with to: {{http: true}}: {', '.join(known)}"
        raise StepProblem("application", f"{problem}, got {params.application or 'nothing'}")

    def target(self, params: OutputFaultParams) -> str:
        return f"outputs of {params.application}"

    def choices(self, params: OutputFaultParams) -> list[str]:
        late = f" {params.delay:g} s" if params.how == "delay" else ""
        share = f" {params.share:.0%}" if params.share < 1 else ""
        return [f"{params.how}{share}{late}"]

    def commands(self, params: OutputFaultParams, inventory: Inventory) -> list[str]:
        return [
            f"{params.share:.0%} of the requests with outputs of {params.application}: "
            f"{_DONE[params.how]}",
            f"after {params.for_:g} s: all are answered again",
        ]

    def prepare(self, params: OutputFaultParams, view: ClusterView, draw: int) -> OutputsDisturbed:
        lives = view.lives
        if not isinstance(lives, HasOutputEndpoints):
            raise FiringSkipped(NO_RUN)
        endpoint = cast("HasOutputEndpoints", lives).output_endpoint(params.application)
        if endpoint is None:
            raise FiringSkipped(f"application {params.application} has no endpoint for outputs")
        return OutputsDisturbed(view, endpoint, params)
