"""Files of a container that are damaged: copied by its engine's archives, and put back as they were
owned."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.clusters.docker import data_files
from harness.clusters.nodes.file_damage import damage_files
from harness.errors import EnvironmentNotReady
from harness.protocols.files import DamagedPlace

KINDS = {"log": ("*.blk",)}
MOUNT = "/var/lib/data"
TEXT = bytes(range(1, 251)) * 4000


class Archives:
    """A container with files that belong to user 1000, as an engine packs and unpacks them."""

    name = "nats-1"

    def __init__(self) -> None:
        self.files = {"a/1.blk": TEXT, "a/index.db": TEXT, "b/2.blk": TEXT[:70_000]}
        self.put: list[tarfile.TarInfo] = []
        self.is_lossy = False
        self.gives: int | None = None

    def get_archive(self, path: str, *, chunk_size: int) -> tuple[Iterator[bytes], dict[str, Any]]:
        below = path.removeprefix(MOUNT).strip("/")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, data in self.files.items():
                if name.startswith(below):
                    member = tarfile.TarInfo(
                        f"data/{name}" if not below else name.rpartition("/")[2]
                    )
                    member.uid, member.gid, member.mode, member.size = 1000, 7, 0o640, len(data)
                    archive.addfile(member, io.BytesIO(data))
        whole = packed.getvalue()[: self.gives]
        return (whole[at : at + chunk_size] for at in range(0, len(whole), chunk_size)), {}

    def put_archive(self, path: str, written: Any) -> bool:
        assert path == MOUNT
        with tarfile.open(fileobj=written) as archive:
            for member in archive:
                source = archive.extractfile(member)
                assert source is not None
                self.put.append(member)
                if not self.is_lossy:
                    self.files[member.name] = source.read()
        return True


def damaged(container: Archives, folder: Path, damage: str, places: int) -> list[DamagedPlace]:
    how = {
        "files": "log",
        "damage": damage,
        "places": places,
        "size_bytes": 64,
        "rng": random.Random(3),
    }
    do = partial(damage_files, kinds=KINDS, **how)
    return data_files.damage(
        container, MOUNT, lambda path: path.endswith(".blk"), do, folder=folder
    )


@pytest.mark.parametrize("damage", ["flip", "zero", "cut"])
def test_a_container_has_the_damaged_files_and_nothing_else_changed(
    damage: str, tmp_path: Path
) -> None:
    container = Archives()
    before = dict(container.files)
    places = damaged(container, tmp_path, damage, 5)
    assert places
    for place in places:
        end = place.offset + len(place.before) // 2
        assert before[place.file][place.offset : end].hex() == place.before
        assert container.files[place.file][place.offset : end].hex() == place.after
    changed = {name for name, data in container.files.items() if data != before[name]}
    assert changed == {place.file for place in places} == {member.name for member in container.put}
    assert {(member.uid, member.gid, member.mode) for member in container.put} == {(1000, 7, 0o640)}
    assert list(tmp_path.iterdir()) == [], "no copies are left"


def test_an_engine_that_keeps_the_old_bytes_is_not_believed(tmp_path: Path) -> None:
    container = Archives()
    container.is_lossy = True
    with pytest.raises(EnvironmentNotReady, match=r"blk of nats-1 is not what was put there"):
        damaged(container, tmp_path, "flip", 1)


def test_an_engine_that_breaks_off_is_one_line(tmp_path: Path) -> None:
    container = Archives()
    container.gives = 500_000
    with pytest.raises(
        EnvironmentNotReady, match=r"cannot read /var/lib/data of nats-1: unexpected end"
    ):
        damaged(container, tmp_path, "flip", 1)
    assert list(tmp_path.iterdir()) == []
