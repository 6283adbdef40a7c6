"""The Docker checks of `doctor`: each names a remedy, and a run ends with exit code 4."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import spec_of
from harness.clusters.docker import engine as docker_engine
from harness.clusters.docker import images as docker_images
from harness.clusters.images import base_image, compose_plugin, standin
from harness.doctor import docker, machine
from harness.errors import EnvironmentNotReady, Exit


class Engine:
    """What the checks ask of an engine, with images by tag (its labels)."""

    def __init__(self, images: dict[str, dict[str, str]], root: str = "/") -> None:
        self.images, self.root, self.api, self.closed = images, root, self, False

    def version(self) -> dict[str, str]:
        return {"Version": "20.10.24", "ApiVersion": "1.41"}

    def info(self) -> dict[str, str]:
        return {"DockerRootDir": self.root}

    def inspect_image(self, tag: str) -> dict[str, Any]:
        from docker.errors import ImageNotFound

        if tag not in self.images:
            raise ImageNotFound(f"no such image: {tag}")
        return {"Size": 400 * 2**20, "Config": {"Labels": self.images[tag]}}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def docker_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` that has the compose plugin; its folder is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    program = folder / "docker"
    program.write_text("#!/bin/sh\necho 2.40.3\n")
    program.chmod(0o755)
    return program


def found(system: str = "kafka", version: str = "") -> dict[str, machine.Need]:
    return {check.name: check for check in docker.docker_checks(system, version)}


def test_no_engine(docker_command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    checks = found()
    assert not checks["docker engine"].ok
    assert f"{tmp_path}/none.sock" in checks["docker engine"].text
    assert "start it" in checks["docker engine"].remedy
    assert checks["compose plugin"].ok  # the rest is looked at all the same
    with pytest.raises(EnvironmentNotReady, match="docker engine") as caught:
        machine.require(checks.values())
    assert caught.value.exit_code == Exit.ENVIRONMENT


def test_an_engine_that_is_not_installed(
    docker_command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(docker_engine, "_DEFAULT_SOCKET", "/nowhere/docker.sock")
    monkeypatch.setattr(docker.shutil, "which", lambda name, path=None: None)
    assert "apt install docker.io" in found()["docker engine"].remedy


def test_an_engine_that_is_only_an_option_may_be_missing(
    docker_command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    checks = docker.docker_checks("kafka", needed=False)
    assert not checks[0].ok
    machine.require(checks)


def test_a_socket_that_nobody_serves(
    docker_command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    assert "no Docker engine answers" in found()["docker engine"].text


def test_no_permission_on_the_socket(
    docker_command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        path.chmod(stat.S_IRUSR)
        monkeypatch.setattr(os, "access", lambda *asked: False)  # root may always
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        check = found()["docker engine"]
    assert "no permission" in check.text
    assert "usermod -aG docker" in check.remedy


def test_no_docker_command(docker_command: Path) -> None:
    docker_command.unlink()
    check = found()["compose plugin"]
    assert not check.ok
    assert "not on the PATH" in check.text
    assert "docker.io" in check.remedy


@pytest.mark.parametrize(
    "script",
    ["echo 'unknown command' >&2; exit 1", "echo 'Usage: docker [OPTIONS]'", "exit 0"],
    ids=["refuses", "prints its help", "says nothing"],
)
def test_no_compose_plugin(docker_command: Path, script: str) -> None:
    docker_command.write_text(f"#!/bin/sh\n{script}\n")
    check = found()["compose plugin"]
    assert not check.ok
    assert "no compose plugin" in check.text
    assert "fetch --images" in check.remedy


def test_the_users_own_plugin_comes_first_and_ours_is_found_by_a_folder(
    docker_command: Path,
) -> None:
    assert compose_plugin.find().environment is os.environ
    folder = compose_plugin.plugin_folder()
    docker_command.write_text(f'#!/bin/sh\n[ "$DOCKER_CONFIG" = "{folder}" ] && echo v5.5.1\n')
    plugin = compose_plugin.find()
    assert plugin.environment["DOCKER_CONFIG"] == str(folder)
    assert "5.5.1" in plugin.text
    assert "DOCKER_CONFIG" not in os.environ


def test_a_plugin_that_cannot_be_built_says_why(
    docker_command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_command.write_text("#!/bin/sh\nexit 1\n")
    go = docker_command.with_name("go")
    go.write_text("#!/bin/sh\necho 'go: github.com/x@v1: dial tcp: no route to host' >&2; exit 1\n")
    go.chmod(0o755)
    monkeypatch.setattr(
        compose_plugin.go_tool, "find_go", lambda: compose_plugin.go_tool.Go(str(go), "go1.26")
    )
    said: list[str] = []
    with pytest.raises(EnvironmentNotReady, match="no route to host") as caught:
        compose_plugin.ensure(on_progress=lambda text, share: said.append(text))
    assert caught.value.exit_code == Exit.ENVIRONMENT
    assert "docker-compose-plugin" in caught.value.hint
    assert any("building the compose plugin" in text for text in said)
    assert not list(compose_plugin.plugin_folder().rglob("docker-compose*"))  # no half a plugin


def test_no_image_and_no_registry(docker_command: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine({})

    def refuse(tag: str) -> None:
        raise EnvironmentNotReady(f"no registry gives {tag}")

    monkeypatch.setattr(docker_engine, "connect", lambda: engine)
    monkeypatch.setattr(docker_images, "can_pull", refuse)
    check = found("pulsar", "4.0.8")["images"]
    assert not check.ok
    assert "apachepulsar/pulsar:4.0.8" in check.text
    assert "fetch --images --system pulsar --version 4.0.8" in check.remedy
    assert engine.closed


def test_a_stand_in_built_before_its_jars_were_resolved_is_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the jars has its final name only when they are resolved."""
    spec = spec_of("kafka")
    folders = {False: tmp_path / "kafka", True: tmp_path / "kafka-resolved"}
    engine, resolved, builds = Engine({}), [False], []

    def resolve(*_: Any, **__: Any) -> Path:
        resolved[0] = True
        return folders[True]

    def build(client: Any, tag: str, *details: Any) -> None:
        recipe = details[-1]
        builds.append(recipe)
        engine.images[tag] = {standin.STANDIN_LABEL: "true", standin.RECIPE_LABEL: recipe}

    monkeypatch.setattr(base_image, "provide", lambda *_: "base:1")
    monkeypatch.setattr(standin.artifacts, "jars_folder", lambda _: folders[resolved[0]])
    monkeypatch.setattr(standin.artifacts, "resolve", resolve)
    monkeypatch.setattr(standin, "_build", build)
    first = standin.provide(engine, spec)
    assert standin.provide(engine, spec) == first
    assert builds == [first.recipe]


