"""bandwidth: each connection of a node gets a few bytes per second through."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from faults.kit.cluster_view import ClusterView
from faults.kit.network import Impaired, NetworkFault, NetworkParams
from harness.protocols.cluster import Cluster
from harness.protocols.network import Flow, Impairment

_MEASURE_S = 0.4  # worth of bytes to measure with
_SHARE = 0.5
_MOST_BYTES = 4_000_000


class BandwidthParams(NetworkParams):
    rate: int = Field(
        1000,
        ge=1,
        le=1_000_000,
        description="kilobytes per second for each connection and direction",
    )


class Throttled(Impaired):
    """Flows of which little gets through; measured with a request that is as long as it takes."""

    silences = False

    @property
    def ballast(self) -> int:
        return min(int(self.impairment.kilobytes_per_s * 1000 * _MEASURE_S), _MOST_BYTES)

    @property
    def least_s(self) -> float:
        """How long so many bytes take at the least."""
        return self.ballast / (self.impairment.kilobytes_per_s * 1000)

    @property
    def timeout_s(self) -> float:
        return 2.0 + 3 * self.least_s

    def shows_effect(self, name: str, took_s: float | None) -> bool:
        baseline_s = self.baseline.get(name)
        return (
            took_s is not None
            and baseline_s is not None
            and took_s >= baseline_s + _SHARE * self.least_s
        )

    def sentence(self, affected: dict[str, float | None]) -> str:
        name = next(iter(affected))
        before_ms, now_ms = (self.baseline[name] or 0.0) * 1e3, (affected[name] or 0.0) * 1e3
        size = self.ballast // 1000
        return f"a request of {size} kB takes {now_ms:.0f} ms, {before_ms:.0f} ms before ({name})"


class Bandwidth(NetworkFault[BandwidthParams]):
    """Limit each connection with a node to `rate` kilobytes per second for `for`."""

    silences = False
    kind = "bandwidth"
    how = "throttle"
    params = BandwidthParams

    def refusal(self, params: BandwidthParams, cluster: Cluster) -> str:
        asked = cluster.request("client", _MOST_BYTES)
        if asked is None or len(asked[0]) < _MOST_BYTES:
            return f"it cannot be proved: no known request of {cluster.system} is long enough"
        return super().refusal(params, cluster)

    def action(self, params: BandwidthParams) -> str:
        return f"pass {params.rate} kB/s per connection of the bytes"

    def impaired(
        self,
        view: ClusterView,
        targets: tuple[str, ...],
        params: BandwidthParams,
        flows: Sequence[Flow],
    ) -> Throttled:
        impairment = Impairment(self.how, kilobytes_per_s=params.rate)
        return Throttled(view, targets, params, flows, impairment)
