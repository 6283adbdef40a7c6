"""Containers without an engine: what nodes are told, which runtime `auto` means, what is removed, and in what
words it goes wrong."""

from __future__ import annotations

import io
import json
import os
import socket
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import (
    addresses,
    docker_choice,
    docker_engine,
    docker_topology,
    docker_wiring,
    leftovers,
    spec_of,
)
from harness.clusters.docker_runtime import DockerRuntime
from harness.clusters.layout import Layout
from harness.clusters.processes import ProcessId
from harness.errors import EnvironmentNotReady, HealError, UsageError

ROOT = Path(__file__).resolve().parents[2]
NOTHING = frozenset[str]()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path / "state"))
    return tmp_path


def conf_of(system: str, node: str, target: str, topology: str = "") -> dict[str, str]:
    spec = spec_of(system, topology=topology)
    layout = Layout(spec, Path("/x"), 9, docker_wiring.DockerWiring(spec))
    lines = [line for line in layout.conf_text(layout.node(node), target).splitlines() if "=" in line]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def test_kafka_in_a_container_has_an_address_for_each_who_asks() -> None:
    conf = conf_of("kafka", "kafka-2", "server.properties")
    assert conf["advertised.listeners"] == (
        "CLIENT://127.0.9.2:19092,PEER://kafka-2-mesh:19093,ADMIN://127.0.9.2:19094"
    )
    assert conf["controller.quorum.voters"].split(",")[2] == "3@kafka-3-mesh:19095"
    assert conf["listeners"].startswith("CLIENT://0.0.0.0:19092,PEER://0.0.0.0:19093")
    assert conf["log.dirs"] == "/var/lib/kafka/data"


def test_pulsar_in_a_container_tells_each_side_its_own_address() -> None:
    conf = conf_of("pulsar", "broker-3", "broker.conf")
    assert conf["advertisedListeners"] == (
        "brokers:pulsar://broker-3-mesh:16651,clients:pulsar://127.0.9.3:16650"
    )
    assert conf["bindAddresses"] == "clients:pulsar://0.0.0.0:16650"
    assert (conf["internalListenerName"], conf["brokerServicePort"]) == ("brokers", "16651")
    assert conf["advertisedAddress"] == "broker-3-mesh"
    assert conf["metadataStoreUrl"] == "zk:zookeeper-mesh:12181"
    bookie = conf_of("pulsar", "bookie-1", "bookkeeper.conf")
    assert bookie["journalDirectory"] == "/pulsar/data/journal"
    assert (bookie["advertisedAddress"], "listeningInterface" in bookie) == ("bookie-1-mesh", False)


def test_a_group_of_qpid_nodes_meets_by_mesh_names() -> None:
    spec = spec_of("qpid", topology="group")
    layout = Layout(spec, Path("/x"), 9, docker_wiring.DockerWiring(spec))
    found = json.loads(layout.conf_text(layout.node("qpid-2"), "config.json"))["virtualhostnodes"][0]
    assert (found["address"], found["helperAddress"]) == ("qpid-2-mesh:25690", "qpid-1-mesh:25690")


@pytest.mark.parametrize("system", ["kafka", "pulsar", "qpid"])
def test_every_address_that_is_given_out_is_published(system: str) -> None:
    """Clients and the harness use the node's address of the block: compose must publish that port there."""
    spec = spec_of(system)
    import yaml

    services = yaml.safe_load(spec.file.read_text())["services"]
    for service in spec.nodes:
        published = {str(each).rpartition("}.")[2] for each in services[service.name]["ports"]}
        wanted = {spec.ports[service.endpoints["client"]], spec.ports[service.endpoints["admin"]]}
        for side in (spec.detours["clients"].get(role, ()) for role in service.roles):
            wanted |= {spec.ports[name] for name in side}
        assert published == {f"{service.number}:{port}:{port}" for port in wanted}


