"""close-by-broker: a broker closes a producer or a consumer, and tells its client."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from harness.protocols.network import AnswerChange


class CloseByBrokerParams(AnswerParams):
    requests: tuple[Literal["SEND", "ACK", "FLOW"], ...] = Field(
        ("SEND",),
        min_length=1,
        description="`[SEND]`: the producer of the request is closed after it; `[ACK]` or `[FLOW]`: "
        "the consumer",
    )


class CloseByBroker(AnswerFault[CloseByBrokerParams]):
    """Let a Pulsar broker close the producers or consumers of some requests, and tell their
    client."""

    kind = "close-by-broker"
    params = CloseByBrokerParams
    samples = ({"requests": ["SEND"], "share": 0.01}, {"requests": ["ACK"], "share": 0.1})

    def action(self, params: CloseByBrokerParams) -> str:
        return f"close the producer or consumer of {params.which} at the broker and at the client:"

    def change(self, params: CloseByBrokerParams) -> AnswerChange:
        return AnswerChange("detach")
