"""Network faults among nodes in containers: rules in namespaces, which are only lists here; and,
where this machine makes one, in a namespace of the kernel."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from faults.kit.network import flows_of
from faults.kit.round_trips import measure
from harness.clusters import runtime_choice, spec_of
from harness.clusters.docker import namespaces
from harness.clusters.docker.detours import ContainerDetours, container_detours
from harness.clusters.docker.namespaces import Whereabouts
from harness.clusters.docker.runtime import DockerRuntime
from harness.clusters.network import packets
from harness.errors import EnvironmentNotReady, HealError
from harness.protocols.cluster import Endpoint
from harness.protocols.network import (
    CLIENT_DETOURS,
    PEER_CUTS,
    PEER_DETOURS,
    HasDetours,
    Impairment,
    RenamesNodes,
    Wire,
)
from harness.systems.kafka import SYSTEM as KAFKA

NOTHING = frozenset[str]()
HOLD = Impairment("hold")


class Machine:
    """Three nodes and their namespaces: pid -> rules as ``iptables -S`` prints them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = {f"kafka-{n}": Whereabouts(100 + n, f"172.20.0.{n}") for n in (1, 2, 3)}
        self.rules: dict[int, list[str]] = {101: [], 102: [], 103: []}
        self.refuses = False
        monkeypatch.setattr(namespaces, "why_not", lambda: "")
        monkeypatch.setattr(namespaces, "rules", self._read)
        monkeypatch.setattr(namespaces, "replace_rules", self._replace)

    def find(self, node: str) -> Whereabouts | None:
        return self.at.get(node)

    def restart(self, node: str, pid: int, address: str) -> None:
        self.rules.pop(self.at[node].pid)
        self.at[node] = Whereabouts(pid, address)
        self.rules[pid] = []

    def _read(self, pid: int) -> list[str]:
        if pid not in self.rules:
            raise EnvironmentNotReady("nsenter: cannot open it")
        return list(self.rules[pid])

    def _replace(self, pid: int, old: Sequence[str], new: Sequence[str]) -> None:
        if self.refuses or pid not in self.rules:
            raise EnvironmentNotReady("iptables-restore: no")
        for line in old:
            self.rules[pid].remove(line)
        self.rules[pid] += [f"-A INPUT {rule}" for rule in new]

    def dropped(self, node: str) -> set[tuple[str, str]]:
        """(address of the sender, "--dport 19093") of each rule of a node."""
        words = [shlex.split(line) for line in self.rules[self.at[node].pid]]
        return {(w[3].removesuffix("/32"), " ".join(w[6:8])) for w in words}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def detours(machine: Machine) -> ContainerDetours:
    return detours_on(machine)


def detours_on(machine: Machine, run_id: str = "run-1") -> ContainerDetours:
    return container_detours(run_id, Path("/x"), spec_of("kafka"), 7, NOTHING, None, machine.find)


def cut(detours: ContainerDetours, node: str, way: str = "both", name: str = "fault-1") -> None:
    detours.impair(name, flows_of(detours.wires(), [node], "peers", way), HOLD)


def test_abilities(detours: ContainerDetours) -> None:
    assert isinstance(detours, HasDetours)
    assert not isinstance(detours, RenamesNodes)


def test_wires_are_there_before_any_container_and_nothing_is_asked(
    detours: ContainerDetours,
) -> None:
    found = detours.wires()
    assert len(found) == 6
    (one,) = [wire for wire in found if str(wire) == "kafka-1 -> kafka-2"]
    assert one.endpoints["peer"] == Endpoint("kafka-2-mesh", 19093)
    assert one.endpoints["controller"] == Endpoint("kafka-2-mesh", 19095)


def test_a_node_that_is_cut_off_hears_nobody_and_nobody_hears_it(
    machine: Machine, detours: ContainerDetours
) -> None:
    cut(detours, "kafka-2")
    ends = {f"--{end} {port}" for end in ("dport", "sport") for port in (19093, 19095)}
    assert machine.dropped("kafka-2") == {(f"172.20.0.{n}", end) for n in (1, 3) for end in ends}
    assert (
        machine.dropped("kafka-1")
        == machine.dropped("kafka-3")
        == {("172.20.0.2", e) for e in ends}
    )
    tag = packets.tag("run-1", "fault-1")
    assert all(line.endswith(f'"{tag}" -j DROP') for line in machine.rules[102])


