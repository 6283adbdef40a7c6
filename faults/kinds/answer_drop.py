"""answer-drop: a broker does what it is asked, and its answer never comes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from harness.protocols.network import AnswerChange


class AnswerDropParams(AnswerParams):
    then: Literal["stay", "close"] = Field(
        "stay", description="whether the connection stays open, or is closed where the answer was"
    )


class AnswerDrop(AnswerFault[AnswerDropParams]):
    """Drop the answers to some requests that the broker carried out."""

    kind = "answer-drop"
    params = AnswerDropParams

    def action(self, params: AnswerDropParams) -> str:
        then = ", and close the connection" if params.then == "close" else ""
        return f"drop the answer to {params.which}{then}:"

    def change(self, params: AnswerDropParams) -> AnswerChange:
        return AnswerChange("drop", close=params.then == "close")