def test_everything_that_compose_makes_has_a_label() -> None:
    """What has none is what `clean` cannot find."""
    import yaml

    for file in (ROOT / "compose").glob("*/compose.yaml"):
        document = yaml.safe_load(file.read_text())
        kinds = [
            *document["services"].values(),
            *document["networks"].values(),
            *document["volumes"].values(),
        ]
        assert [each for each in kinds if docker_engine.LABEL not in each.get("labels", {})] == []
        for name, service in document["services"].items():
            assert all(isinstance(volume, str) and ":" in volume for volume in service.get("volumes", [])), (
                name
            )


def test_the_env_file_keeps_awkward_paths() -> None:
    values = docker_wiring.variables(spec_of("kafka"), "r", Path("/a b/$HOME/it's"), 7)
    text = docker_wiring.env_text(values)
    assert "BROKERSTORM_NET='127.0.7'" in text
    assert r"BROKERSTORM_CLUSTER_DIR='/a b/$HOME/it\'s'" in text


def test_a_folder_that_docker_cannot_mount_is_refused() -> None:
    with pytest.raises(UsageError, match="has a colon"):
        docker_wiring.variables(spec_of("kafka"), "r", Path("/a:b"), 7)


def test_what_the_runtime_cannot_give_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="the docker runtime cannot give: wings"):
        DockerRuntime("r", Path("/x"), 9, spec_of("kafka"), None, needs=frozenset({"wings"}))


class GoneEngine:
    """An engine that was there when the cluster was started."""

    class Api:
        def inspect_container(self, name: str) -> dict[str, Any]:
            from requests.exceptions import ConnectionError

            raise ConnectionError("Connection refused")

    api = Api()


def test_an_engine_that_went_away_mid_run_is_an_error_only_for_who_acts() -> None:
    runtime = DockerRuntime("r", Path("/x"), 9, spec_of("kafka"), GoneEngine())
    runtime._ids["kafka-1"] = "0123"
    assert (runtime.pid("kafka-1"), runtime.is_reachable("kafka-1")) == (None, False)
    with pytest.raises(EnvironmentNotReady, match="cannot ask for the state of kafka-1: Connection refused"):
        runtime.start("kafka-1")
    assert runtime.is_running("kafka-2") is False  # it never had a container


# -- auto -------------------------------------------------------------------------------------------------


def choose(system: str = "kafka", version: str = "", *, needs: frozenset[str] = NOTHING) -> Any:
    return docker_choice.choose("auto", spec_of(system, version), needs=needs, offline=True)


def test_auto_without_an_engine_means_processes_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    spec = spec_of("kafka")
    started = time.process_time()
    found = docker_choice.choose("auto", spec, needs=NOTHING, offline=False)
    assert time.process_time() - started < 0.3
    assert str(found) == "process (no Docker engine: there is no /no/such/docker.sock)"


