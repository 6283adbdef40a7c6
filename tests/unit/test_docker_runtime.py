"""Containers without an engine: what nodes are told, which runtime `auto` means, and in what words
it goes wrong."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import NotFound

from harness.clusters import runtime_choice, spec_of
from harness.clusters.docker import engine, groups, wiring
from harness.clusters.docker import topology as docker_topology
from harness.clusters.docker.runtime import DockerRuntime
from harness.clusters.layout import addresses
from harness.clusters.limits.groups import Hierarchy
from harness.errors import EnvironmentNotReady, UsageError
from harness.owners import short_owner_mark

ROOT = Path(__file__).resolve().parents[2]
NOTHING = frozenset[str]()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path / "state"))
    return tmp_path


def conf_of(system: str, node: str, target: str, topology: str = "") -> dict[str, str]:
    spec = spec_of(system, topology=topology)
    layout = DockerRuntime("r", Path("/x"), 9, spec, None).layout
    lines = [
        line for line in layout.conf_text(layout.node(node), target).splitlines() if "=" in line
    ]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def test_kafka_in_a_container_has_an_address_for_each_who_asks() -> None:
    conf = conf_of("kafka", "kafka-2", "server.properties")
    assert conf["advertised.listeners"] == (
        "CLIENT://127.0.9.2:19092,PEER://kafka-2-mesh:19093,ADMIN://127.0.9.2:19094,"
        "CONTROLLER://kafka-2-mesh:19095"
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
    layout = DockerRuntime("r", Path("/x"), 9, spec, None).layout
    found = json.loads(layout.conf_text(layout.node("qpid-2"), "config.json"))["virtualhostnodes"][
        0
    ]
    assert (found["address"], found["helperAddress"]) == ("qpid-2-mesh:25690", "qpid-1-mesh:25690")


@pytest.mark.parametrize("system", ["kafka", "nats", "pulsar", "qpid"])
def test_every_address_that_is_given_out_is_published(system: str) -> None:
    """Clients and the harness use the node's address of the block: compose must publish that port
    there."""
    spec = spec_of(system)
    import yaml

    services = yaml.safe_load(spec.file.read_text())["services"]
    for service in spec.nodes:
        published = {str(each).rpartition("}.")[2] for each in services[service.name]["ports"]}
        wanted = {spec.ports[service.endpoints["client"]], spec.ports[service.endpoints["admin"]]}
        for side in (spec.detours["clients"].get(role, ()) for role in service.roles):
            wanted |= {spec.ports[name] for name in side}
        assert published == {f"{service.number}:{port}:{port}" for port in wanted}


@pytest.mark.parametrize("system", ["kafka", "nats", "pulsar", "qpid"])
def test_a_container_has_the_heap_and_the_compiler_of_a_process(system: str) -> None:
    """The optimising compiler of a cold broker takes the cores of the clients, on either
    runtime."""
    spec = spec_of(system)
    import yaml

    services = yaml.safe_load(spec.file.read_text())["services"]
    for service in spec.nodes:
        given = " ".join(map(str, services[service.name].get("environment", {}).values())).split()
        wanted = [
            flag for flag in service.jvm if re.match(r"-Xmx|-XX:(\+Use|Tiered|MaxDirect)", flag)
        ]
        assert set(wanted) - set(given) == set(), service.name


def test_everything_that_compose_makes_has_a_label() -> None:
    """What has none is what `clean` cannot find."""
    import yaml

    for file in (ROOT / "compose").glob("*/compose.yaml"):
        document = yaml.safe_load(file.read_text())
        kinds = [
            *document["services"].values(),
            *document.get("networks", {}).values(),
            *document.get("volumes", {}).values(),
        ]
        needed = {engine.LABEL, engine.OWNER_LABEL}
        assert [each for each in kinds if not needed <= each.get("labels", {}).keys()] == []
        for name, service in document["services"].items():
            assert all(
                isinstance(volume, str) and ":" in volume for volume in service.get("volumes", [])
            ), name


def test_the_env_file_keeps_awkward_paths() -> None:
    values = wiring.variables(spec_of("kafka"), "r", Path("/a b/$HOME/it's"), 7)
    text = wiring.env_text(values)
    assert "BROKERSTORM_NET='127.0.7'" in text
    assert r"BROKERSTORM_CLUSTER_DIR='/a b/$HOME/it\'s'" in text


def test_a_folder_that_docker_cannot_mount_is_refused() -> None:
    with pytest.raises(UsageError, match="has a colon"):
        wiring.variables(spec_of("kafka"), "r", Path("/a:b"), 7)


def test_what_the_runtime_cannot_give_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="the docker runtime cannot give: wings"):
        DockerRuntime.require(frozenset({"wings"}))


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
    with pytest.raises(
        EnvironmentNotReady, match="cannot ask for the state of kafka-1: Connection refused"
    ):
        runtime.start("kafka-1")
    assert runtime.is_running("kafka-2") is False  # it never had a container


class DeafEngine:
    """An engine with a container that runs, and whose port never opens."""

    def __init__(self) -> None:
        self.api = self.containers = self
        self.id = "0123"

    def inspect_container(self, name: str) -> dict[str, Any]:
        return {"State": {"Running": True, "Status": "running", "Health": {"Status": "unhealthy"}}}

    def get(self, name: str) -> DeafEngine:
        return self

    def logs(self, **how: Any) -> Any:
        text = b"started\nERROR waiting for a license\n"
        return [text] if how.get("stream") else text


def test_a_node_that_runs_and_never_answers_is_told_with_its_last_lines(tmp_path: Path) -> None:
    runtime = DockerRuntime("r", tmp_path, 9, spec_of("kafka"), DeafEngine())
    runtime._ids["kafka-1"] = "0123"
    with pytest.raises(EnvironmentNotReady) as caught:
        runtime.check()
    said, *lines = str(caught.value).splitlines()
    assert said == "kafka-1 runs and never became healthy; last lines:"
    assert [line.strip() for line in lines][-1] == "ERROR waiting for a license"
    assert f"its log is {tmp_path / 'kafka-1' / 'logs' / 'stdout.log'}" in caught.value.hint


class ComposedEngine:
    """An engine with the containers that compose was asked for, each with a volume."""

    def __init__(self) -> None:
        self.running: dict[str, bool] = {}
        self.volumes_of: dict[str, list[str]] = {}
        self.containers = self.volumes = self.api = self

    def join(
        self, spec: Any, files: list[Path], folder: Path, values: Any, env: Any, services: Any
    ) -> None:
        self.add(services)

    def add(self, names: list[str]) -> None:
        self.running |= dict.fromkeys(names, True)
        self.volumes_of |= {name: [f"{name}-data"] for name in names}

    def list(self, **how: Any) -> list[Any]:
        return [self.get(name) for name in self.running]

    def get(self, name: str) -> Any:
        labels = {"com.docker.compose.service": name}
        mounts = [{"Type": "volume", "Name": one} for one in self.volumes_of.get(name, ())]
        return SimpleNamespace(
            id=name,
            name=name,
            attrs={"Labels": labels, "Mounts": [*mounts, {"Type": "bind", "Source": "/conf"}]},
            stop=lambda timeout: self.running.update({name: False}),
            remove=lambda **how: self._remove(name),
            logs=lambda **how: [b"bye"],
        )

    def _remove(self, name: str) -> None:
        node = name.removesuffix("-data")
        if name == node:
            del self.running[node]
        else:
            self.volumes_of[node].remove(name)

    def inspect_container(self, name: str) -> dict[str, Any]:
        return {"State": {"Running": self.running[name], "Status": "running"}}


def test_a_broker_joins_as_a_container_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ComposedEngine()
    monkeypatch.setattr(groups, "make", lambda *_: "")
    needs = frozenset({"spare-broker"})
    spec = spec_of("kafka", needs=needs)
    runtime = DockerRuntime("r", tmp_path, 9, spec, engine, needs=needs)
    three = ["kafka-1", "kafka-2", "kafka-3"]
    engine.add(three)
    runtime.adopt()
    assert ([node.name for node in runtime.nodes], runtime.outside()) == (three, ["kafka-4"])
    runtime.check()
    monkeypatch.setattr(docker_topology, "up", engine.join)
    for _ in range(2):
        runtime.join("kafka-4")
        assert (runtime.is_running("kafka-4"), runtime.outside()) == (True, [])
        assert runtime.may_leave() == ["kafka-4"]
        runtime.leave("kafka-4")
        assert runtime.outside() == ["kafka-4"]
        assert (sorted(engine.running), engine.volumes_of["kafka-4"]) == (three, [])
        runtime.leave("kafka-4")  # once more is no error
    assert (tmp_path / "kafka-4" / "logs" / "stdout.log").read_text() == "bye"


@pytest.mark.parametrize(
    ("need", "profiles"), [("spare-broker", []), ("fourth-broker", ["spare-broker"]), ("", [])]
)
def test_a_broker_that_is_to_leave_is_there_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: str, profiles: list[str]
) -> None:
    asked = []
    monkeypatch.setattr(groups, "make", lambda *_: "")
    monkeypatch.setattr(
        docker_topology, "up", lambda *_, **of: asked.append(sorted(of["profiles"]))
    )
    needs = frozenset({need} - {""})
    spec = spec_of("kafka", needs=needs)
    with pytest.raises(EnvironmentNotReady, match="its container is gone"):  # nothing was composed
        DockerRuntime("r", tmp_path, 9, spec, ComposedEngine(), needs=needs).up()
    assert asked == [profiles]


@pytest.mark.parametrize("system", ["kafka", "nats", "pulsar", "qpid"])
def test_a_start_waits_for_longer_than_a_node_is_given_to_become_healthy(system: str) -> None:
    """Else it would end with *not ready*, and nobody would be told what the node said."""
    import yaml

    from commands.clusters import UP_TIMEOUT_S

    services = yaml.safe_load(spec_of(system).file.read_text())["services"]
    for service in spec_of(system).nodes:
        check = services[service.name]["healthcheck"]
        late_s = int(check["interval"].removesuffix("s")) * check["retries"]
        # compose waits for that
        assert late_s < UP_TIMEOUT_S or "zookeeper" in service.roles, service.name


# -- auto ------------------------------------------------------------------------------------------


def choose(system: str = "kafka", version: str = "", *, needs: frozenset[str] = NOTHING) -> Any:
    return runtime_choice.choose("auto", spec_of(system, version), needs=needs, offline=True)


def test_auto_without_an_engine_means_processes_and_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    spec = spec_of("kafka")
    started = time.process_time()
    found = runtime_choice.choose("auto", spec, needs=NOTHING, offline=False)
    assert time.process_time() - started < 0.3
    assert str(found) == "process (no Docker engine: there is no /no/such/docker.sock)"


def test_docker_is_not_imported_to_find_that_there_is_none() -> None:
    code = (
        "import sys; from harness.clusters import runtime_choice, spec_of;"
        "runtime_choice.choose('auto', spec_of('kafka'), needs=frozenset(), offline=False);"
        "print('docker' in sys.modules, 'testcontainers' in sys.modules)"
    )
    environment = {**os.environ, "DOCKER_HOST": "unix:///no/such/docker.sock"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]


def test_auto_says_what_speaks_against_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(needs=frozenset({"wings"})).why == "a fault of this scenario needs wings"
    monkeypatch.setattr(runtime_choice, "connect", io.BytesIO)
    monkeypatch.setattr(runtime_choice, "missing", lambda client, spec: [])
    assert "knows one address" in choose("pulsar", "2.8.1").why


def test_what_was_asked_for_is_not_questioned() -> None:
    asked = runtime_choice.choose("docker", spec_of("kafka"), needs=NOTHING, offline=True)
    assert str(asked) == "docker (asked for)"


def test_a_refusal_of_the_registry_is_remembered_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses.state_folder()
    runtime_choice._remember_refusal("apache/kafka:1")
    assert runtime_choice._was_refused("apache/kafka:1")
    assert not runtime_choice._was_refused("apache/kafka:2")
    later = time.time() + runtime_choice._REMEMBERED_S + 1
    monkeypatch.setattr(runtime_choice.time, "time", lambda: later)
    assert not runtime_choice._was_refused("apache/kafka:1")


# -- an engine that is not well --------------------------------------------------------------------


def test_a_file_in_the_socket_s_place_is_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docker.sock").write_text("")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(EnvironmentNotReady, match="is not a socket"):
        engine.connect()


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
        engine.connect()
    assert "--runtime process" in caught.value.hint


def test_a_socket_of_somebody_else_is_said_to_be_so(
    dead_socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.os, "access", lambda path, mode: False)
    with pytest.raises(EnvironmentNotReady, match="no permission on the socket"):
        engine.connect()


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


# -- the group of the containers -------------------------------------------------------------------


class DriverEngine:
    def __init__(self, driver: str = "cgroupfs") -> None:
        self.driver = driver

    def info(self) -> dict[str, str]:
        return {"CgroupDriver": self.driver}


@pytest.fixture
def v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with control groups of version 1, as far as the containers' group goes."""
    root = tmp_path / "cpu"
    root.mkdir()
    monkeypatch.setattr(groups, "hierarchies", lambda: {"cpu": Hierarchy("cpu", root, 1)})
    monkeypatch.setattr(groups.os, "geteuid", lambda: 0)
    return root


