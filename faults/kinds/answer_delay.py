"""answer-delay: a broker does what it is asked at once, and its answer comes late."""

from __future__ import annotations

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from harness.durations import Seconds
from harness.protocols.network import AnswerChange


class AnswerDelayParams(AnswerParams):
    delay: Seconds = Field(
        2.5,
        gt=0,
        le=600,
        description="how long an answer, and all later answers on its connection, are held",
    )


class AnswerDelay(AnswerFault[AnswerDelayParams]):
    """Hold the answers to some requests that the broker carried out."""

    kind = "answer-delay"
    params = AnswerDelayParams

    def action(self, params: AnswerDelayParams) -> str:
        return f"hold the answer to {params.which}, and all later answers, for {params.delay:g} s:"

    def change(self, params: AnswerDelayParams) -> AnswerChange:
        return AnswerChange("delay")

    def delay_s(self, params: AnswerDelayParams) -> float:
        return params.delay
