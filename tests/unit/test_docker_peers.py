"""The proxy between nodes in containers: what is asked of the engine, of the proxy and of the
kernel."""

from __future__ import annotations

import io
import ipaddress
import json
import os
import socket
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faults.kit.network import flows_of
from harness.clusters import spec_of
from harness.clusters.docker import engine as docker_engine
from harness.clusters.docker import namespaces
from harness.clusters.docker import proxy as docker_proxy
from harness.clusters.docker.detours import RenamingContainers, container_detours
from harness.clusters.docker.mesh_map import MeshMap, net_of
from harness.clusters.docker.namespaces import Whereabouts
from harness.clusters.docker.peers import OVERRIDE, PeerDetours
from harness.clusters.network import toxiproxy
from harness.errors import EnvironmentNotReady
from harness.protocols.cluster import Endpoint
from harness.protocols.network import PEER_DETOURS, HasDetours, Impairment, RenamesNodes
from tests.http_server import HOST, Answer, Request, answering

NEEDS = frozenset({PEER_DETOURS})
PROXY_PID = 4242
CLUSTERS = [("kafka", ""), ("nats", ""), ("pulsar", "bookies-3"), ("qpid", "group")]


class Toxiproxy:
    """The proxy's API on a dictionary: name -> proxy."""

    def __init__(self) -> None:
        self.proxies: dict[str, dict[str, Any]] = {}

    def answer(self, request: Request) -> Answer:
        _, part, *names = request.path.split("/")
        body = json.loads(request.body or "null")
        if request.method == "GET":
            return 200, self.proxies if part == "proxies" else {"version": toxiproxy.VERSION}, {}
        if part == "populate":
            self.proxies |= {one["name"]: {**one, "toxics": []} for one in body}
        elif request.method == "POST" and not names:
            self.proxies[body["name"]] = {**body, "enabled": True, "toxics": []}
        elif request.method == "POST":
            self.proxies[names[0]]["toxics"].append(body)
        elif request.method == "PATCH":
            self.proxies[names[0]].update(body)
        elif len(names) > 1:
            rows = self.proxies[names[0]]["toxics"]
            self.proxies[names[0]]["toxics"] = [row for row in rows if row["name"] != names[2]]
        else:
            del self.proxies[names[0]]
        return 200, {}, {}


class Engine:
    """A client of the engine, with one container: that of the proxy, once it was started."""

    def __init__(self) -> None:
        self.attrs: dict[str, Any] = {}
        self.subnet = "172.20.0.0/16"
        self.images = SimpleNamespace(list=lambda name: [one for one in self.made if one == name])
        self.made: list[str] = []
        self.containers = SimpleNamespace(
            list=self._list, get=lambda found: SimpleNamespace(attrs=self.attrs)
        )
        self.networks = SimpleNamespace(get=self._network)
        self.api = SimpleNamespace(import_image_from_data=self._make)

    def start(self) -> None:
        networks = {
            "brokerstorm-run-1_edge": {"IPAddress": "172.19.0.2", "NetworkID": "e"},
            "brokerstorm-run-1_mesh": {"IPAddress": "172.20.0.2", "NetworkID": "m"},
        }
        state = {"Running": True, "Pid": PROXY_PID}
        self.attrs = {"State": state, "NetworkSettings": {"Networks": networks}}

    def _list(self, **filters: Any) -> list[Any]:
        labels = {"Labels": {docker_engine.SERVICE_LABEL: docker_proxy.SERVICE}}
        return [SimpleNamespace(attrs=labels, id="p")] if self.attrs else []

    def _network(self, found: str) -> Any:
        assert found == "m"
        return SimpleNamespace(attrs={"IPAM": {"Config": [{"Subnet": self.subnet}]}})

    def _make(self, data: bytes, *, repository: str, tag: str, changes: Sequence[str]) -> str:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            (self.member,) = tar.getmembers()
        self.made.append(f"{repository}:{tag}")
        self.changes = list(changes)
        return ""


