"""metadata-stale: brokers name leaders that are not the leaders any more, or never were."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from faults.kit.answers import AnswerFault, AnswerParams
from harness.protocols.network import AnswerChange


class MetadataStaleParams(AnswerParams):
    requests: tuple[Literal["Metadata"], ...] = Field(
        ("Metadata",), min_length=1, description="only `[Metadata]`: its answers name leaders"
    )
    leader: Literal["before", "gone"] = Field(
        "before",
        description="`before`: the leader that a broker named first since the fault began; `gone`: "
        "a broker that does not exist",
    )


class MetadataStale(AnswerFault[MetadataStaleParams]):
    """Let brokers name leaders that are no longer the leaders, or a broker that is gone."""

    kind = "metadata-stale"
    params = MetadataStaleParams
    samples = ({},)

    def action(self, params: MetadataStaleParams) -> str:
        who = {"before": "the leaders of before", "gone": "a broker that is gone as leader"}
        return f"name {who[params.leader]} in the answer to {params.which}:"

    def change(self, params: MetadataStaleParams) -> AnswerChange:
        return AnswerChange("stale", gone=params.leader == "gone")
