"""Serves metrics for Prometheus, under the names that OpenTelemetry's specification gives them
there.

Needs a package of the extra ``telemetry``; it is not imported unless metrics are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from harness.errors import EnvironmentNotReady
from harness.telemetry.instruments import (
    BOUNDS_S,
    Distribution,
    Instrument,
    InstrumentKind,
    Labels,
    Now,
    Value,
)

#: A unit in braces is an annotation, and no part of a name.
_UNITS: Final = {"s": "seconds", "By": "bytes", "{message}/s": "per_second"}
_FAMILIES: Final = {
    InstrumentKind.COUNTER: CounterMetricFamily,
    InstrumentKind.GAUGE: GaugeMetricFamily,
    InstrumentKind.HISTOGRAM: HistogramMetricFamily,
}


class PrometheusPage:
    """Serves the values of now at ``http://HOST:PORT/metrics``; port 0 is one that is free.

    Raises:
        EnvironmentNotReady: the address is taken, or not of this machine.
    """

    def __init__(self, host: str, port: int, now: Now) -> None:
        registry = CollectorRegistry()
        registry.register(_Values(now))
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            raise EnvironmentNotReady(
                f"metrics cannot be served at {host}:{port}: {error.strerror}",
                hint="choose another port; --prometheus 0 takes a free one",
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_port}/metrics"

    def flush(self) -> None:
        """Prometheus comes for the values itself."""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Values(Collector):
    def __init__(self, now: Now) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        values, _, _ = self._now()
        return (_family(instrument, points) for instrument, points in values.items() if points)

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registry does not collect metrics when this is registered."""
        return []


def _family(instrument: Instrument, points: dict[Labels, Value]) -> Metric:
    """A metric with all its points; one that lacks an attribute has it empty."""
    keys = sorted({key for known in points for key, _ in known})
    family: Any = _FAMILIES[instrument.kind](
        instrument.name.replace(".", "_"),
        instrument.about,
        labels=[key.replace(".", "_") for key in keys],
        unit=_UNITS.get(instrument.unit, ""),
    )
    for known, value in points.items():
        texts = [dict(known).get(key, "") for key in keys]
        if isinstance(value, Distribution):
            bounds = [*map(str, BOUNDS_S), "+Inf"]
            totals = accumulate(value.counts.tolist())
            family.add_metric(texts, list(zip(bounds, totals, strict=True)), value.sum_s)
        else:
            family.add_metric(texts, value)
    made: Metric = family
    return made
