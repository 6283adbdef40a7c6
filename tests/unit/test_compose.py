"""The compose reader and the templates: what is accepted, what is refused and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.clusters.layout.compose import compose_file, read_compose, release_key
from harness.clusters.layout.node_layout import overlay, render
from harness.errors import UsageError

KAFKA = compose_file("kafka")


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = KAFKA.read_text()
    assert old in text
    path = tmp_path / "compose.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


def test_the_kafka_file_has_three_combined_nodes_from_the_default_version() -> None:
    spec = read_compose(KAFKA)
    assert (spec.system, spec.version, spec.java) == ("kafka", "4.1.2", 17)
    assert [(s.name, s.number) for s in spec.services] == [
        ("kafka-1", 1),
        ("kafka-2", 2),
        ("kafka-3", 3),
    ]
    assert all(s.roles == ["broker", "controller"] for s in spec.services)
    assert len(set(spec.ports.values())) == len(spec.ports) == 4
    assert all(template.is_file() for s in spec.services for template in s.templates.values())


@pytest.mark.parametrize(
    ("version", "log_backend"),
    [
        ("3.6.2", "slf4j-reload4j"),
        ("3.9.1", "slf4j-reload4j"),
        ("4.0.0", "log4j-core"),
        ("4.4.0", "log4j-core"),
    ],
)
def test_coordinates_follow_the_version(version: str, log_backend: str) -> None:
    coordinates = read_compose(KAFKA, version=version).artifacts.coordinates
    assert coordinates[0] == f"org.apache.kafka:kafka_2.13:{version}"
    assert any(log_backend in coordinate for coordinate in coordinates)


def test_a_version_that_is_too_old_names_the_oldest() -> None:
    with pytest.raises(UsageError, match=r"kafka 2\.8\.2 is older") as caught:
        read_compose(KAFKA, version="2.8.2")
    assert "3.5" in caught.value.hint


@pytest.mark.parametrize("version", ["latest", "4", "4.x", "../4.1.2", "4.1.2; rm"])
def test_a_version_that_is_no_number_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="not a version number"):
        release_key(version)


def test_an_unknown_system_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="unknown system 'kafak'") as caught:
        compose_file("kafak")
    assert "kafka" in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("stop_grace_period: 30s", "restart: always", r"services\.kafka-1\.restart"),
        ("    hostname: kafka-1", "    hostnam: kafka-1", "did you mean hostname"),
        ("  main: kafka.Kafka", "  mian: kafka.Kafka", "did you mean main"),
        ("      java: 17", "      jdk: 17", r"x-brokerstorm\.releases\[0\]\.jdk"),
        ("  system: kafka", "  sistem: kafka", r"x-brokerstorm\.sistem"),
        ("services:", "configs: {}\nservices:", "configs"),
        ("  main: kafka.Kafka\n", "", "kafka-1.x-brokerstorm.main: is missing"),
        ("${KAFKA_VERSION}", "${KAFKA_VERSIONS}", "KAFKA_VERSIONS"),
        ("services:", "services: [", "not valid YAML"),
    ],
)
def test_what_is_not_supported_is_an_error_with_file_and_key(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    path = changed(tmp_path, old, new)
    with pytest.raises(UsageError, match=said) as caught:
        read_compose(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_compose(tmp_path / "nowhere.yaml")


def node(number: int) -> dict[str, object]:
    ports = read_compose(KAFKA).ports
    at = {name: f"127.0.9.{number}:{port}" for name, port in ports.items()}
    roles = ("broker", "controller") if number < 4 else ("broker",)
    who = {"name": f"kafka-{number}", "number": number, "roles": roles}
    return {**who, "bind": at, "advertised": at, "data": f"/d/{number}"}


def server_properties(
    version: str, settings: dict[str, object] | None = None, of: int = 2
) -> dict[str, str]:
    spec = read_compose(KAFKA, version=version)
    template = spec.services[1].templates["server.properties"]
    values = {
        "node": node(of),
        "nodes": [node(n) for n in (1, 2, 3, 4)],
        "version": version,
        "release": release_key(version),
        "profiles": spec.profiles,
    }
    text = render(template, values, settings, reserved=spec.reserved)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = [tuple(line.split("=", 1)) for line in lines]
    assert len({key for key, _ in pairs}) == len(pairs), "a key is there twice"
    return dict(pairs)  # type: ignore[arg-type]


def test_each_endpoint_has_its_own_listener_and_the_quorum_is_static() -> None:
    properties = server_properties("4.1.2")
    assert properties["node.id"] == "2"
    assert properties["controller.quorum.voters"].count("@") == 3
    listeners = dict(part.split("://") for part in properties["listeners"].split(","))
    assert set(listeners) == {"CLIENT", "PEER", "ADMIN", "CONTROLLER"}
    assert len(set(listeners.values())) == 4
    assert properties["inter.broker.listener.name"] == "PEER"
    assert "CONTROLLER" in properties["advertised.listeners"]
    assert "CONTROLLER" not in server_properties("3.8.1")["advertised.listeners"]


def test_a_broker_that_joins_is_no_controller() -> None:
    spec = read_compose(KAFKA, profiles=frozenset({"spare-broker"}))
    assert [service.name for service in spec.nodes if "controller" not in service.roles] == [
        "kafka-4"
    ]
    properties = server_properties("4.1.2", of=4)
    assert properties["process.roles"] == "broker"
    assert "4@" not in properties["controller.quorum.voters"]
    for key in ("listeners", "advertised.listeners"):
        assert "CONTROLLER" not in properties[key]


def test_settings_unknown_to_old_brokers_are_left_out_for_them() -> None:
    assert not any(key.startswith("share.") for key in server_properties("3.6.2"))
    assert "share.coordinator.state.topic.min.isr" in server_properties("4.0.0")


def test_the_users_settings_replace_or_extend_the_template() -> None:
    settings = {
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "true",
        "num.foo": "7",
    }
    properties = server_properties("4.1.2", settings)
    assert properties["min.insync.replicas"] == "1"
    assert properties["unclean.leader.election.enable"] == "true"
    assert properties["num.foo"] == "7"


def test_overlay_touches_only_the_line_of_the_key() -> None:
    text = "# a\na.b=1\na.b.c=2\nxa.b=3\na_b=4\n"
    assert overlay(text, {"a.b": 9}) == "# a\na.b=9\na.b.c=2\nxa.b=3\na_b=4\n"
    assert overlay(text, {"new": "x\\1"}) == text + "new=x\\1\n"


def test_a_setting_of_a_block_goes_into_it() -> None:
    text = "name=x\njetstream {\n  sync_interval=2m\n  store_dir=d\n}\ncluster {\n  name=y\n}\n"
    inside = "jetstream {\n  sync_interval=always\n  store_dir=d\n}"
    assert inside in overlay(text, {"jetstream.sync_interval": "always"})
    assert overlay(text, {"cluster.pool_size": 3}).endswith(
        "cluster {\n  name=y\n  pool_size=3\n}\n"
    )
    assert overlay(text, {"leaf.x": 1}).endswith("}\nleaf.x=1\n"), "no block of that name"


@pytest.mark.parametrize("key", ["node.id", "listeners", "log.dirs", "controller.quorum.voters"])
def test_settings_that_the_runtime_owns_are_refused(key: str) -> None:
    with pytest.raises(UsageError, match=rf"{key} cannot be set"):
        server_properties("4.1.2", {key: "x"})


@pytest.mark.parametrize("settings", [{"a": "1\nlisteners=x"}, {"a b": "1"}, {"": "1"}])
def test_settings_cannot_smuggle_in_lines(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        overlay("x=1\n", settings)