def test_docker_is_not_imported_to_find_that_there_is_none() -> None:
    code = (
        "import sys; from harness.clusters import docker_choice, spec_of;"
        "docker_choice.choose('auto', spec_of('kafka'), needs=frozenset(), offline=False);"
        "print('docker' in sys.modules, 'testcontainers' in sys.modules)"
    )
    environment = {**os.environ, "DOCKER_HOST": "unix:///no/such/docker.sock"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_auto_says_what_speaks_against_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(needs=frozenset({"wings"})).why == "a fault of this scenario needs wings"
    monkeypatch.setattr(docker_choice, "connect", io.BytesIO)
    monkeypatch.setattr(docker_choice, "missing", lambda client, spec: [])
    assert "knows one address" in choose("pulsar", "2.8.1").why


def test_what_was_asked_for_is_not_questioned() -> None:
    asked = docker_choice.choose("docker", spec_of("kafka"), needs=NOTHING, offline=True)
    assert str(asked) == "docker (asked for)"


def test_a_refusal_of_the_registry_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses.state_folder()
    docker_choice._remember_refusal("apache/kafka:1")
    assert docker_choice._was_refused("apache/kafka:1")
    assert not docker_choice._was_refused("apache/kafka:2")
    later = time.time() + docker_choice._REMEMBERED_S + 1
    monkeypatch.setattr(docker_choice.time, "time", lambda: later)
    assert not docker_choice._was_refused("apache/kafka:1")


# -- an engine that is not well ------------------------------------------------------------------------------


def test_a_file_in_the_socket_s_place_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker.sock").write_text("")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(EnvironmentNotReady, match="is not a socket"):
        docker_engine.connect()


@pytest.fixture
def dead_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an engine leaves that was killed: a socket on which nobody listens."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert stat.S_ISSOCK(path.stat().st_mode)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return path


def test_a_socket_without_an_engine_is_named(dead_socket: Path) -> None:
    with pytest.raises(
        EnvironmentNotReady, match=r"no Docker engine answers at .*Connection refused"
    ) as caught:
        docker_engine.connect()
    assert "--runtime process" in caught.value.hint


def test_a_socket_of_somebody_else_is_said_to_be_so(
    dead_socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine.os, "access", lambda path, mode: False)
    with pytest.raises(EnvironmentNotReady, match="no permission on the socket"):
        docker_engine.connect()


@pytest.mark.parametrize(
    ("said", "text", "hint"),
    [
        (
            "Error response from daemon: Bind for 127.0.1.1:19092 failed: port is already allocated",
            "port is already allocated",
            "`ss -ltnp`",
        ),
        ("docker: unknown command: docker compose", "no compose plugin", "doctor"),
        ("write /x: no space left on device", "no space left", "docker system df"),
        ("Error pull access denied for apache/kafka", "pull access denied", "fetch --images"),
        ("", "it said nothing", ""),
    ],
)
def test_the_plugin_s_words_get_a_next_step(said: str, text: str, hint: str) -> None:
    error = docker_topology._refused(said)
    assert text in str(error)
    assert hint in error.hint
    assert "\n" not in str(error)


# -- removal ------------------------------------------------------------------------------------------------


class Thing:
    """A container, network or volume of a made-up engine."""

    def __init__(self, engine: Engine, kind: str, name: str, *, stuck: bool = False) -> None:
        self.engine, self.kind, self.name, self.stuck = engine, kind, name, stuck
        self.id = self.name
        self.attrs = {
            "State": "running",
            "Names": [f"/{name}"],
            "Labels": {docker_engine.LABEL: "run-1", docker_engine.SERVICE_LABEL: name},
        }

    def logs(self, *, stream: bool, follow: bool, stdout: bool = True, stderr: bool = True) -> list[bytes]:
        return [f"{self.name} out\n".encode()] if stdout else []

    def remove(self, **how: bool) -> None:
        from docker.errors import APIError

        if self.stuck:
            raise APIError("in use", explanation=f"{self.name} is in use")
        if self.kind != "container" and any(each.kind == "container" for each in self.engine.things):
            raise APIError("in use", explanation="has active endpoints")
        self.engine.removed.append((self.name, dict(how)))
        self.engine.things.remove(self)


class Engine:
    def __init__(self) -> None:
        self.things: list[Thing] = []
        self.removed: list[tuple[str, dict[str, bool]]] = []
        self.containers = self.networks = self.volumes = self

    def add(self, kind: str, name: str, **how: bool) -> None:
        self.things.append(Thing(self, kind, name, **how))


class Kind:
    def __init__(self, engine: Engine, kind: str) -> None:
        self.engine, self.kind = engine, kind

    def list(self, **how: Any) -> list[Thing]:
        assert how["filters"] == {"label": f"{docker_engine.LABEL}=run-1"}
        return [each for each in self.engine.things if each.kind == self.kind]


@pytest.fixture
def engine() -> Any:
    found: Any = Engine()
    for kind in ("container", "network", "volume"):
        setattr(found, f"{kind}s", Kind(found, kind))
    return found


def test_containers_go_first_and_take_their_volumes_along(engine: Any) -> None:
    for kind, name in (("volume", "v"), ("network", "n"), ("container", "c1"), ("container", "c2")):
        engine.add(kind, name)
    docker_engine.remove(engine, "run-1")
    names = [name for name, _ in engine.removed]
    assert (set(names[:2]), names[2:]) == ({"c1", "c2"}, ["n", "v"])
    assert dict(engine.removed)["c1"] == {"force": True, "v": True}
    docker_engine.remove(engine, "run-1")  # nothing left is no error


def test_what_containers_said_is_kept_where_processes_write_theirs(engine: Any, tmp_path: Path) -> None:
    engine.add("container", "kafka-1")
    docker_engine.keep_logs(engine, "run-1", tmp_path)
    assert (tmp_path / "kafka-1" / "logs" / "stdout.log").read_text() == "kafka-1 out\n"
    assert (tmp_path / "kafka-1" / "logs" / "stderr.log").read_text() == ""
    docker_engine.keep_logs(engine, "run-1", tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_what_stays_is_named_with_the_engine_s_words(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.add("network", "n", stuck=True)
    monkeypatch.setattr(docker_engine, "_REMOVE_S", 0.2)
    with pytest.raises(HealError, match=r"1 containers, networks or volumes of run-1 .*: n is in use"):
        docker_engine.remove(engine, "run-1")


def let_its_harness_die() -> None:
    (claim,) = addresses.claims()
    addresses._write(replace(claim, owner=ProcessId(claim.owner.pid, 1.0)))


def found_here() -> list[leftovers.Leftover]:
    """The machine may have leftovers of other runs."""
    return [one for one in leftovers.find() if one.run_id == "run-1"]


@pytest.fixture
def found_engine(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    engine.close = lambda: None
    monkeypatch.setattr(docker_engine, "connect", lambda: engine)
    for kind, name in (("container", "kafka-1"), ("network", "n"), ("volume", "v")):
        engine.add(kind, name)
    return engine


def test_what_a_killed_harness_left_in_the_engine_is_found_and_removed(
    found_engine: Any, tmp_path: Path
) -> None:
    addresses.claim("run-1", tmp_path, [], runtime="docker")
    assert found_here() == [], "its harness lives"
    let_its_harness_die()
    (left,) = found_here()
    assert left.in_engine == {"containers": ("kafka-1",), "networks": ("n",), "volumes": ("v",)}
    assert "1 containers (kafka-1), 1 networks (n), 1 volumes (v), addresses 127.0." in left.describe()
    leftovers.remove([left])
    assert (found_engine.things, addresses.claims()) == ([], [])
    assert (tmp_path / "kafka-1" / "logs" / "stdout.log").read_text() == "kafka-1 out\n"


def test_a_kept_cluster_is_left_alone_until_it_is_named(found_engine: Any, tmp_path: Path) -> None:
    addresses.keep(addresses.claim("run-1", tmp_path, [], runtime="docker"), "run-1")
    let_its_harness_die()
    assert found_here() == []
    (named,) = leftovers.find("run-1")
    assert named.kept
    assert named.in_engine["containers"] == ("kafka-1",)


def test_containers_of_somebody_else_are_left_alone_until_their_run_is_named(found_engine: Any) -> None:
    assert found_here() == []
    assert [one.run_id for one in leftovers.find("run-1")] == ["run-1"]


def test_containers_that_cannot_be_asked_for_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    addresses.claim("run-1", tmp_path, [], runtime="docker")
    let_its_harness_die()
    with pytest.raises(EnvironmentNotReady, match="no Docker engine"):
        leftovers.find()
    assert [claim.run_id for claim in addresses.claims()] == ["run-1"]


def test_a_block_of_a_run_with_containers_is_not_given_out(tmp_path: Path) -> None:
    block = addresses.claim("with-containers", tmp_path, [], runtime="docker")
    let_its_harness_die()
    assert addresses._held_by_nodes(lambda: {"with-containers"}) == {block}
    assert addresses._held_by_nodes(set) == set()
