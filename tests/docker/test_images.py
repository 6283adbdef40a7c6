"""The contract of images that compose/ relies on, for stand-ins and, where they can be had,
official ones.

Paths, entry point, user, health command, mounted configuration, formatted storage, signals, a
second start.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import spec_of
from harness.clusters.docker import images
from harness.clusters.images import standin
from harness.errors import EnvironmentNotReady
from harness.waiting import wait_until

pytestmark = pytest.mark.docker

READY_S = 120.0
STOP_S = 30
CLUSTER_ID = "YnJva2Vyc3Rvcm0tLS0tLQ"
KAFKA = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:19095
listeners=ADMIN://:19094,CONTROLLER://:19095
advertised.listeners=ADMIN://localhost:19094
listener.security.protocol.map=ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=ADMIN
controller.listener.names=CONTROLLER
log.dirs=/var/lib/kafka/data
log.cleaner.dedupe.buffer.size=2097152
"""
ZOOKEEPER = (
    "tickTime=1000\ndataDir=/pulsar/data/zookeeper\nclientPort=12181\nadmin.enableServer=false\n"
)
SMALL = "-Xms32m -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Contract:
    """What an image must have, whoever made it: ``commands`` can be executed, ``writable`` by its
    user."""

    system: str
    version: str
    user: str
    commands: tuple[str, ...]
    writable: tuple[str, ...]
    folder: str = ""
    starts: str = ""


KAFKA_IMAGE = Contract(
    "kafka",
    "4.1.2",
    "appuser",
    (
        "/etc/kafka/docker/run",
        "/opt/kafka/bin/kafka-server-start.sh",
        "/opt/kafka/bin/kafka-storage.sh",
    ),
    ("/var/lib/kafka/data", "/opt/kafka/config"),
    starts="/etc/kafka/docker/run",
)
PULSAR_IMAGE = Contract(
    "pulsar", "4.0.8", "10000", ("/pulsar/bin/pulsar",), ("/pulsar/data",), "/pulsar"
)
QPID_IMAGE = Contract(
    "qpid", "9.2.1", "qpid", ("/opt/qpid/bin/run",), ("/var/lib/qpid",), starts="/opt/qpid/bin/run"
)
#: Every change is held to one; the images of the others take minutes to build.
CONTRACTS = (
    KAFKA_IMAGE,
    pytest.param(PULSAR_IMAGE, marks=pytest.mark.extended),
    pytest.param(QPID_IMAGE, marks=pytest.mark.extended),
)


@pytest.fixture(params=["stand-in", "official"], scope="module")
def tag(
    request: pytest.FixtureRequest, engine: Any, image: Callable[..., standin.Image]
) -> Callable[[Contract], str]:
    """The tag of an image of the wanted kind. An official one is pulled where a registry gives
    it."""

    def choose(contract: Contract) -> str:
        name = standin.image_of(spec_of(contract.system, contract.version))
        found = standin.look(engine, name)
        if request.param == "stand-in":
            if found.kind == "official":
                pytest.skip(f"{name} is the official image here")
            return image(contract.system, contract.version).tag
        if found.kind != "official":
            try:
                images.can_pull(name)
            except EnvironmentNotReady as error:
                pytest.skip(f"no registry: {error}")
            images.pull(engine, name, lambda text, share: None)
        return name

    return choose


@pytest.fixture
def start(engine: Any) -> Iterator[Callable[..., Any]]:
    """Start a container; it is gone after the test, with its volumes."""
    started = []

    def run(image: str, **options: Any) -> Any:
        container = engine.containers.run(
            image,
            detach=True,
            labels={"brokerstorm.run": f"test-images-{os.getpid()}"},
            mem_limit="600m",
            **options,
        )
        started.append(container)
        return container

    yield run
    for container in started:
        container.remove(force=True, v=True)


