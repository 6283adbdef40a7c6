"""answer-twice: a broker answers a request, and then once more."""

from __future__ import annotations

from faults.kit.answers import AnswerFault, AnswerParams
from harness.protocols.network import AnswerChange


class AnswerTwice(AnswerFault[AnswerParams]):
    """Send the answers to some requests twice (Pulsar, NATS, AMQP)."""

    kind = "answer-twice"
    params = AnswerParams
    samples = ({"requests": ["SEND"]}, {"requests": ["PRODUCER"]})

    def action(self, params: AnswerParams) -> str:
        return f"send the answer to {params.which} twice:"

    def change(self, params: AnswerParams) -> AnswerChange:
        return AnswerChange("twice")
