"""Keys of the faults that meet requests of some kinds, and why a cluster cannot find these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from faults.kit.network import NetworkParams
from faults.kit.params import Share
from harness.errors import did_you_mean
from harness.protocols.cluster import Cluster
from harness.systems import SYSTEMS

if TYPE_CHECKING:
    from faults.kit.injection import FaultKind
    from faults.kit.params import Inventory
    from harness.contracts.plan import FaultStep


class RequestParams(NetworkParams):
    """Keys of a fault that meets requests of some kinds."""

    requests: tuple[str, ...] = Field(
        min_length=1,
        description="kinds of requests, as the protocol names them: `[EndTxn]`, `[Produce, Fetch]`",
    )
    share: Share = Field(
        1.0, description="share of these requests that are met; 0.4 is four in ten"
    )


def client_requests(inventory: Inventory) -> Mapping[str, Sequence[str]]:
    """Return the requests that the clients of a plan send, with errors of answers to each."""
    system = SYSTEMS[inventory.system]
    if any(name.startswith("transactions:") for name in inventory.coordinated):
        return system.client_requests
    transactional = system.transactional_requests
    return {
        name: errors for name, errors in system.client_requests.items() if name not in transactional
    }


def drawn_requests(kind: FaultKind[Any], inventory: Inventory) -> list[FaultStep]:
    """Return the samples of a kind that its system has the requests of; a sample that names none is
    there once for each request that clients of the system send."""
    sent = client_requests(inventory)
    is_named = not kind.params.model_fields["requests"].is_required()
    found: list[FaultStep] = []
    for sample in kind.samples:
        if is_named or "requests" in sample:
            found += [sample] if {*sample.get("requests", ())} <= {*sent} else []
        else:
            found += [{"requests": [name], **sample} for name in sent]
    return found


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
        if "requests" not in params.model_fields_set:
            default = f"its default {unknown[0]} is not a request of {cluster.system}"
            return f"requests: is missing, and {default}; {close}"
        return f"requests: no request {unknown[0]!r} of {cluster.system}; {close}"
    if cluster.security is not None and not ends_tls:
        return "requests cannot be distinguished on connections with TLS"
    return ""