def mount(folder: Path, where: str, files: dict[str, str]) -> dict[str, dict[str, str]]:
    """A folder with these files, readable by any user and writable by none."""
    folder = folder / "conf"
    folder.mkdir()
    folder.chmod(0o755)
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    return {str(folder): {"bind": where, "mode": "ro"}}


def do(container: Any, *command: str) -> str:
    code, output = container.exec_run(list(command))
    text = str(output.decode(errors="replace")).strip()
    assert code == 0, f"{command} ended with {code}: {text}"
    return text


def wait_healthy(container: Any, port: int) -> None:
    """As the health check of the compose file asks: `nc -z localhost PORT`."""

    def is_open() -> bool:
        container.reload()
        assert container.status == "running", tail(container)
        return bool(container.exec_run(["nc", "-z", "localhost", str(port)])[0] == 0)

    assert wait_until(is_open, READY_S, every_s=0.25), f"port {port} is closed: {tail(container)}"


def tail(container: Any) -> str:
    return str(container.logs(tail=15).decode(errors="replace"))


def stop(container: Any) -> float:
    """SIGTERM to the entry point; how long it took. Never SIGKILL: that would be exit code 137."""
    began = time.monotonic()
    container.stop(timeout=STOP_S)
    assert container.wait()["StatusCode"] in (0, 143), tail(container)
    return time.monotonic() - began


@pytest.mark.parametrize("contract", CONTRACTS, ids=["kafka", "pulsar", "qpid"])
def test_paths_user_and_tools(
    contract: Contract, tag: Callable[[Contract], str], start: Callable[..., Any], engine: Any
) -> None:
    name = tag(contract)
    config = engine.api.inspect_image(name)["Config"]
    assert config["User"] == contract.user
    if contract.folder:
        assert config["WorkingDir"] == contract.folder
    if contract.starts:
        assert config["Cmd"] == [contract.starts]
    container = start(name, entrypoint=["sleep", "60"], network_mode="none")
    for command in contract.commands:
        do(container, "test", "-x", command)
    for folder in contract.writable:
        do(container, "test", "-w", folder)
    do(container, "bash", "-c", "type nc java && java -version")
    assert do(container, "id", "-u") != "0"


def test_kafka_takes_what_is_mounted_and_formats_its_storage(
    tag: Callable[[Contract], str], start: Callable[..., Any], tmp_path: Path
) -> None:
    container = start(
        tag(KAFKA_IMAGE),
        environment={
            "CLUSTER_ID": CLUSTER_ID,
            "KAFKA_HEAP_OPTS": "-Xms192m -Xmx192m",
            "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "KAFKA_NUM_PARTITIONS": "7",
        },
        volumes=mount(tmp_path, "/mnt/shared/config", {"server.properties": KAFKA}),
    )
    wait_healthy(container, 19094)
    assert f"cluster.id={CLUSTER_ID}" in do(container, "cat", "/var/lib/kafka/data/meta.properties")
    settings = do(container, "cat", "/opt/kafka/config/server.properties").splitlines()
    assert set(KAFKA.splitlines()) <= set(settings)
    assert "num.partitions=7" in settings  # a variable is laid over the file
    command = do(container, "cat", "/proc/1/cmdline").split("\0")
    assert command[0].endswith("java"), "signals must reach the broker"
    assert {"-Xmx192m", "-XX:+UseSerialGC", "kafka.Kafka"} <= set(command)
    assert stop(container) < STOP_S
    container.start()  # its storage is formatted already
    wait_healthy(container, 19094)


