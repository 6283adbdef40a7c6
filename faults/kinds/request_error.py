"""request-error: an answer says that the broker refused a request, which it carried out or never
received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from faults.kit.answers import AnswerFault, AnswerParams
from faults.kit.cluster_view import ability_of
from faults.kit.params import Inventory, Share
from faults.kit.requests import client_requests
from harness.contracts.plan import FaultStep
from harness.durations import Seconds
from harness.errors import did_you_mean
from harness.protocols.cluster import Cluster
from harness.protocols.network import AnswerChange, ChangesAnswers


class RequestErrorParams(AnswerParams):
    error: str = Field(
        description="the error that the answer says, as the protocol names it: `NOT_ENOUGH_REPLICAS`"
    )
    answered: Literal["instead", "after", "before"] = Field(
        "instead",
        description=(
            "`instead`: the broker does not get the request; `after`: it does what it is asked, and "
            "the answer denies it; `before`: the broker gets the request `delay` after the answer"
        ),
    )
    delay: Seconds = Field(
        0.0,
        ge=0,
        le=600,
        description="with `answered: before`, how long after the answer the broker gets the request; "
        "0: one second",
    )
    partitions: Share = Field(
        1.0,
        description=(
            "share of the partitions of an answer that get the error, at least one; less than 1 with "
            "`answered: after` only"
        ),
    )

    @model_validator(mode="after")
    def _whole_requests(self) -> RequestErrorParams:
        if self.partitions < 1 and self.answered != "after":
            raise ValueError(
                f"partitions must be 1 with answered: {self.answered}: a request is answered as a "
                "whole; use answered: after"
            )
        if self.answered != "before" and self.delay:
            raise ValueError(f"delay means nothing with answered: {self.answered}: remove it")
        return self

    @property
    def later_s(self) -> float:
        """How long after the answer the broker gets the request, with ``answered: before``."""
        return self.delay or 1.0


class RequestError(AnswerFault[RequestErrorParams]):
    """Answer some requests with an error, before the broker gets them or after it did the work."""

    kind = "request-error"
    params = RequestErrorParams

    def drawn_from(self, inventory: Inventory) -> Sequence[FaultStep]:
        sent = client_requests(inventory)
        return [
            {"requests": [name], "error": error}
            for name, errors in sent.items()
            for error in errors
        ]

    def refusal(self, params: RequestErrorParams, cluster: Cluster) -> str:
        if reason := super().refusal(params, cluster):
            return reason
        errors = ability_of(cluster, ChangesAnswers).answer_errors()
        if params.error not in errors:
            close = did_you_mean(params.error, errors, label="allowed")
            return f"error: answers of {cluster.system} cannot say {params.error!r}; {close}"
        return ""

    def action(self, params: RequestErrorParams) -> str:
        seen = {
            "instead": "that the broker does not get",
            "after": "that the broker carried out",
            "before": f"that the broker gets {params.later_s:g} s later",
        }
        part = f" for {params.partitions:.0%} of the partitions" if params.partitions < 1 else ""
        return f"answer {params.which}, {seen[params.answered]}, with {params.error}{part}:"

    def change(self, params: RequestErrorParams) -> AnswerChange:
        return AnswerChange(
            "error",
            error=params.error,
            partitions=params.partitions,
            instead=params.answered == "instead",
            before=params.answered == "before",
        )

    def delay_s(self, params: RequestErrorParams) -> float:
        return params.later_s if params.answered == "before" else 0.0
