"""A disk without power: it keeps what was synced, and loses what POSIX lets it lose. Needs FUSE,
Go, root."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clusters.limits.volumes import is_mounted
from harness.clusters.power.disks import DISK, FOLDERS, PROGRAM, PowerDisks, why_not
from harness.errors import EnvironmentNotReady
from harness.protocols.power import Unsynced

pytestmark = [
    pytest.mark.skipif(bool(why_not(DISK)), reason=why_not(DISK)),
    pytest.mark.skipif(not PROGRAM.readiness()[0], reason=PROGRAM.readiness()[1]),
    pytest.mark.long,
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "cluster" / "node-1" / "data"
    folder.mkdir(parents=True)
    (folder / "formatted").write_bytes(b"from before")
    return folder


@pytest.fixture
def disks(data: Path) -> Iterator[PowerDisks]:
    made = PowerDisks(
        f"power-{os.getpid()}", data.parents[1], {"node-1": data}, frozenset({DISK, FOLDERS})
    )
    made.start()
    yield made
    made.down()
    assert not is_mounted(data)


def lose(disks: PowerDisks, *, torn: bool = False, folders: bool = False) -> Unsynced:
    return disks.drop("node-1", torn=torn, folders=folders, seed=1)


def write(path: Path, content: bytes, *, at: int = 0, flags: int = 0, sync: bool = False) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
    os.pwrite(handle, content, at)
    if sync:
        os.fdatasync(handle)
    os.close(handle)


def test_bytes_are_kept_once_they_are_synced(disks: PowerDisks, data: Path) -> None:
    write(data / "log", b"a" * 10_000, sync=True)
    write(data / "log", b"b" * 5_000, at=10_000)  # behind what was synced
    write(data / "log", b"c" * 100, at=4_090)  # across a block of it
    write(data / "direct", b"d" * 10, flags=os.O_DSYNC)
    write(data / "never", b"e" * 10)
    write(data / "formatted", b"other words", flags=os.O_TRUNC)
    lost = lose(disks)
    assert (lost.files, lost.bytes, lost.names) == (3, 5_121, ("log", "formatted", "never"))
    assert (data / "log").read_bytes() == b"a" * 10_000
    assert (data / "direct").read_bytes() == b"d" * 10
    assert (data / "never").read_bytes() == b""
    assert (data / "formatted").read_bytes() == b"from before"
    assert lose(disks) == Unsynced()


def test_a_cut_and_what_is_mapped_are_undone(disks: PowerDisks, data: Path) -> None:
    write(data / "index", b"a" * 9_000, sync=True)
    with (data / "index").open("r+b") as file:
        with mmap.mmap(file.fileno(), 9_000) as mapped:
            mapped[:4] = b"kept"
            mapped.flush()  # msync
            mapped[4:8] = b"gone"
        file.truncate(100)
    lose(disks)
    assert (data / "index").read_bytes() == b"kept" + b"a" * 8_996


def test_a_torn_tail_is_part_of_a_block(disks: PowerDisks, data: Path) -> None:
    write(data / "log", b"a" * 1_000, sync=True)
    write(data / "log", b"b" * 50_000, at=1_000)
    lose(disks, torn=True)
    content = (data / "log").read_bytes()
    assert 1_000 <= len(content) <= 1_000 + 4_096
    assert content == b"a" * 1_000 + b"b" * (len(content) - 1_000)


def test_names_are_kept_unless_folders_lose_them(disks: PowerDisks, data: Path) -> None:
    write(data / "checkpoint.tmp", b"new", sync=True)
    (data / "checkpoint.tmp").rename(data / "checkpoint")
    (data / "formatted").unlink()
    (data / "orders-0").mkdir()
    assert lose(disks).entries == 0
    assert sorted(os.listdir(data)) == ["checkpoint", "orders-0"]
    assert (data / "checkpoint").read_bytes() == b"new"


def test_folders_lose_what_was_done_in_them_since_their_sync(disks: PowerDisks, data: Path) -> None:
    write(data / "old", b"old", sync=True)
    (data / "topic").mkdir()
    folder = os.open(data, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    write(data / "topic" / "log", b"never seen again", sync=True)
    (data / "topic").rename(data / "topic.deleted")
    write(data / "new", b"new", sync=True)
    (data / "new").rename(data / "old")
    (data / "formatted").unlink()
    assert lose(disks, folders=True).entries == 5
    assert sorted(os.listdir(data)) == ["formatted", "old", "topic"]
    assert os.listdir(data / "topic") == []
    assert (data / "old").read_bytes() == b"old"


def test_a_disk_in_use_loses_nothing(disks: PowerDisks, data: Path) -> None:
    with (data / "formatted").open("rb"), pytest.raises(EnvironmentNotReady, match="is in use"):
        lose(disks)
    lose(disks)


def test_a_cluster_without_the_need_has_none(data: Path) -> None:
    bare = PowerDisks("none", data.parents[1], {"node-1": data}, frozenset())
    bare.start()
    assert not is_mounted(data)
    with pytest.raises(EnvironmentNotReady, match=f"started without {DISK}"):
        lose(bare)
