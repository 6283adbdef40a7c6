"""latency: every byte to or from a node takes longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from faults.kit.cluster_view import ClusterView
from faults.kit.network import Impaired, NetworkFault, NetworkParams, Way
from harness.durations import Seconds
from harness.protocols.network import Flow, Impairment

# of the delay that must be seen, jitter apart: a machine that is busy is slow before, too
_SHARE = 0.5


class LatencyParams(NetworkParams):
    delay: Seconds = Field(0.1, gt=0, le=60, description="delay of each byte")
    delay_jitter: Seconds = Field(0.0, description="largest random difference from `delay`")
    way: Way = Field(
        "in",
        description=(
            "direction: `in` delays bytes to the node, `out` bytes from it; `both` delays each "
            "request twice"
        ),
    )

    @model_validator(mode="after")
    def _less(self) -> Self:
        if self.delay_jitter > self.delay:
            raise ValueError(
                f"delay_jitter ({self.delay_jitter:g} s) must not be more than delay "
                f"({self.delay:g} s)"
            )
        return self


class Delayed(Impaired):
    """Flows that are late."""

    silences = False

    @property
    def timeout_s(self) -> float:
        return 2.0 + 3 * (self.impairment.delay_s + self.impairment.jitter_s)

    def shows_effect(self, name: str, took_s: float | None) -> bool:
        least_s = max(self.impairment.delay_s - self.impairment.jitter_s, 0.02) * _SHARE
        baseline_s = self.baseline.get(name)
        return took_s is not None and baseline_s is not None and took_s >= baseline_s + least_s

    def sentence(self, affected: dict[str, float | None]) -> str:
        name = next(iter(affected))
        before_ms, now_ms = (self.baseline[name] or 0.0) * 1e3, (affected[name] or 0.0) * 1e3
        return f"a request takes {now_ms:.0f} ms, {before_ms:.0f} ms before ({name})"


class Latency(NetworkFault[LatencyParams]):
    """Delay the bytes that clients or other nodes exchange with a node, with jitter, for `for`."""

    silences = False
    kind = "latency"
    how = "delay"
    params = LatencyParams

    def action(self, params: LatencyParams) -> str:
        jitter = f" +- {params.delay_jitter * 1e3:g} ms" if params.delay_jitter else ""
        return f"delay by {params.delay * 1e3:g} ms{jitter} all bytes"

    def impaired(
        self,
        view: ClusterView,
        targets: tuple[str, ...],
        params: LatencyParams,
        flows: Sequence[Flow],
    ) -> Delayed:
        impairment = Impairment(self.how, delay_s=params.delay, jitter_s=params.delay_jitter)
        return Delayed(view, targets, params, flows, impairment)
