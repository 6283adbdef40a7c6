"""close-by-broker: a broker closes a producer, a consumer, a channel or a connection, and tells its
client."""

from __future__ import annotations

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from faults.kit.cluster_view import ability_of
from harness.errors import did_you_mean
from harness.protocols.cluster import Cluster
from harness.protocols.network import AnswerChange, ChangesAnswers


class CloseByBrokerParams(AnswerParams):
    requests: tuple[str, ...] = Field(
        ("SEND",),
        min_length=1,
        description="Pulsar: the producer of a `SEND` is closed after it, or the consumer of an `ACK` "
        "or `FLOW`; NATS: the connection of a request; AMQP: its channel or connection, before it",
    )
    says: str = Field(
        "",
        description="what the broker says, as the protocol names it: `Stale Connection`, "
        "`PRECONDITION_FAILED`; Pulsar: nothing to choose",
    )


class CloseByBroker(AnswerFault[CloseByBrokerParams]):
    """Let a broker of Pulsar, NATS or AMQP close the producers, consumers, channels or connections
    of some requests, and tell their client."""

    kind = "close-by-broker"
    params = CloseByBrokerParams
    samples = ({"requests": ["SEND"], "share": 0.01}, {"requests": ["ACK"], "share": 0.1})

    def refusal(self, params: CloseByBrokerParams, cluster: Cluster) -> str:
        found = ability_of(cluster, ChangesAnswers)
        if reason := super().refusal(params, cluster):
            return reason
        kinds, closings = found.closing_kinds(), found.closings()
        if strange := [name for name in params.requests if name not in kinds]:
            return f"requests: {strange[0]} names nothing to close; allowed: {', '.join(kinds)}"
        if params.says not in (closings or ("",)):
            close = (
                did_you_mean(params.says, closings, label="allowed") if closings else "leave it out"
            )
            return f"says: brokers of {cluster.system} do not say {params.says!r}; {close}"
        return ""

    def action(self, params: CloseByBrokerParams) -> str:
        said = f" with {params.says}" if params.says else ""
        return f"close what {params.which} belong to at the broker and at the client{said}:"

    def change(self, params: CloseByBrokerParams) -> AnswerChange:
        return AnswerChange("detach", error=params.says)