@pytest.mark.parametrize(("way", "deaf"), [("in", {"kafka-2"}), ("out", {"kafka-1", "kafka-3"})])
def test_one_way_is_what_the_receiver_drops(
    machine: Machine, detours: ContainerDetours, way: str, deaf: set[str]
) -> None:
    cut(detours, "kafka-2", way)
    assert {node for node in machine.at if machine.dropped(node)} == deaf


def test_a_repair_takes_its_own_rules_only(machine: Machine, detours: ContainerDetours) -> None:
    cut(detours, "kafka-2")
    cut(detours, "kafka-3", name="fault-12")
    machine.rules[101].append("-A INPUT -s 10.0.0.9/32 -j DROP")
    detours.repair("fault-1")
    assert (detours.is_impaired("fault-1"), detours.is_impaired("fault-12")) == (False, True)
    detours.repair("fault-12")
    detours.repair("fault-12")
    assert machine.rules == {101: ["-A INPUT -s 10.0.0.9/32 -j DROP"], 102: [], 103: []}


def test_another_process_repairs_what_a_killed_one_left(
    machine: Machine, detours: ContainerDetours
) -> None:
    cut(detours, "kafka-2")
    later, other_run = detours_on(machine), detours_on(machine, "run-2")
    assert later.is_impaired("fault-1")
    assert not other_run.is_impaired("fault-1")
    later.repair("fault-1")
    assert machine.rules == {101: [], 102: [], 103: []}


def test_a_node_that_is_started_again_is_cut_off_again_at_its_new_address(
    machine: Machine, detours: ContainerDetours
) -> None:
    cut(detours, "kafka-2")
    machine.restart("kafka-2", 202, "172.20.0.7")
    detours.started("kafka-2")
    assert {address for address, _ in machine.dropped("kafka-2")} == {"172.20.0.1", "172.20.0.3"}
    assert {address for address, _ in machine.dropped("kafka-1")} == {"172.20.0.7"}
    detours.repair("fault-1")
    machine.restart("kafka-2", 302, "172.20.0.2")
    detours.started("kafka-2")
    assert machine.rules == {101: [], 103: [], 302: []}


def test_a_node_that_ends_meanwhile_is_no_error_and_a_rule_that_stays_is(
    machine: Machine, detours: ContainerDetours
) -> None:
    cut(detours, "kafka-2")
    machine.at.pop("kafka-3")
    machine.refuses = True
    with pytest.raises(HealError, match="fault-1 stays on the network: iptables-restore: no"):
        detours.repair("fault-1")
    assert detours.is_impaired("fault-1")
    machine.refuses = False
    detours.repair("fault-1")
    assert not detours.is_impaired("fault-1")


def test_without_a_proxy_nothing_but_to_hold_is_possible_between_containers(
    detours: ContainerDetours,
) -> None:
    flows = flows_of(detours.wires(), ["kafka-2"], "peers", "both")
    for how in ("swallow", "delay", "throttle", "reset"):
        assert detours.why_not("clients", how) == ""
        assert "only be held" in detours.why_not("peers", how)
        with pytest.raises(EnvironmentNotReady, match="only be held"):
            detours.impair("fault-1", flows, Impairment(how))
    assert detours.why_not("all", "hold") == ""


def test_an_engine_whose_containers_are_elsewhere(
    machine: Machine, detours: ContainerDetours
) -> None:
    nodes = ["kafka-1", "kafka-2", "kafka-3"]
    detours.check(nodes)
    machine.at.pop("kafka-2")
    with pytest.raises(
        EnvironmentNotReady, match="runs kafka-2 where its network cannot be reached"
    ):
        detours.check(nodes)
    detours.check(["kafka-1", "kafka-3"])  # one that has not joined is no node


def test_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://there:2375")
    assert "another machine" in namespaces.why_not()
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "needs root" in namespaces.why_not()
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(
        "shutil.which", lambda name: None if name == "iptables" else f"/sbin/{name}"
    )
    assert namespaces.why_not() == "iptables is not installed (Debian: apt install iptables)"
    assert namespaces.why_no_addresses() == ""
    monkeypatch.setattr("shutil.which", lambda name: None if name == "ip" else f"/sbin/{name}")
    assert namespaces.why_no_addresses() == "ip is not installed (Debian: apt install iproute2)"
    monkeypatch.setattr("shutil.which", lambda name: f"/sbin/{name}")
    assert namespaces.why_not() == ""


