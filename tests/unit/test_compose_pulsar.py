"""Pulsar's compose file: topologies, an order of the start, jars from a distribution."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from harness.clusters.assembly import assembly_of
from harness.clusters.layout.compose import compose_file, read_compose
from harness.clusters.process_runtime import Launch, ProcessRuntime
from harness.errors import EnvironmentNotReady, UsageError
from harness.protocols.cluster import HasBundles, HasTransfers
from harness.toolchains import jars, java
from harness.toolchains.coordinates import Artifacts
from harness.toolchains.java import Java

PULSAR = compose_file("pulsar")


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = PULSAR.read_text()
    assert old in text
    path = tmp_path / "compose.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


def runtime_of(version: str, topology: str, folder: Path, **config: str) -> ProcessRuntime:
    spec = read_compose(PULSAR, version=version, topology=topology)
    launch = Launch(spec, Java("java", 17, "17"), folder, config)
    return ProcessRuntime("run-1", folder, 9, launch, lambda one, place: None)


def settings(
    version: str, topology: str, node: str, target: str, folder: Path, **config: str
) -> dict[str, str]:
    runtime = runtime_of(version, topology, folder, **config)
    found = next(one for one in runtime.nodes if one.name == node)
    lines = [
        line
        for line in runtime.layout.conf_text(found, target).splitlines()
        if line and line[0] != "#"
    ]
    return dict(line.split("=", 1) for line in lines)


def test_settings_with_a_prefix_are_those_of_bookies(tmp_path: Path) -> None:
    config = {"bookie.journalSyncData": "false", "maxMessageSize": "9"}
    bookie = settings("4.0.8", "small", "bookie-1", "bookkeeper.conf", tmp_path, **config)
    broker = settings("4.0.8", "small", "broker-1", "broker.conf", tmp_path, **config)
    assert (bookie["journalSyncData"], broker["maxMessageSize"]) == ("false", "9")
    assert "maxMessageSize" not in bookie
    assert not {"journalSyncData", "bookie.journalSyncData"} & set(broker)
    with pytest.raises(UsageError, match="journalDirectory cannot be set"):
        settings(
            "4.0.8",
            "small",
            "bookie-1",
            "bookkeeper.conf",
            tmp_path,
            **{"bookie.journalDirectory": "/x"},
        )


def test_java_unpacks_what_it_brings_in_the_node_s_own_folder(tmp_path: Path) -> None:
    """What is killed removes nothing, and /tmp is everybody's."""
    made = runtime_of("4.0.8", "small", tmp_path)
    launch, layout = made._offered[made.spec.asked]
    for node in layout.services.values():
        own = [flag for flag in made._command(launch, node) if flag.startswith("-Djava.io.tmpdir=")]
        assert own == [f"-Djava.io.tmpdir={tmp_path / node.name / 'tmp'}"]
    kept = tmp_path / "bookie-1" / "tmp" / "librocksdbjni.so"
    kept.parent.mkdir(parents=True)
    kept.touch()
    made.down()
    assert not kept.exists()


@pytest.mark.parametrize("version", ["2.8.1", "4.0.8"])
def test_each_process_reads_its_password_of_zookeeper_from_a_file_of_our_user(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path / "state"))
    made = runtime_of(version, "bookies-3", tmp_path / "cluster")
    made.management.keep(made.layout)
    password = made.management.secret_file.read_text()
    for name, service in made.layout.services.items():
        command = made._command(made._offered[made.spec.asked][0], service)
        (file,) = [Path(flag.partition("=")[2]) for flag in command if "auth.login.config" in flag]
        assert password not in " ".join(command)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        section, shown = (
            ("Server", "user_management") if name == "zookeeper" else ("Client", "password")
        )
        assert file.read_text().startswith(f"{section} {{")
        assert f'{shown}="{password}"' in file.read_text()


def test_a_topology_says_which_services_there_are() -> None:
    small, three = read_compose(PULSAR), read_compose(PULSAR, topology="bookies-3")
    assert small.topology == "small"
    assert [s.name for s in small.nodes] == [
        "zookeeper",
        "bookie-1",
        "broker-1",
        "broker-2",
        "broker-3",
    ]
    assert {s.name for s in three.services} - {s.name for s in small.services} == {
        "bookie-2",
        "bookie-3",
    }
    with pytest.raises(UsageError, match="pulsar has no topology 'large'") as caught:
        read_compose(PULSAR, topology="large")
    assert "small, bookies-3" in caught.value.hint


