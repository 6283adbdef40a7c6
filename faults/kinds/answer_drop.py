"""answer-drop: the answer of a broker never comes, though it did what it was asked, or because the
request was lost too."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from harness.protocols.network import AnswerChange


class AnswerDropParams(AnswerParams):
    then: Literal["stay", "close"] = Field(
        "stay", description="whether the connection stays open, or is closed where the answer was"
    )
    carried_out: bool = Field(True, description="false: the broker does not get the request either")


class AnswerDrop(AnswerFault[AnswerDropParams]):
    """Drop the answers to some requests that the broker carried out, or these requests too."""

    kind = "answer-drop"
    params = AnswerDropParams

    def action(self, params: AnswerDropParams) -> str:
        lost = "" if params.carried_out else " and the request"
        then = ", and close the connection" if params.then == "close" else ""
        return f"drop the answer to {params.which}{lost}{then}:"

    def change(self, params: AnswerDropParams) -> AnswerChange:
        return AnswerChange("drop", close=params.then == "close", instead=not params.carried_out)