class Rig:
    def __init__(self, folder: Path, engine: Engine, proxies: dict[str, dict[str, Any]]) -> None:
        self.folder, self.engine, self.proxies = folder, engine, proxies
        self.at = {f"kafka-{n}": Whereabouts(100 + n, f"172.20.0.{n + 2}") for n in (1, 2, 3)}
        for node in self.at:
            (folder / node / "conf").mkdir(parents=True)
        self.peers = PeerDetours("run-1", folder, spec_of("kafka"), 7, NEEDS, engine, self.at.get)
        self.composed: list[tuple[str, ...]] = []

    def start(self) -> None:
        self.peers.start(self._compose)

    def _compose(self, services: tuple[str, ...]) -> None:
        self.composed.append(services)
        self.engine.start()

    def hosts(self, node: str) -> dict[str, str]:
        text = self.peers.hosts_path(node).read_text()
        return {name: address for address, name in map(str.split, text.splitlines())}

    def route(self, source: str, target: str, port: str = "peer") -> dict[str, Any]:
        return self.proxies[f"{source}.{target}.{port}"]


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is given to the proxy's namespace: pid, address of the interface, addresses."""
    found: list[Any] = []
    monkeypatch.setattr(namespaces, "add_addresses", lambda *given: found.append(given))
    return found


