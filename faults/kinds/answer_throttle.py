"""answer-throttle: answers ask the client to wait, as a broker with a quota does (KIP-13,
KIP-219)."""

from __future__ import annotations

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from harness.durations import Seconds
from harness.protocols.network import AnswerChange


class AnswerThrottleParams(AnswerParams):
    delay: Seconds = Field(
        1.0, gt=0, le=600, description="how long the client is asked to send nothing"
    )


class AnswerThrottle(AnswerFault[AnswerThrottleParams]):
    """Let answers ask the client to wait, though the broker has no quota."""

    kind = "answer-throttle"
    params = AnswerThrottleParams

    def action(self, params: AnswerThrottleParams) -> str:
        return f"ask the client in the answer to {params.which} to wait {params.delay:g} s:"

    def change(self, params: AnswerThrottleParams) -> AnswerChange:
        return AnswerChange("throttle")

    def delay_s(self, params: AnswerThrottleParams) -> float:
        return params.delay
