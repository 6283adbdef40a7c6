"""The network proxy before it runs: what it needs, what is said when that is missing, what it
answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from experiments.downloads import fetch_tools
from experiments.preflight import fault_checks
from experiments.resolved import Resolved, RoundOptions
from harness.clusters.docker import namespaces
from harness.clusters.docker.runtime import DockerRuntime
from harness.clusters.network import toxiproxy
from harness.clusters.power import disks
from harness.errors import EnvironmentNotReady, Exit, UsageError
from harness.plan.build import build_plans
from harness.protocols.cluster import Endpoint
from harness.scenario.file import load_scenario
from harness.toolchains import go
from harness.toolchains.go import Go

GO = Go("/nowhere/go", "go version go1.26.8 linux/amd64")
TEXT = """
name: net
topics: {orders: {partitions: 3}}
load: {rate: 100, duration: 20s, producers: {p: {}}}
faults: [{fault: FAULT, at: 3s, for: 2s}]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    monkeypatch.setattr(go, "find_go", lambda: GO)
    return tmp_path


def no_go() -> Go:
    raise EnvironmentNotReady("Go is needed and is not installed", hint="install Go 1.19 or newer")


def resolved_with(fault: str, folder: Path, runtime: str = "process") -> Resolved:
    path = folder / "net.yaml"
    path.write_text(TEXT.replace("FAULT", fault))
    plans = build_plans(load_scenario(str(path)), seed=1)
    return Resolved(plans=plans, options=RoundOptions(runtime=runtime))


def test_without_go_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go, "find_go", no_go)
    with pytest.raises(
        EnvironmentNotReady,
        match=r"network faults need the network proxy toxiproxy .* not installed",
    ) as e:
        toxiproxy.fetch()
    assert "install Go 1.24 or newer" in e.value.hint
    assert e.value.exit_code == Exit.ENVIRONMENT
    ok, text, remedy = toxiproxy.readiness()
    assert not ok
    assert "not installed" in text
    assert "install Go" in remedy


def test_offline_takes_only_what_is_there(cache: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match="--offline forbids fetching"):
        toxiproxy.fetch(offline=True)
    assert "to be built" in toxiproxy.readiness()[1]
    binary = toxiproxy.SERVER.path(GO)
    assert binary.is_relative_to(cache)
    binary.parent.mkdir(parents=True)
    binary.touch()
    assert toxiproxy.fetch(offline=True) == binary
    assert toxiproxy.readiness() == (True, f"toxiproxy {toxiproxy.VERSION}", "")


def test_only_scenarios_with_network_faults_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(go, "find_go", no_go)
    check, _ = fault_checks(resolved_with("latency", tmp_path))
    assert (check.name, check.ok) == ("network proxy", False)
    with pytest.raises(EnvironmentNotReady):
        fetch_tools(resolved_with("latency", tmp_path).needs, lambda text, share: None)
    assert fault_checks(resolved_with("kill", tmp_path)) == []
    assert fetch_tools(resolved_with("packet-loss", tmp_path).needs, lambda text, share: None) == {}


def test_power_loss_says_what_the_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "why_not", lambda need: "this system has no /dev/fuse (FUSE)")
    program, need = fault_checks(resolved_with("power-loss", tmp_path))
    assert (program.name, program.ok, program.text) == (
        *("FUSE file system", True),
        "powerfs 3, to be built on first use",
    )
    assert (need.name, need.text) == (
        "fault needs synced-disk",
        "this system has no /dev/fuse (FUSE)",
    )
    with pytest.raises(UsageError, match="docker runtime cannot give: synced-disk"):
        DockerRuntime.require(frozenset({"synced-disk"}))


def test_between_containers_it_is_asked_what_the_machine_lets_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "why_not", lambda: "")
    monkeypatch.setattr(namespaces, "why_no_addresses", lambda: "it has no hands")

    def found(fault: str, runtime: str) -> list[tuple[str, bool]]:
        resolved = resolved_with(f"{fault}, link: peers", tmp_path, runtime)
        return [(check.name, check.ok) for check in fault_checks(resolved)]

    assert found("partition", "process") == [
        ("network proxy", True),
        ("fault needs peer-cuts", True),
    ]
    assert found("partition", "docker") == [("fault needs peer-cuts", True)]
    assert found("latency", "docker") == [
        ("network proxy", True),
        ("fault needs peer-detours", False),
    ]


class Api(BaseHTTPRequestHandler):
    """Answers what the path says."""

    def do_GET(self) -> None:
        code = int(self.path.rpartition("/")[2])
        body = (
            json.dumps({"error": "toxic already exists"}).encode() if code != 200 else b'{"p": {}}'
        )
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[toxiproxy.Proxy]:
    server = HTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield toxiproxy.Proxy(
        toxiproxy.LocalHost("run-1", tmp_path), Endpoint("127.0.0.1", server.server_port)
    )
    server.shutdown()
    server.server_close()


def test_answers(proxy: toxiproxy.Proxy) -> None:
    assert proxy.ask("GET", "/200") == {"p": {}}
    with pytest.raises(UsageError, match="knows no /404"):
        proxy.ask("GET", "/404")
    with pytest.raises(EnvironmentNotReady, match=r"refuses GET /409: .*toxic already exists"):
        proxy.ask("GET", "/409")


def test_a_proxy_that_is_gone(tmp_path: Path) -> None:
    gone = toxiproxy.Proxy(toxiproxy.LocalHost("run-1", tmp_path), Endpoint("127.0.0.1", 1))
    assert not gone.host.is_running()
    with pytest.raises(EnvironmentNotReady, match=r"127\.0\.0\.1:1 does not answer") as caught:
        gone.ask("GET", "/version")
    assert "stdout.log" in caught.value.hint
