"""Pushes metrics to a collector with the OTLP exporter of OpenTelemetry's SDK, over HTTP.

The exporter is handed the SDK's data model, made from counts that are known already, instead of
instruments of the SDK: a call for every message would cost more than sending it.

Needs packages of the extra ``telemetry``; it is not imported unless metrics are asked for.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_METRICS_TIMEOUT,
    OTEL_EXPORTER_OTLP_TIMEOUT,
    OTEL_METRIC_EXPORT_INTERVAL,
)
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from harness import __version__
from harness.telemetry.instruments import (
    BOUNDS_S,
    Distribution,
    Instrument,
    InstrumentKind,
    Labels,
    Now,
    Value,
    Values,
)

#: Where the environment says nothing else: the defaults of the SDK, 60 and 10, are long for runs of
#: minutes.
PUSH_EVERY_S: Final = 5.0
PUSH_TIMEOUT_S: Final = 3.0
#: Points in one request to a collector.
MOST_POINTS: Final = 5_000
#: At the end a request gets this long; what has not arrived by then is lost.
CLOSE_S: Final = 3.0
_SCOPE: Final = "brokerstorm"
_ERRNO: Final = re.compile(r"\[Errno -?\d+\] ([\w ]+)")


def new_resource() -> Resource:
    """Return the resource that these metrics come from. OTEL_SERVICE_NAME and
    OTEL_RESOURCE_ATTRIBUTES add to it or change it.
    """
    found = Resource.create({"service.version": __version__})
    if str(found.attributes["service.name"]).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": _SCOPE}))
    return found


def metrics_data(values: Values, began_ns: int, now_ns: int, resource: Resource) -> MetricsData:
    """The values in the SDK's data model; counters and histograms are cumulative."""
    metrics = [
        Metric(each.name, each.about, each.unit, _data(each, points, began_ns, now_ns))
        for each, points in values.items()
        if points
    ]
    scope = ScopeMetrics(InstrumentationScope(_SCOPE, __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _data(
    instrument: Instrument, points: Mapping[Labels, Value], began_ns: int, now_ns: int
) -> Sum | Gauge | Histogram:
    cumulative = AggregationTemporality.CUMULATIVE
    if instrument.kind is InstrumentKind.HISTOGRAM:
        found = [
            _histogram_point(dict(known), began_ns, now_ns, value)
            for known, value in points.items()
            if isinstance(value, Distribution)
        ]
        return Histogram(found, cumulative)
    numbers = [
        NumberDataPoint(dict(known), began_ns, now_ns, value)
        for known, value in points.items()
        if not isinstance(value, Distribution)
    ]
    return (
        Sum(numbers, cumulative, True)
        if instrument.kind is InstrumentKind.COUNTER
        else Gauge(numbers)
    )


def _histogram_point(
    attributes: dict[str, str], began_ns: int, now_ns: int, value: Distribution
) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=attributes,
        start_time_unix_nano=began_ns,
        time_unix_nano=now_ns,
        count=int(value.counts.sum()),
        sum=value.sum_s,
        bucket_counts=[int(count) for count in value.counts],
        explicit_bounds=BOUNDS_S,
        min=value.min_s,
        max=value.max_s,
    )


class OtlpPush:
    """Sends the values to a collector every ``every_s``, in a thread of its own.

    A failure is reported once; nothing waits for a collector that does not answer.

    Args:
        endpoint: whole URL for metrics. Headers, certificates and compression come from
            OTEL_EXPORTER_OTLP_*, interval and time limit too where they are set.
        tell: gets one line when the values do not arrive.
    """

    def __init__(self, endpoint: str, now: Now, *, tell: Callable[[str], None]) -> None:
        url = urlsplit(endpoint)
        self.url = urlunsplit((url.scheme, url.netloc.rpartition("@")[2], url.path, "", ""))
        self._now = now
        self._every_s = (
            float(os.environ.get(OTEL_METRIC_EXPORT_INTERVAL) or PUSH_EVERY_S * 1000) / 1000
        )
        self._tell = tell
        self._resource = new_resource()
        self._reason = _FirstWarning()
        limits = (OTEL_EXPORTER_OTLP_METRICS_TIMEOUT, OTEL_EXPORTER_OTLP_TIMEOUT)
        timeout_s = None if any(map(os.environ.get, limits)) else PUSH_TIMEOUT_S
        self._exporter = OTLPMetricExporter(
            endpoint, timeout=timeout_s, max_export_batch_size=MOST_POINTS
        )
        self._wake = threading.Event()
        self._is_over = False
        self._has_told = False
        self._thread = threading.Thread(target=self._loop, name="otlp", daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Send now what is known now; does not wait for it."""
        self._wake.set()

    def close(self) -> None:
        """Send what is known now; waits `CLOSE_S` at most."""
        self._is_over = True
        self._wake.set()
        self._thread.join(CLOSE_S)
        self._exporter.shutdown()

    def _loop(self) -> None:
        while not self._is_over:
            self._wake.wait(self._every_s)
            self._wake.clear()
            try:
                self._export()
            except Exception as error:  # noqa: BLE001 - the run is worth more than its metrics
                self._say(repr(error))
        self._reason.close()

    def _export(self) -> None:
        values, began_ns, now_ns = self._now()
        if not values:
            return
        result = self._exporter.export(metrics_data(values, began_ns, now_ns, self._resource))
        if result is not MetricExportResult.SUCCESS:
            self._say(self._reason.take())

    def _say(self, why: str) -> None:
        if not self._has_told:
            self._has_told = True
            self._tell(f"metrics do not arrive at {self.url}: {why}; the run continues")


class _FirstWarning(logging.Handler):
    """Keeps the exporter's first word on why an export failed: it is reported nowhere else."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._text = ""
        self._logger = logging.getLogger("opentelemetry")
        self._before: tuple[Any, ...] = (self._logger.level, self._logger.propagate)
        self._logger.propagate = self._logger.isEnabledFor(logging.WARNING)
        self._logger.setLevel(logging.WARNING)
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._text = self._text or record.getMessage()

    def take(self) -> str:
        """Return the text that was kept since the last call: the system's own words where it has
        some."""
        text, self._text = self._text, ""
        errno = _ERRNO.search(text)
        if errno:
            return errno[1]
        return "no answer in time" if "timeout" in text or not text else text

    def close(self) -> None:
        self._logger.removeHandler(self)
        self._logger.level, self._logger.propagate = self._before
        super().close()
