"""wrong-bytes: a bit of a batch of messages is flipped between a client and its broker."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from harness.protocols.network import AnswerChange


class WrongBytesParams(AnswerParams):
    requests: tuple[Literal["Produce", "Fetch"], ...] = Field(
        ("Fetch",),
        min_length=1,
        description="`[Fetch]`: on the way to a consumer; `[Produce]`: on the way to the broker",
    )


class WrongBytes(AnswerFault[WrongBytesParams]):
    """Flip a bit of the messages in some requests or answers; a checksum must show it."""

    kind = "wrong-bytes"
    params = WrongBytesParams
    samples = ({"requests": ["Fetch"]}, {"requests": ["Produce"]})

    def action(self, params: WrongBytesParams) -> str:
        return f"flip a bit of the messages of {params.which}:"

    def change(self, params: WrongBytesParams) -> AnswerChange:
        return AnswerChange("flip")
