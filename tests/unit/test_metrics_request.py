"""The options and environment variables that ask for metrics, and what is no address of one."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from harness.errors import EnvironmentNotReady, UsageError
from harness.telemetry import request as telemetry
from harness.telemetry.request import MetricsRequest, metrics_request

NOTHING = MetricsRequest()
LOCAL = "http://localhost:4318/v1/metrics"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("otlp", "prometheus", "asked"),
    [
        ("http://col:4318", None, MetricsRequest("http://col:4318/v1/metrics")),
        ("https://col/otlp/", None, MetricsRequest("https://col/otlp/v1/metrics")),
        (
            "http://col/v1/metrics",
            "9464",
            MetricsRequest("http://col/v1/metrics", ("127.0.0.1", 9464)),
        ),
        (None, "0.0.0.0:0", MetricsRequest(None, ("0.0.0.0", 0))),
        (None, "[::1]:9464", MetricsRequest(None, ("::1", 9464))),
    ],
)
def test_options(otlp: str | None, prometheus: str | None, asked: MetricsRequest) -> None:
    assert metrics_request(otlp, prometheus, {ENDPOINT: "http://other"}) == asked


@pytest.mark.parametrize(
    ("otlp", "prometheus"),
    [
        *(
            (url, None)
            for url in ("", "col:4318", "ftp://col", "http://", "http://[::1", "http://col:99999")
        ),
        *((None, address) for address in ("", "x", "9464x", "70000", "host:", "-1", "²")),
    ],
)
def test_what_is_no_address(otlp: str | None, prometheus: str | None) -> None:
    with pytest.raises(UsageError, match=r"--(otlp|prometheus): not "):
        metrics_request(otlp, prometheus, {})


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, NOTHING),
        ({ENDPOINT: "http://col:4318"}, MetricsRequest("http://col:4318/v1/metrics")),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://col/x"}, MetricsRequest("http://col/x")),
        ({ENDPOINT: "http://col", "OTEL_METRICS_EXPORTER": "none"}, NOTHING),
        ({ENDPOINT: "http://col", "OTEL_SDK_DISABLED": "true"}, NOTHING),
        ({"OTEL_METRICS_EXPORTER": "otlp, prometheus"}, MetricsRequest(LOCAL, ("127.0.0.1", 9464))),
    ],
)
def test_the_environment(environment: dict[str, str], asked: MetricsRequest) -> None:
    assert metrics_request(None, None, environment) == asked


def test_an_environment_meant_for_others_refuses_nothing() -> None:
    asked = metrics_request(None, None, {ENDPOINT: "col:4317"})
    assert asked == MetricsRequest(problem=asked.problem)
    assert "col:4317" in asked.problem


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(telemetry, "find_spec", missing)
    with pytest.raises(EnvironmentNotReady) as refused:
        metrics_request(None, "9464", {})
    words = shlex.split(refused.value.hint.removeprefix("run: "))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert {re.split(r"[^\w-]", word)[0] for word in words[4:]} == {
        "opentelemetry-sdk",
        "opentelemetry-exporter-otlp-proto-http",
        "prometheus-client",
    }
    assert "pip install" in metrics_request(None, None, {ENDPOINT: "http://col:4318"}).problem
    assert metrics_request(None, None, {}) == NOTHING