@pytest.fixture
def rig(tmp_path: Path, added: list[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    proxy = Toxiproxy()
    with answering(proxy.answer) as port:
        monkeypatch.setattr(MeshMap, "api", Endpoint(HOST, port))
        yield Rig(tmp_path, Engine(), proxy.proxies)


@pytest.mark.parametrize(("system", "topology"), CLUSTERS)
def test_every_pair_has_addresses_of_its_own_at_the_end_of_the_network(
    system: str, topology: str
) -> None:
    plan = MeshMap(spec_of(system, topology=topology), 7, NEEDS, lambda: "172.20.255")
    usual = {(route.source, route.target): route.listen.host for route in plan.routes()}
    assert len(set(usual.values())) == len(usual) >= 6
    assert set(usual.values()) < set(plan.listening())
    assert len(plan.listening()) == 2 * len(usual)
    last = ipaddress.ip_network("172.20.255.0/24")
    assert {ipaddress.ip_address(host) for host in plan.listening()} <= set(last.hosts())
    assert {
        str(route.upstream) for route in plan.routes() if route.target == plan.sources()[0]
    } <= {f"{plan.sources()[0]}-mesh:{port}" for port in spec_of(system).ports.values()}
    assert str(plan.api).startswith("127.0.7.")


def test_what_is_between_nodes_is_known_before_there_is_a_network() -> None:
    def none() -> str:
        raise AssertionError("nobody may ask")

    wires = MeshMap(spec_of("kafka"), 7, NEEDS, none).wires()
    (one,) = [wire for wire in wires if str(wire) == "kafka-1 -> kafka-2"]
    assert one.endpoints["controller"] == Endpoint("kafka-2-mesh", 19095)
    assert len(wires) == 6


def test_a_hosts_file_knows_the_others_and_is_as_long_when_one_has_moved() -> None:
    plan = MeshMap(spec_of("kafka"), 7, NEEDS, lambda: "10.0.9")
    text = plan.hosts_file("kafka-2")
    assert text.split()[1::2] == ["localhost", "kafka-1-mesh", "kafka-3-mesh"]
    moved = plan.hosts_file("kafka-2", {"kafka-1": plan.moved("kafka-1")[0].listen.host})
    assert text != moved
    assert len(text) == len(moved)


@pytest.mark.parametrize(
    ("subnet", "net"),
    [("172.20.0.0/16", "172.20.255"), ("10.1.2.0/24", "10.1.2"), ("10.0.0.0/8", "10.255.255")],
)
def test_the_end_of_a_network(subnet: str, net: str) -> None:
    assert net_of(subnet) == net


@pytest.mark.parametrize("subnet", ["10.1.2.0/25", "fd00::/64"])
def test_a_network_may_be_too_small(subnet: str) -> None:
    with pytest.raises(EnvironmentNotReady, match=f"{subnet} of the nodes has no room") as caught:
        net_of(subnet)
    assert "default-address-pools" in caught.value.hint


def test_the_image_is_the_program_and_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "toxiproxy-server"
    program.write_bytes(b"\x7fELF")
    monkeypatch.setattr(toxiproxy, "fetch", lambda **options: program)
    engine = Engine()
    tag = docker_proxy.provide(engine)
    assert tag.startswith(f"brokerstorm/toxiproxy:{toxiproxy.VERSION}-")
    assert (engine.member.name, engine.member.mode, engine.member.size) == (
        "toxiproxy-server",
        0o755,
        4,
    )
    assert 'ENTRYPOINT ["/toxiproxy-server"]' in engine.changes
    assert docker_proxy.provide(engine) == tag
    assert engine.made == [tag]
    program.write_bytes(b"\x7fELF of another Go")
    assert docker_proxy.provide(engine) != tag


def test_what_is_laid_over_the_compose_file(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_proxy, "provide", lambda client: "brokerstorm/toxiproxy:1")
    assert rig.peers.files() == [rig.folder / OVERRIDE]
    services = json.loads((rig.folder / OVERRIDE).read_text())["services"]
    proxy = services.pop(docker_proxy.SERVICE)
    api = rig.peers.plan.api
    assert proxy["ports"] == [f"{api.host}:{api.port}:{api.port}"]
    assert proxy["labels"] == {
        "brokerstorm.run": "run-1",
        "brokerstorm.owner": "${BROKERSTORM_OWNER}",
    }
    assert set(services) == {"kafka-1", "kafka-2", "kafka-3"}
    (mount,) = services["kafka-2"]["volumes"]
    assert (mount["source"], mount["target"]) == (
        str(rig.peers.hosts_path("kafka-2")),
        "/etc/hosts",
    )
    assert mount["read_only"]


def test_the_proxy_is_there_before_any_node(rig: Rig, added: list[Any]) -> None:
    rig.start()
    assert rig.composed == [(docker_proxy.SERVICE,)]
    assert added == [(PROXY_PID, "172.20.0.2", rig.peers._map.listening())]
    assert len(rig.proxies) == 12
    assert rig.route("kafka-1", "kafka-2")["upstream"] == "kafka-2-mesh:19093"
    assert (
        rig.hosts("kafka-1")["kafka-2-mesh"]
        == rig.route("kafka-1", "kafka-2")["listen"].partition(":")[0]
    )
    assert rig.peers.hosts_path("kafka-1").stat().st_mode & 0o777 == 0o644


def test_a_flow_of_a_pair_is_impaired_and_repaired(rig: Rig) -> None:
    rig.start()
    flows = flows_of(rig.peers.wires(), ["kafka-2"], "peers", "in")
    rig.peers.impair("fault-1", flows, Impairment("delay", delay_s=0.3))
    (toxic,) = rig.route("kafka-1", "kafka-2")["toxics"]
    assert (toxic["type"], toxic["stream"]) == ("latency", "upstream")
    assert rig.route("kafka-1", "kafka-3")["toxics"] == []
    assert rig.peers.is_impaired("fault-1")
    later = PeerDetours("run-1", rig.folder, spec_of("kafka"), 7, NEEDS, rig.engine, rig.at.get)
    later.adopt()
    later.repair("fault-1")
    assert not rig.peers.is_impaired("fault-1")


def test_a_name_means_another_address_in_the_same_file(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.start()
    path = rig.peers.hosts_path("kafka-1")
    before, inode = rig.hosts("kafka-1"), path.stat().st_ino
    wires = rig.peers.rename("fault-1", "kafka-2")
    assert path.stat().st_ino == inode, "a mount is of the file, not of its name"
    moved = rig.hosts("kafka-1")["kafka-2-mesh"]
    assert moved != before["kafka-2-mesh"]
    assert not rig.route("kafka-1", "kafka-2")["enabled"]
    (mine,) = [wire for wire in wires if wire.source == "kafka-1" and "peer" in wire.endpoints]
    assert mine.endpoints["peer"] == Endpoint(moved, 19093)
    monkeypatch.setattr(
        namespaces, "established", lambda pid: {(moved, 19093), ("172.20.255.1", 1)}
    )
    assert rig.peers.found_by(wires) == {"kafka-1"}
    rig.peers.repair("fault-1")
    assert rig.hosts("kafka-1") == before
    assert rig.route("kafka-1", "kafka-2")["enabled"]
    assert path.stat().st_ino == inode


def test_two_nodes_have_other_addresses_and_each_gets_its_own_back(rig: Rig) -> None:
    rig.start()
    before = rig.hosts("kafka-1")
    rig.peers.rename("fault-1", "kafka-2")
    rig.peers.rename("fault-12", "kafka-3")
    now = rig.hosts("kafka-1")
    assert now["kafka-2-mesh"] != before["kafka-2-mesh"]
    assert now["kafka-3-mesh"] != before["kafka-3-mesh"]
    rig.peers.repair("fault-1")
    assert rig.hosts("kafka-1") == {**before, "kafka-3-mesh": now["kafka-3-mesh"]}
    assert rig.peers.is_impaired("fault-12")
    rig.peers.repair("fault-12")
    assert rig.hosts("kafka-1") == before


def test_a_connection_is_made_as_the_source_would(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, str]] = []

    def connect(pid: int, end: Endpoint, timeout_s: float) -> socket.socket:
        asked.append((pid, str(end)))
        raise ConnectionRefusedError

    monkeypatch.setattr(namespaces, "connect", connect)
    rig.start()
    (wire,) = [wire for wire in rig.peers.wires() if str(wire) == "kafka-1 -> kafka-2"]
    (moved, *_) = [
        wire for wire in rig.peers.rename("fault-1", "kafka-2") if wire.source == "kafka-1"
    ]
    for one in (wire, moved):
        with pytest.raises(ConnectionRefusedError):
            rig.peers.connect(one, "peer", 1.0)
    old = rig.route("kafka-1", "kafka-2")["listen"]
    assert asked == [(101, old), (101, str(moved.endpoints["peer"]))]
    rig.at.pop("kafka-1")
    with pytest.raises(ConnectionError, match="kafka-1 does not run"):
        rig.peers.connect(wire, "peer", 1.0)


def test_what_the_nodes_really_read_is_looked_at(rig: Rig) -> None:
    rig.start()
    rig.at["kafka-1"] = Whereabouts(os.getpid(), "172.20.0.3")
    with pytest.raises(EnvironmentNotReady, match=r"kafka-1 does not read .*hosts") as caught:
        rig.peers.check(["kafka-1", "kafka-2", "kafka-3"])
    assert "mount namespace" in caught.value.hint
    rig.at.pop("kafka-1")
    with pytest.raises(EnvironmentNotReady, match="kafka-1 where its network cannot be reached"):
        rig.peers.check(["kafka-1", "kafka-2", "kafka-3"])


def test_a_proxy_that_died(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.start()
    monkeypatch.setattr(rig.engine, "start", lambda: None)
    rig.engine.attrs["State"] = {"Running": False, "Pid": 0}
    monkeypatch.setattr(docker_engine, "keep_log", lambda container, logs: None)
    monkeypatch.setattr(
        rig.engine.containers,
        "get",
        lambda found: SimpleNamespace(attrs=rig.engine.attrs, logs=lambda tail: b"oh no"),
    )
    with pytest.raises(
        EnvironmentNotReady, match=r"(?s)the network proxy between the nodes died.*oh no"
    ):
        rig.start()


def test_abilities(tmp_path: Path) -> None:
    made = container_detours(
        "run-1",
        tmp_path,
        spec_of("kafka"),
        7,
        frozenset({PEER_DETOURS}),
        Engine(),
        lambda node: None,
    )
    assert isinstance(made, RenamingContainers)
    assert isinstance(made, HasDetours)
    assert isinstance(made, RenamesNodes)
    assert [
        made.why_not("all", how) for how in ("hold", "delay", "swallow", "throttle", "reset")
    ] == [""] * 5
    assert len(made.wires()) == 6
    with pytest.raises(
        EnvironmentNotReady, match="the network proxy between the nodes is not there"
    ):
        made.rename("fault-1", "kafka-1")
