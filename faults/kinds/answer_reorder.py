"""answer-reorder: a broker answers in order, and later answers overtake an earlier one."""

from __future__ import annotations

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from harness.durations import Seconds
from harness.protocols.network import AnswerChange


class AnswerReorderParams(AnswerParams):
    delay: Seconds = Field(
        1.0, gt=0, le=600, description="how long an answer is held, and only this one"
    )


class AnswerReorder(AnswerFault[AnswerReorderParams]):
    """Let later answers overtake the answers to some requests (NATS, AMQP)."""

    kind = "answer-reorder"
    params = AnswerReorderParams
    samples = ({"requests": ["PUB"]}, {"requests": ["basic.publish"]})

    def action(self, params: AnswerReorderParams) -> str:
        return f"let later answers overtake the answer to {params.which}, for {params.delay:g} s:"

    def change(self, params: AnswerReorderParams) -> AnswerChange:
        return AnswerChange("reorder")

    def delay_s(self, params: AnswerReorderParams) -> float:
        return params.delay
