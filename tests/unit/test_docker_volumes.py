"""Volumes of containers: refused where there can be none, owned as in the image, gone at the
end."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import runtime_choice, spec_of
from harness.clusters.docker import engine as engine_module
from harness.clusters.docker.runtime import DockerRuntime
from harness.clusters.docker.volumes import BoundVolumes
from harness.clusters.limits import volumes
from harness.clusters.limits.volumes import volumes_below, why_no_volume
from harness.errors import EnvironmentNotReady
from harness.protocols.limits import FillsDisk, SlowsDisk

VOLUME = frozenset({"data-volume"})
needs_root = pytest.mark.skipif(bool(why_no_volume()), reason=f"no volume here: {why_no_volume()}")


class ImageEngine:
    """An engine with one image, whose data folder belongs to user 1000 and group 7."""

    def __init__(self) -> None:
        self.containers = self
        self.created: list[tuple[str, dict[str, str]]] = []
        self.removed = 0

    def create(self, image: str, *, labels: dict[str, str]) -> ImageEngine:
        self.created.append((image, labels))
        return self

    def get_archive(self, path: str) -> tuple[Iterator[bytes], dict[str, Any]]:
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w") as archive:
            folder = tarfile.TarInfo(path.rpartition("/")[2])
            folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, 0o2775, 1000, 7
            archive.addfile(folder)
        return iter([written.getvalue()]), {}

    def remove(self, *, force: bool, v: bool) -> None:
        self.removed += 1


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[BoundVolumes]:
    found = BoundVolumes("run-1", tmp_path / "a $HOME", spec_of("kafka"), ImageEngine(), VOLUME)
    yield found
    found.drop()
    assert volumes_below(tmp_path) == []


def test_containers_have_the_abilities() -> None:
    runtime = DockerRuntime("r", Path("/x"), 9, spec_of("kafka"), None)
    assert isinstance(runtime, FillsDisk)
    assert isinstance(runtime, SlowsDisk)
    assert runtime.gives >= {"data-volume", "slow-volume"}
    with pytest.raises(EnvironmentNotReady, match="this cluster was started without data-volume"):
        runtime.fill_disk("kafka-1")


def test_only_services_that_store_something_get_one(tmp_path: Path) -> None:
    found = BoundVolumes("r", tmp_path, spec_of("pulsar", topology="bookies-3"), None, VOLUME)
    assert sorted(found.limits.volumes) == ["bookie-1", "bookie-2", "bookie-3", "zookeeper"]


def test_a_cluster_without_the_need_has_none(tmp_path: Path) -> None:
    found = BoundVolumes("r", tmp_path, spec_of("kafka"), None, frozenset({"peer-cuts"}))
    assert found.make() == []
    found.check({})
    found.drop()
    assert list(tmp_path.iterdir()) == []


def test_they_are_refused_before_the_run_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of("kafka")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        EnvironmentNotReady,
        match="a fault of this scenario needs data-volume: mounting a volume needs root",
    ) as caught:
        DockerRuntime.require(VOLUME)
    assert "runtimes.md" in caught.value.hint
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.7:2375")
    assert "another machine" in runtime_choice.choose("auto", spec, needs=VOLUME, offline=True).why


def test_a_slow_one_needs_groups_that_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "why_no_volume", lambda: "")
    monkeypatch.setattr(volumes, "throttle", lambda: None)
    with pytest.raises(
        EnvironmentNotReady, match="needs slow-volume: this system has no control groups"
    ):
        DockerRuntime.require(frozenset({"slow-volume"}))


@needs_root
def test_they_belong_to_the_user_of_the_image_and_replace_the_engine_s(bound: BoundVolumes) -> None:
    (override,) = bound.make()
    services = json.loads(override.read_text())["services"]
    assert sorted(services) == ["kafka-1", "kafka-2", "kafka-3"]
    (mount,) = services["kafka-2"]["volumes"]
    data = bound.limits.volume("kafka-2").data
    assert (mount["type"], mount["target"]) == ("bind", "/var/lib/kafka/data")
    assert mount["source"].replace("$$", "$") == str(data)
    assert "$$HOME" in mount["source"]
    found = data.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1000, 7, 0o775)
    assert os.path.ismount(data)
    engine = bound._client
    assert engine.created == [("apache/kafka:4.1.2", engine_module.labels_of("run-1"))]
    assert engine.removed == 1


@needs_root
def test_a_container_that_keeps_its_data_elsewhere_is_not_believed(bound: BoundVolumes) -> None:
    bound.make()
    # this process sees no /var/lib/kafka/data
    ours = dict.fromkeys(bound.limits.volumes, os.getpid())
    with pytest.raises(EnvironmentNotReady, match="data of kafka-1"):
        bound.check(ours)
    with pytest.raises(EnvironmentNotReady, match="kafka-1 is not on this machine") as caught:
        bound.check(dict.fromkeys(bound.limits.volumes))
    assert "this very machine" in caught.value.hint
