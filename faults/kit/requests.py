"""Keys of the faults that meet requests of some kinds, and why a cluster cannot find these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from faults.kit.network import NetworkParams
from faults.kit.params import Share
from harness.errors import did_you_mean
from harness.protocols.cluster import Cluster


class RequestParams(NetworkParams):
    """Keys of a fault that meets requests of some kinds."""

    requests: tuple[str, ...] = Field(
        min_length=1,
        description="kinds of requests, as the protocol names them: `[EndTxn]`, `[Produce, Fetch]`",
    )
    share: Share = Field(
        1.0, description="share of these requests that are met; 0.4 is four in ten"
    )


#: Requests of Kafka that a fault on requests may be drawn with, one at a time.
DRAWN_REQUESTS: Final = tuple(
    {"requests": [name]}
    for name in ("Produce", "Fetch", "OffsetCommit", "Metadata", "FindCoordinator", "JoinGroup")
)


def requests_refusal(
    params: RequestParams, kinds: Sequence[str], cluster: Cluster, *, ends_tls: bool = False
) -> str:
    """Why the proxy of this cluster cannot find such requests, after the key and a colon where one
    is wrong; empty when it can.

    Args:
        kinds: the kinds that it can tell apart.
        ends_tls: it has the certificates of the nodes, so it can read connections with TLS.
    """
    if unknown := [name for name in params.requests if name not in kinds]:
        close = (
            did_you_mean(unknown[0], kinds, label="allowed")
            if kinds
            else "they cannot be distinguished"
        )
        return f"requests: no request {unknown[0]!r} of {cluster.system}; {close}"
    if cluster.security is not None and not ends_tls:
        return "requests cannot be distinguished on connections with TLS"
    return ""