def test_a_version_without_containers_needs_no_image(
    docker_command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "connect", lambda: Engine({}))
    check = found("pulsar", "2.8.1")["images"]
    assert (check.ok, check.remedy) == (False, "use --runtime process")
    assert "one address of a broker only" in check.text


@pytest.mark.parametrize(
    ("labels", "kind"),
    [({}, "official"), ({standin.STANDIN_LABEL: "true"}, "stand-in"), (None, "official")],
)
def test_an_image_says_what_it_is(
    docker_command: Path, monkeypatch: pytest.MonkeyPatch, labels: dict[str, str], kind: str
) -> None:
    tag = standin.image_of(spec_of("kafka"))
    monkeypatch.setattr(docker_engine, "connect", lambda: Engine({tag: labels}))
    checks = found()
    assert checks["images"].text == f"{tag}: {kind}, 400 MB"
    assert all(check.ok for check in checks.values())


def test_an_image_that_a_registry_gives_is_no_problem(
    docker_command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "connect", lambda: Engine({}))
    monkeypatch.setattr(docker_images, "can_pull", lambda tag: None)
    assert found()["images"].ok


def test_a_full_disk_of_the_engine(
    docker_command: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "connect", lambda: Engine({}, str(tmp_path)))
    monkeypatch.setattr(docker_images, "can_pull", lambda tag: None)
    monkeypatch.setattr(docker, "ENGINE_DISK_MB", 10**9)
    check = found()["disk of the docker engine"]
    assert not check.ok
    assert str(tmp_path) in check.text
    assert "docker system df" in check.remedy


