"""Removal of a run's containers, networks and volumes, and what of it is found later."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import leftovers
from harness.clusters.docker import engine as docker_engine
from harness.clusters.layout import addresses
from harness.clusters.nodes.processes import ProcessId
from harness.errors import EnvironmentNotReady, HealError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path / "state"))
    return tmp_path


class Thing:
    """A container, network or volume of a made-up engine."""

    def __init__(
        self, engine: Engine, kind: str, name: str, *, stuck: bool = False, owner: str | None = None
    ) -> None:
        labels = docker_engine.labels_of("run-1")
        if owner is not None:
            labels[docker_engine.OWNER_LABEL] = owner
        self.engine, self.kind, self.name, self.stuck = engine, kind, name, stuck
        self.id = self.name
        self.attrs = {
            "State": "running",
            "Names": [f"/{name}"],
            "Labels": {**labels, docker_engine.SERVICE_LABEL: name},
        }

    def logs(
        self, *, stream: bool, follow: bool, stdout: bool = True, stderr: bool = True
    ) -> list[bytes]:
        return [f"{self.name} out\n".encode()] if stdout else []

    def remove(self, **how: bool) -> None:
        from docker.errors import APIError

        if self.stuck:
            raise APIError("in use", explanation=f"{self.name} is in use")
        if self.kind != "container" and any(
            each.kind == "container" for each in self.engine.things
        ):
            raise APIError("in use", explanation="has active endpoints")
        self.engine.removed.append((self.name, dict(how)))
        self.engine.things.remove(self)


class Engine:
    def __init__(self) -> None:
        self.things: list[Thing] = []
        self.removed: list[tuple[str, dict[str, bool]]] = []
        self.containers = self.networks = self.volumes = self

    def add(self, kind: str, name: str, **how: Any) -> None:
        self.things.append(Thing(self, kind, name, **how))


class Kind:
    def __init__(self, engine: Engine, kind: str) -> None:
        self.engine, self.kind = engine, kind

    def list(self, **how: Any) -> list[Thing]:
        asked = how["filters"]["label"]
        wanted = {asked} if isinstance(asked, str) else set(asked)
        return [
            each
            for each in self.engine.things
            if each.kind == self.kind
            and wanted <= {f"{k}={v}" for k, v in each.attrs["Labels"].items()}
        ]


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


def test_what_containers_said_is_kept_where_processes_write_theirs(
    engine: Any, tmp_path: Path
) -> None:
    engine.add("container", "kafka-1")
    docker_engine.keep_logs(engine, "run-1", tmp_path)
    assert (tmp_path / "kafka-1" / "logs" / "stdout.log").read_text() == "kafka-1 out\n"
    assert (tmp_path / "kafka-1" / "logs" / "stderr.log").read_text() == ""
    docker_engine.keep_logs(engine, "run-1", tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_what_stays_is_named_with_the_engine_s_words(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.add("network", "n", stuck=True)
    monkeypatch.setattr(docker_engine, "_REMOVE_S", 0.2)
    with pytest.raises(
        HealError, match=r"1 containers, networks or volumes of run-1 .*: n is in use"
    ):
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
    assert (
        "1 containers (kafka-1), 1 networks (n), 1 volumes (v), addresses 127.0." in left.describe()
    )
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


def test_containers_of_a_run_without_a_claim_are_left_alone_until_it_is_named(
    found_engine: Any,
) -> None:
    assert found_here() == []
    assert [one.run_id for one in leftovers.find("run-1")] == ["run-1"]


@pytest.mark.parametrize(
    ("owner", "why", "command"),
    [
        ("1:/home/a/state", "belong to user 1", "that user can run `brokerstorm clean run-1`"),
        (
            f"{os.geteuid()}:/a b",
            "belong to the state folder /a b",
            "`BROKERSTORM_STATE='/a b' brokerstorm clean run-1` looks after it",
        ),
        ("", "have no owner", "`docker rm -f -v theirs` removes them"),
        ("1:/\033[2J", "have no owner", "`docker rm -f -v theirs` removes them"),
    ],
)
def test_containers_of_another_user_or_state_folder_are_said_and_not_removed(
    engine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: str, why: str, command: str
) -> None:
    """Anybody who uses the engine can start a container with the run id of somebody else."""
    engine.close = lambda: None
    monkeypatch.setattr(docker_engine, "connect", lambda: engine)
    engine.add("container", "theirs", owner=owner)
    assert leftovers.find("run-1") == []
    (left,) = leftovers.find_others("run-1")
    assert left.describe() == f"run-1: 1 containers (theirs) {why}; {command}"

    addresses.claim("run-1", tmp_path, [], runtime="docker")
    let_its_harness_die()
    engine.add("container", "ours")
    assert [one.what for one in leftovers.find_others() if "theirs" in one.why] == ["run-1"]
    leftovers.remove(found_here())
    assert [thing.name for thing in engine.things] == ["theirs"]


def test_containers_that_cannot_be_asked_for_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/docker.sock")
    addresses.claim("run-1", tmp_path / "1", [], runtime="docker")
    let_its_harness_die()
    (left,) = found_here()
    assert "run-1: containers (no Docker engine: there is no /no/such/docker.sock), addresses" in (
        left.describe()
    )
    without = leftovers.Leftover(
        "run-2", claims=(replace(left.claims[0], run_id="run-2", runtime="process"),)
    )
    released: list[str] = []
    monkeypatch.setattr(leftovers.addresses, "release", released.append)
    with pytest.raises(EnvironmentNotReady, match="no Docker engine"):
        leftovers.remove([left, without])
    assert released == ["run-2"], "what needs no engine is gone all the same"
    assert [claim.run_id for claim in addresses.claims()] == ["run-1"]


def test_a_block_of_a_run_with_containers_is_not_given_out(tmp_path: Path) -> None:
    block = addresses.claim("with-containers", tmp_path, [], runtime="docker")
    let_its_harness_die()
    assert addresses._held_by_nodes(lambda: {"with-containers"}) == {block}
    assert addresses._held_by_nodes(set) == set()


class DeadEngine:
    """An engine that was stopped while a run used it."""

    def __init__(self) -> None:
        self.containers = self.networks = self.volumes = self

    def list(self, **how: Any) -> list[Any]:
        from requests.exceptions import ConnectionError

        try:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except OSError as error:
            raise ConnectionError(("Connection aborted.", error)) from error


def test_an_engine_that_went_away_is_the_reason_and_not_what_it_caused(tmp_path: Path) -> None:
    """A cluster is taken down because its brokers do not answer: that is not why it cannot be."""
    docker_engine.keep_logs(DeadEngine(), "run-1", tmp_path)
    try:
        raise EnvironmentNotReady("no broker answers at its admin endpoint")
    except EnvironmentNotReady:
        with pytest.raises(HealError) as caught:
            docker_engine.remove(DeadEngine(), "run-1")
    assert str(caught.value) == (
        "cannot remove what run-1 has in the Docker engine:"
        " the Docker engine does not answer (No such file or directory)"
    )
    assert caught.value.hint == "once the engine runs again, `brokerstorm clean` removes it"
