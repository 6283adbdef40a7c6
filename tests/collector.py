"""An end of OTLP over HTTP that keeps what is pushed to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.http_server import HOST, Answer, Request, answering


@dataclass(slots=True)
class Collector:
    """``requests``: in the order they came."""

    url: str = ""
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)

    def last(self) -> dict[str, float]:
        """Of the last request: name, and the sum of the points: values, or how many of a
        histogram."""
        found = {}
        for metric in self.requests[-1].resource_metrics[0].scope_metrics[0].metrics:
            points = getattr(metric, str(metric.WhichOneof("data"))).data_points
            found[metric.name] = sum(
                p.count if metric.HasField("histogram") else p.as_int or p.as_double for p in points
            )
        return found

    def answer(self, request: Request) -> Answer:
        if request.path == "/v1/metrics":
            self.requests.append(ExportMetricsServiceRequest.FromString(request.body))
        return 200, {}, {}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the end of the block."""
    collector = Collector()
    with answering(collector.answer) as port:
        collector.url = f"http://{HOST}:{port}"
        yield collector