def test_an_engine_elsewhere_has_a_disk_that_we_cannot_see(
    docker_command: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "connect", lambda: Engine({}, "/no/such/folder"))
    monkeypatch.setattr(docker_images, "can_pull", lambda tag: None)
    assert found()["disk of the docker engine"].ok


def test_a_docker_run_needs_java_for_spark_only() -> None:
    kafka = ("kafka", "", "")
    names = {check.name for check in machine.checks(kafka, runtime="docker")}
    assert "java" in names
    assert "broker jars" not in names
    assert "java" not in {
        check.name for check in machine.checks(kafka, runtime="docker", spark=False)
    }


APT = {
    "apt-get": "http://one/debian/|{0}|main|\nhttp://one/debian/|{0}|contrib|/etc/key.gpg\n"
    "http://one/debian/|{0}-updates|main|\nhttps://other/|stable|main|\nhttp://one/debian/|{0}-backports|main|\n",
    "apt-cache": "x:\n  Installed: (none)\n  Candidate: 17.0.1\n",
}


def test_package_sources_are_those_of_apt_for_this_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        base_image.platform, "freedesktop_os_release", lambda: {"VERSION_CODENAME": "sid"}
    )
    monkeypatch.setattr(base_image, "_apt", lambda *command: APT[command[0]].format("sid"))
    assert base_image.package_sources() == (
        "sid",
        [
            "deb [signed-by=/etc/key.gpg] http://one/debian/ sid contrib",
            "deb http://one/debian/ sid main",
            "deb http://one/debian/ sid-updates main",
        ],
    )
    monkeypatch.setattr(
        base_image.platform, "freedesktop_os_release", lambda: {"VERSION_CODENAME": "other"}
    )
    with pytest.raises(EnvironmentNotReady, match="no package source of other"):
        base_image.package_sources()


def test_the_oldest_java_that_is_new_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {"openjdk-21-jre-headless"}
    monkeypatch.setattr(
        base_image,
        "_apt",
        lambda *command: f"Candidate: {'1' if command[-1] in have else '(none)'}",
    )
    assert base_image.java_package(17) == "openjdk-21-jre-headless"
    with pytest.raises(EnvironmentNotReady, match="no Java 25"):
        base_image.java_package(25)


def test_a_machine_without_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="no apt") as caught:
        base_image.package_sources()
    assert "--runtime process" in caught.value.hint


@pytest.mark.parametrize(
    ("said", "text", "hint"),
    [
        (
            "Err:1 http://m bookworm\nE: Unable to fetch: Could not resolve 'm'",
            "Could not resolve",
            "apt-get update",
        ),
        ("E: unable to pick chroot mode automatically", "chroot mode", "needs root"),
        ("I: fine\nE: write failed: No space left on device", "No space left", "TMPDIR"),
        ("", "said nothing", "fetch --images"),
    ],
    ids=["no network", "no root", "disk full", "silent"],
)
def test_a_base_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, text: str, hint: str
) -> None:
    program = tmp_path / "mmdebstrap"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'X'\n{said}\nX\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(EnvironmentNotReady, match=text) as caught:
        base_image._make(
            "sid", ["deb x sid main"], "java", tmp_path / "base.tar", lambda line: None
        )
    assert hint in caught.value.hint


def test_no_mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="mmdebstrap is missing") as caught:
        base_image._make("sid", [], "java", tmp_path / "base.tar", lambda line: None)
    assert "apt install mmdebstrap" in caught.value.hint


def test_too_little_room_to_build(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match="needed to build an image"):
        base_image.room(tmp_path, 10**9)


def test_a_stand_in_changes_with_its_recipe(tmp_path: Path) -> None:
    from dataclasses import replace

    spec = spec_of("kafka")
    copy = replace(spec, file=tmp_path / "compose.yaml")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "Dockerfile").write_text("FROM scratch\n")
    first = standin._recipe(copy, "base:1")
    assert standin._recipe(copy, "base:1") == first
    assert standin._recipe(copy, "base:2") != first
    assert standin._recipe(replace(copy, jars=spec_of("kafka", "4.1.1").jars), "base:1") != first
    (tmp_path / "images" / "Dockerfile").write_text("FROM other\n")
    assert standin._recipe(copy, "base:1") != first