def test_services_start_after_what_they_need() -> None:
    spec = read_compose(PULSAR)
    assert [s.name for s in spec.services][:2] == ["zookeeper", "init"]
    init = next(s for s in spec.services if s.name == "init")
    assert init.once
    assert init.after == {"zookeeper": "service_healthy"}
    assert "init" not in {s.name for s in spec.nodes}
    broker = next(s for s in spec.services if s.name == "broker-2")
    assert broker.after == {"init": "service_completed_successfully"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "{condition: service_healthy}",
            "{condition: healthy}",
            "condition: must be 'service_started'",
        ),
        (
            "{zookeeper: {condition: service_healthy}}",
            "{broker-1: {}}",
            "services depend on each other",
        ),
        (
            "admin: bookie}",
            "admin: books}",
            "bookie-1.x-brokerstorm.endpoints: no port 'books'; there are",
        ),
        ("once: true", "ones: true", "did you mean once"),
    ],
)
def test_what_cannot_be_started_is_an_error(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_compose(changed(tmp_path, old, new))


@pytest.mark.parametrize(
    ("version", "from_archive"),
    [("4.0.8", True), ("3.3.6", True), ("2.8.1", False), ("4.2.4", False)],
)
def test_jars_come_from_where_the_repository_has_them(version: str, from_archive: bool) -> None:
    wanted = read_compose(PULSAR, version=version).artifacts
    assert bool(wanted.archive) is from_archive
    assert wanted.title.endswith(f":{version}")


@pytest.mark.parametrize(
    ("version", "managed"), [("2.8.1", False), ("2.10.2", True), ("3.0.0", True), ("4.2.4", True)]
)
def test_poms_that_exclude_each_other_get_the_versions_of_the_project(
    version: str, managed: bool
) -> None:
    wanted = read_compose(PULSAR, version=version).artifacts
    assert wanted.managed == (f"org.apache.pulsar:pulsar:{version}" if managed else "")


def test_old_and_new_brokers_get_the_settings_they_know(tmp_path: Path) -> None:
    new = settings("4.0.8", "", "broker-2", "broker.conf", tmp_path)
    assert new["metadataStoreUrl"] == "zk:127.0.9.7:12181"
    assert (new["bindAddress"], new["advertisedAddress"]) == ("127.0.9.2", "127.0.9.2")
    assert new["managedLedgerDefaultAckQuorum"] == "1"
    old = settings("2.8.1", "", "broker-2", "broker.conf", tmp_path)
    assert old["zookeeperServers"] == "127.0.9.7:12181"
    assert "metadataStoreUrl" not in old
    assert old["defaultRetentionTimeInMinutes"] == new["defaultRetentionTimeInMinutes"] == "-1"


def test_three_bookies_keep_two_copies_of_an_entry(tmp_path: Path) -> None:
    broker = settings("4.0.8", "bookies-3", "broker-1", "broker.conf", tmp_path)
    found = [
        broker[f"managedLedgerDefault{what}"]
        for what in ("EnsembleSize", "WriteQuorum", "AckQuorum")
    ]
    assert found == ["3", "2", "2"]
    bookie = settings("4.0.8", "bookies-3", "bookie-3", "bookkeeper.conf", tmp_path)
    assert bookie["advertisedAddress"] == "127.0.9.6"
    assert bookie["metadataServiceUri"] == "metadata-store:zk:127.0.9.7:12181"


@pytest.mark.parametrize(("version", "can"), [("2.8.1", False), ("2.10.1", False), ("4.0.8", True)])
def test_only_brokers_that_can_transfer_have_the_ability(
    version: str, can: bool, tmp_path: Path
) -> None:
    admin = assembly_of("pulsar").admin(runtime_of(version, "", tmp_path), lambda name: True)
    assert isinstance(admin, HasBundles)
    assert isinstance(admin, HasTransfers) is can


def test_clients_are_given_brokers_only(tmp_path: Path) -> None:
    nodes = runtime_of("4.0.8", "", tmp_path).nodes
    pulsar = assembly_of("pulsar")
    assert pulsar.bootstrap(nodes) == "pulsar://127.0.9.1:16650,127.0.9.2:16650,127.0.9.3:16650"
    assert pulsar.admin_url(nodes) == "http://127.0.9.1:18080,127.0.9.2:18080,127.0.9.3:18080"


def test_jars_are_unpacked_from_the_lib_folder_of_a_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Copies:
        name = "copies"

        def fetch_archive(self, wanted: Artifacts, target: Path, report: Any) -> Path:
            tree = tmp_path / "tree"
            for name in (
                "lib/a.jar",
                "lib/b.jar",
                "lib/deep/c.jar",
                "examples/d.jar",
                "lib/readme.txt",
            ):
                path = tree / "pulsar-1" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)
            with tarfile.open(target / "x.tar.gz", "w:gz") as tar:
                tar.add(tree / "pulsar-1", arcname="pulsar-1")
            return target / "x.tar.gz"

    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars.maven, "find_maven", Copies)
    folder = jars.resolve(Artifacts((), archive="g:a:1:tar.gz:bin"))
    assert sorted(path.name for path in folder.glob("*.jar")) == ["a.jar", "b.jar"]
    assert not list(folder.glob("*.tar.gz"))

    def damaged(self: Copies, wanted: Artifacts, target: Path, report: Any) -> Path:
        (target / "x.tar.gz").write_bytes(b"no archive")
        return target / "x.tar.gz"

    monkeypatch.setattr(Copies, "fetch_archive", damaged)
    with pytest.raises(EnvironmentNotReady, match="damaged"):
        jars.resolve(Artifacts((), archive="g:a:2:tar.gz:bin"))


def test_brokers_that_need_a_newer_java_say_which(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = read_compose(PULSAR, version="5.0.1").java
    monkeypatch.setattr(java, "_probe", lambda path: Java(path, 17, "17"))
    with pytest.raises(EnvironmentNotReady, match=f"needs Java {needed}") as caught:
        java.find_java(needed)
    assert f"JRE {needed}" in caught.value.hint
    assert "17" not in caught.value.hint


def test_jars_have_one_origin() -> None:
    with pytest.raises(UsageError, match="name one of these"):
        Artifacts(("g:a:1",), archive="g:a:1:tar.gz:bin")
    with pytest.raises(UsageError, match="group:artifact:version:type:classifier"):
        Artifacts((), archive="g:a:1")