@pytest.mark.extended
def test_pulsar_commands_take_their_files_by_variable(
    tag: Callable[[Contract], str], start: Callable[..., Any], tmp_path: Path
) -> None:
    container = start(
        tag(PULSAR_IMAGE),
        command=["bash", "-c", "exec bin/pulsar zookeeper"],
        environment={
            "PULSAR_MEM": SMALL,
            "PULSAR_GC": " ",
            "PULSAR_ZK_CONF": "/pulsar/brokerstorm/zoo.cfg",
        },
        volumes=mount(tmp_path, "/pulsar/brokerstorm", {"zoo.cfg": ZOOKEEPER}),
        network_mode="none",
    )
    wait_healthy(container, 12181)
    command = do(container, "cat", "/proc/1/cmdline").split("\0")
    assert command[0].endswith("java")
    assert {"-Xmx192m", "/pulsar/brokerstorm/zoo.cfg"} <= set(command)
    store = "zk:localhost:12181"
    do(
        container, "bin/pulsar", "initialize-cluster-metadata", "--cluster", "one", "--metadata-store", store,
        "--configuration-metadata-store", store, "--web-service-url", "http://localhost:18080",
        "--broker-service-url", "pulsar://localhost:16650",
    )  # fmt: skip
    assert stop(container) < STOP_S


@pytest.mark.extended
def test_qpid_takes_what_is_mounted(
    tag: Callable[[Contract], str], start: Callable[..., Any], tmp_path: Path
) -> None:
    plain = {"name": "plain", "type": "Plain", "secureOnlyMechanisms": [], "users": []}
    port = {"name": "admin", "type": "HTTP", "port": "25680", "authenticationProvider": "plain"}
    config = {"name": "one", "modelVersion": "9.0", "authenticationproviders": [plain], "ports": [port],
              "plugins": [{"name": "http", "type": "MANAGEMENT-HTTP"}]}  # fmt: skip
    container = start(
        tag(QPID_IMAGE),
        environment={"QPID_JAVA_MEM": "-Xmx128m", "QPID_JAVA_GC": "-XX:+UseSerialGC"},
        volumes=mount(tmp_path, "/mnt/shared/config", {"config.json": json.dumps(config)}),
        network_mode="none",
    )
    wait_healthy(container, 25680)
    command = do(container, "cat", "/proc/1/cmdline").split("\0")
    assert command[0].endswith("java")
    assert {"-Xmx128m", "-XX:+UseSerialGC", "org.apache.qpid.server.Main"} <= set(command)
    assert stop(container) < STOP_S


@pytest.mark.parametrize("system", ["kafka", pytest.param("qpid", marks=pytest.mark.extended)])
def test_a_container_without_its_configuration_says_so(
    system: str, image: Callable[..., standin.Image], start: Callable[..., Any]
) -> None:
    """Kafka's image has a default; the one that is ours asks for a mount."""
    found = image(system)
    if system == "kafka":
        wait_healthy(start(found.tag, environment={"KAFKA_HEAP_OPTS": "-Xmx256m"}), 9092)
        return
    container = start(found.tag, network_mode="none")
    assert container.wait(timeout=READY_S)["StatusCode"] == 1
    assert "mount a folder" in tail(container)


def test_a_stand_in_is_built_once_and_an_official_image_is_left_alone(
    engine: Any, image: Callable[..., standin.Image]
) -> None:
    spec = spec_of("qpid")
    first = image("qpid")
    if first.kind == "stand-in":
        said: list[str] = []
        assert (
            standin.provide(engine, spec, on_progress=lambda text, share: said.append(text))
            == first
        )
        assert not any("building" in text for text in said)
        assert first.recipe


def test_an_image_without_our_label_is_never_replaced(
    engine: Any, image: Callable[..., standin.Image], start: Callable[..., Any]
) -> None:
    spec = spec_of("qpid")
    ours = image("qpid")
    theirs = "brokerstorm/test-official:1"
    container = start(ours.tag, entrypoint=["true"], network_mode="none")
    container.wait(timeout=READY_S)
    engine.api.commit(
        container.id, *theirs.split(":"), changes=[f"LABEL {standin.STANDIN_LABEL}=no"]
    )
    try:
        before = engine.api.inspect_image(theirs)["Id"]
        services = tuple(each.model_copy(update={"image": theirs}) for each in spec.services)
        assert standin.provide(engine, replace(spec, services=services)).kind == "official"
        assert engine.api.inspect_image(theirs)["Id"] == before
    finally:
        engine.images.remove(theirs, force=True)