def test_what_a_machine_cannot_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_with(*needs: str) -> None:
        DockerRuntime.require(frozenset(needs))

    monkeypatch.setattr(namespaces, "why_not", lambda: "")
    monkeypatch.setattr(namespaces, "why_no_addresses", lambda: "")
    open_with(PEER_CUTS)
    open_with(CLIENT_DETOURS, PEER_DETOURS)
    monkeypatch.setattr(namespaces, "why_no_addresses", lambda: "it has no hands")
    with pytest.raises(EnvironmentNotReady, match="needs peer-detours: it has no hands"):
        open_with(PEER_DETOURS)
    monkeypatch.setattr(namespaces, "why_not", lambda: "it needs wings")
    open_with(CLIENT_DETOURS)
    with pytest.raises(EnvironmentNotReady, match="needs peer-cuts: it needs wings"):
        open_with(PEER_CUTS)
    chosen = runtime_choice.choose(
        "auto", spec_of("kafka"), needs=frozenset({PEER_CUTS}), offline=True
    )
    assert (chosen.runtime, chosen.why) == ("process", "it needs wings")


_CANNOT = namespaces.why_not() or ("" if shutil.which("unshare") else "unshare is not installed")


@pytest.fixture
def namespace() -> Iterator[int]:
    """The pid of a process in a network namespace of its own, whose loopback is up."""
    script = "ip link set lo up 2>/dev/null || ifconfig lo up; echo ready; exec cat"
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            pytest.skip("this machine lets us make no network namespace")
        yield process.pid
        process.kill()


@pytest.mark.skipif(bool(_CANNOT), reason=_CANNOT)
def test_rules_of_a_namespace_are_its_own_and_go_as_they_came(namespace: int) -> None:
    rule = '-s 172.20.0.1/32 -p tcp --dport 19093 -m comment --comment "brokerstorm run-1 fault-1;" -j DROP'
    namespaces.replace_rules(namespace, [], [rule, rule.replace("dport", "sport")])
    found = namespaces.rules(namespace)
    assert len(found) == 2
    assert "brokerstorm run-1 fault-1;" in shlex.split(found[0])
    assert [line for line in namespaces.rules(os.getpid()) if line in found] == []
    namespaces.replace_rules(namespace, found, [])
    assert namespaces.rules(namespace) == []
    with pytest.raises(EnvironmentNotReady, match="iptables-restore in a container's network"):
        namespaces.replace_rules(namespace, [], ["-j NOWHERE"])


@pytest.mark.skipif(bool(_CANNOT), reason=_CANNOT)
@pytest.mark.skipif(bool(namespaces.why_no_addresses()), reason=namespaces.why_no_addresses())
def test_addresses_of_a_namespace(namespace: int) -> None:
    namespaces.add_addresses(namespace, "127.0.0.1", ["172.31.9.120", "172.31.9.121"])
    assert namespaces.established(namespace) == set()
    with pytest.raises(ConnectionRefusedError):  # it is there, and nobody listens
        namespaces.connect(namespace, Endpoint("172.31.9.121", 19093), 5)
    here = {one.address for found in psutil.net_if_addrs().values() for one in found}
    assert not {"172.31.9.120", "172.31.9.121"} & here
    with pytest.raises(
        EnvironmentNotReady, match=r"no interface .* has the address 172\.31\.9\.200"
    ):
        namespaces.add_addresses(namespace, "172.31.9.200", ["172.31.9.122"])
    with pytest.raises(EnvironmentNotReady, match="ip in a container's network"):
        namespaces.add_addresses(namespace, "127.0.0.1", ["172.31.9.300"])


def test_what_is_established_here() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as here,
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as six,
    ):
        ports = [here.getsockname()[1], six.getsockname()[1]]
        links = [socket.create_connection(("127.0.0.1", port), timeout=5) for port in ports]
        taken = [one.accept()[0] for one in (here, six)]
        assert {("127.0.0.1", port) for port in ports} <= namespaces.established(os.getpid())
        for link in (*links, *taken):
            link.close()
    assert namespaces.established(2**22 + 1) == set()


@pytest.mark.skipif(bool(_CANNOT), reason=_CANNOT)
def test_a_connection_is_made_from_there(namespace: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
        wire = Wire("a", "b", {"peer": Endpoint("127.0.0.1", port)})

        def inside(wire: Wire, name: str, timeout_s: float) -> socket.socket:
            return namespaces.connect(namespace, wire.endpoints[name], timeout_s)

        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):  # nobody listens on the loopback of there
            inside(wire, "peer", 5)
        assert measure(KAFKA.request, [wire], connect=inside) == {"a -> b": None}
        socket.create_connection(("127.0.0.1", port), timeout=5).close()  # we have not moved
    with pytest.raises(OSError, match="No such file"):
        namespaces.connect(2**22 + 1, Endpoint("127.0.0.1", 1), 1)
