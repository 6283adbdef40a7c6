"""Where the metrics of a run go: as options ask for, or as the standard environment variables
say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from harness.errors import EnvironmentNotReady, UsageError
from harness.invocation import how_to_install_extra

if TYPE_CHECKING:
    from harness.telemetry.telemetry import Telemetry

DEFAULT_HOST: Final = "127.0.0.1"
#: Default of the Prometheus exporter, by the specification of OpenTelemetry.
DEFAULT_PORT: Final = 9464
DEFAULT_COLLECTOR: Final = "http://localhost:4318"
_METRICS_PATH: Final = "/v1/metrics"


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """Where metrics are to go.

    Attributes:
        otlp: a collector's URL for metrics; None = they are not pushed.
        prometheus: host and port; None = they are not served.
        problem: why there are none, though the environment asks for them.
    """

    otlp: str | None = None
    prometheus: tuple[str, int] | None = None
    problem: str = ""


def metrics_request(
    otlp: str | None, prometheus: str | None, environment: Mapping[str, str] = os.environ
) -> MetricsRequest:
    """Return the metrics that the options ask for, or, without options, the environment.

    Raises:
        UsageError: a URL or an address that is none.
        EnvironmentNotReady: the packages are missing that an option needs.
    """
    if otlp is None and prometheus is None:
        return _implied(environment)
    asked = MetricsRequest(
        None if otlp is None else _endpoint(otlp, "--otlp"),
        None if prometheus is None else _address(prometheus, "--prometheus"),
    )
    if not _is_installed():
        name = "--otlp" if otlp is not None else "--prometheus"
        raise EnvironmentNotReady(
            f"{name} needs packages that are not installed", hint=how_to_install_extra("telemetry")
        )
    return asked


def _implied(environment: Mapping[str, str]) -> MetricsRequest:
    """By the specification: OTEL_METRICS_EXPORTER names exporters; an endpoint alone means OTLP.

    Nothing is refused because of variables that may be meant for other programs.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return MetricsRequest()
    exporters = {
        each.strip() for each in environment.get("OTEL_METRICS_EXPORTER", "").split(",")
    } - {""}
    whole, base = (
        environment.get(f"OTEL_EXPORTER_OTLP_{each}ENDPOINT", "") for each in ("METRICS_", "")
    )
    host = environment.get("OTEL_EXPORTER_PROMETHEUS_HOST", DEFAULT_HOST)
    port = environment.get("OTEL_EXPORTER_PROMETHEUS_PORT", str(DEFAULT_PORT))
    is_pushed = "otlp" in exporters or (not exporters and bool(whole or base))
    is_served = "prometheus" in exporters
    if not is_pushed and not is_served:
        return MetricsRequest()
    if not _is_installed():
        install = how_to_install_extra("telemetry")
        return MetricsRequest(
            problem=f"the environment asks for metrics, and there are none: {install}"
        )
    try:
        return MetricsRequest(
            (
                _checked(whole, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
                if whole
                else _endpoint(base or DEFAULT_COLLECTOR, "OTEL_EXPORTER_OTLP_ENDPOINT")
            )
            if is_pushed
            else None,
            _address(f"{host}:{port}", "OTEL_EXPORTER_PROMETHEUS_PORT") if is_served else None,
        )
    except UsageError as error:
        return MetricsRequest(
            problem=f"the environment asks for metrics, and there are none: {error}"
        )


def _checked(text: str, place: str) -> str:
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise UsageError(
            f"{place}: not a URL of a collector: {text!r}",
            hint=f"for example --otlp {DEFAULT_COLLECTOR}",
        )
    return text


def _endpoint(text: str, place: str) -> str:
    """The URL of a collector's metrics, whether its path was given or not."""
    is_whole = urlsplit(_checked(text, place)).path.rstrip("/").endswith(_METRICS_PATH)
    return text if is_whole else f"{text.rstrip('/')}{_METRICS_PATH}"


def _address(text: str, place: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(
            f"{place}: not [HOST:]PORT: {text!r}",
            hint=f"for example --prometheus {DEFAULT_PORT}; 0 chooses a free port",
        )
    return host.strip("[]") or DEFAULT_HOST, int(port)


def _is_installed() -> bool:
    try:
        return all(map(find_spec, ("opentelemetry.exporter.otlp.proto.http", "prometheus_client")))
    except ModuleNotFoundError:
        return False


@contextmanager
def opened_telemetry(request: MetricsRequest, tell: Callable[[str], None]) -> Iterator[Telemetry]:
    """Metrics as they were asked for, told in a line each; none at all where nothing was asked for.

    Raises:
        EnvironmentNotReady: a port is taken.
    """
    from harness.telemetry.telemetry import Telemetry

    if request.problem:
        tell(request.problem)
    with closing(Telemetry()) as telemetry:
        if request.prometheus:
            from harness.telemetry.prometheus import PrometheusPage

            telemetry.open(partial(PrometheusPage, *request.prometheus))
        if request.otlp:
            from harness.telemetry.otlp import OtlpPush

            telemetry.open(partial(OtlpPush, request.otlp, tell=tell))
        for url in telemetry.urls:
            tell(f"metrics: {url}")
        yield telemetry
