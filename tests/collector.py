"""An end of OTLP over HTTP that keeps what is pushed to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Collector(HTTPServer):
    """``requests``: in the order they came."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        super().__init__(("127.0.0.1", 0), _Keep)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def last(self) -> dict[str, float]:
        """Of the last request: name, and the sum of the points: values, or how many of a histogram."""
        found = {}
        for metric in self.requests[-1].resource_metrics[0].scope_metrics[0].metrics:
            points = getattr(metric, str(metric.WhichOneof("data"))).data_points
            found[metric.name] = sum(
                p.count if metric.HasField("histogram") else p.as_int or p.as_double for p in points
            )
        return found


class _Keep(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        if self.path == "/v1/metrics":
            self.server.requests.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the end of the block."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
