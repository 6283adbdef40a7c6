"""answer-close: a broker answers, and closes the connection."""

from __future__ import annotations

from faults.kit.answers import AnswerFault, AnswerParams
from harness.protocols.network import AnswerChange


class AnswerClose(AnswerFault[AnswerParams]):
    """Close the connection after the answers to some requests."""

    kind = "answer-close"
    params = AnswerParams

    def action(self, params: AnswerParams) -> str:
        return f"close the connection after the answer to {params.which}:"

    def change(self, params: AnswerParams) -> AnswerChange:
        return AnswerChange("close")