def test_containers_weigh_as_much_as_their_brokers_would_as_processes(v1: Path) -> None:
    name = f"brokerstorm.run-1.{short_owner_mark()}.containers"
    assert groups.make(DriverEngine(), "run-1", spec_of("kafka")) == f"/{name}"
    assert (v1 / name / "cpu.shares").read_text() == str(3 * 4 * 1024)
    values = wiring.variables(spec_of("kafka"), "run-1", Path("/x"), 9, f"/{name}")
    assert values["BROKERSTORM_CGROUP"] == f"/{name}"


def test_the_engine_s_own_group_is_kept_where_groups_share_alike(
    v1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of("kafka")
    assert groups.make(DriverEngine("systemd"), "run-1", spec) == ""
    with monkeypatch.context() as user:
        user.setattr(groups.os, "geteuid", lambda: 1000)
        assert groups.make(DriverEngine(), "run-1", spec) == ""
    monkeypatch.setattr(groups, "hierarchies", lambda: {"cpu": Hierarchy("cpu", v1, 2)})
    assert groups.make(DriverEngine(), "run-1", spec) == ""
    assert list(v1.iterdir()) == []
    groups.drop("run-1")


@pytest.mark.parametrize("system", ["kafka", "nats", "pulsar", "qpid"])
def test_every_container_is_in_the_group_and_asks_only_the_engine_for_nodes(system: str) -> None:
    import yaml

    for name, service in yaml.safe_load(spec_of(system).file.read_text())["services"].items():
        assert service["cgroup_parent"] == "${BROKERSTORM_CGROUP:-}", name
        assert (service["dns_opt"], service["dns_search"]) == (["ndots:1"], ["."]), name


class Holding:
    """A container with one file, as the engine gives it: a tar archive in pieces."""

    id = "0123456789abcdef"

    def get_archive(self, path: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        if path != "/data/log":
            raise NotFound("no such file")
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as made:
            entry = tarfile.TarInfo("log")
            entry.size = 3
            made.addfile(entry, io.BytesIO(b"abc"))
        whole = archive.getvalue()
        return iter([whole[:700], whole[700:]]), {}


def test_a_file_of_a_container_is_read_and_one_that_is_not_there_is_none() -> None:
    assert engine.read_file(Holding(), "/data/log") == b"abc"
    assert engine.read_file(Holding(), "/data/other") is None
