"""A disk without power: it keeps what was synced, and loses what POSIX lets it lose. Needs FUSE,
Go, root."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.clusters.limits.volumes import is_mounted
from harness.clusters.power.disks import DISK, FOLDERS, PROGRAM, PowerDisks, why_not
from harness.errors import EnvironmentNotReady
from harness.protocols.disturbed_disks import Disturbance
from harness.protocols.power import Unsynced
from harness.waiting import wait_until

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
    try:
        os.pwrite(handle, content, at)
        if sync:
            os.fdatasync(handle)
    finally:
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


KINDS = {"unused": ("*.old",), "log": ("*.log",), "index": ("*.index",)}


def test_operations_of_a_kind_of_files_fail_until_it_is_undone(
    disks: PowerDisks, data: Path
) -> None:
    write(data / "a.log", b"kept", sync=True)
    write(data / "a.index", b"kept")
    disturbance = Disturbance("error", ("read", "write", "fsync"), "log", errno="EROFS")
    disks.disturb("node-1", "fault", disturbance, KINDS)
    for flags in (0, os.O_DSYNC):
        with pytest.raises(OSError, match="Read-only"):
            write(data / "a.log", b"lost", flags=flags)
    # what the kernel had of it is read from the disk again
    assert wait_until(lambda: not is_readable(data / "a.log"), 5, every_s=0.01)
    write(data / "a.index", b"more", sync=True)
    met = disks.disturbed("node-1", "fault")
    assert met is not None
    assert (met.met["write"], met.files) == (2, ("a.log",))
    assert met.met["read"] >= 1
    assert disks.calm("node-1", "fault").met["write"] == 2
    assert disks.disturbed("node-1", "fault") is None
    assert is_readable(data / "a.log")
    write(data / "a.log", b"done", sync=True)


def is_readable(path: Path) -> bool:
    try:
        return path.read_bytes() != b""
    except OSError:
        return False


def test_a_share_of_operations_is_late_and_none_waits_longer_than_the_fault(
    disks: PowerDisks, data: Path
) -> None:
    disks.disturb("node-1", "some", Disturbance("delay", ("write",), share=0.5, seed=1), KINDS)
    for at in range(40):
        write(data / "a.log", b"x", at=at)
    met = disks.calm("node-1", "some")
    assert met.seen == 40
    assert 5 < met.met["write"] < 35
    disks.disturb("node-1", "all", Disturbance("delay", ("write",), delay_s=600), KINDS)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(write, data / "a.log", b"late")
        assert wait_until(lambda: bool(disks.disturbed("node-1", "all").met), 5, every_s=0.01)
        assert not late.done()
        assert disks.calm("node-1", "all").met == {"write": 1}
        late.result(5)


def test_what_a_disk_only_said_to_have_synced_goes_with_the_power(
    disks: PowerDisks, data: Path
) -> None:
    write(data / "a.log", b"before", sync=True)
    disks.disturb("node-1", "lie", Disturbance("lie", ("fsync",), "log"), KINDS)
    write(data / "a.log", b"said", at=6, sync=True)
    write(data / "b.log", b"said too", flags=os.O_DSYNC)
    write(data / "a.index", b"synced", sync=True)
    lost = lose(disks)
    assert (lost.bytes, lost.claimed) == (12, 12)
    assert (lost.claimed_files, lost.claimed_entries) == (("a.log", "b.log"), ())
    assert (data / "a.log").read_bytes() == b"before"
    assert (data / "a.index").read_bytes() == b"synced"
    write(data / "a.log", b"held", at=6, sync=True)
    # this kernel or another one syncs by itself after a write to a file opened with O_DSYNC
    assert disks.calm("node-1", "lie").met["fsync"] in (3, 4)
    assert lose(disks) == Unsynced(), "the disk wrote out what it held back"


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


LIE = Disturbance("lie", ("fsync",))


def test_a_file_is_named_as_it_is_called_when_the_power_goes(disks: PowerDisks, data: Path) -> None:
    disks.disturb("node-1", "lie", LIE, KINDS)
    (data / "orders-0.future").mkdir()
    write(data / "orders-0.future" / "0.log.swap", b"said", sync=True)
    (data / "orders-0.future" / "0.log.swap").rename(data / "orders-0.future" / "0.log")
    (data / "orders-0.future").rename(data / "orders-0")
    assert lose(disks).claimed_files == ("orders-0/0.log",)


def test_names_that_a_disk_only_said_to_have_synced_go_with_the_power(
    disks: PowerDisks, data: Path
) -> None:
    disks.disturb("node-1", "lie", LIE, KINDS)
    write(data / "never", b"n")
    disks.calm("node-1", "lie")
    sync_folder(data)
    disks.disturb("node-1", "lie", LIE, KINDS)
    write(data / "new", b"new")
    sync_folder(data)
    (data / "later").mkdir()
    lost = lose(disks, folders=True)
    assert (lost.entries, lost.claimed_entries) == (2, ("new",))
    assert sorted(os.listdir(data)) == ["formatted", "never"]


def test_names_that_a_disk_held_back_are_kept_once_it_lies_no_more(
    disks: PowerDisks, data: Path
) -> None:
    disks.disturb("node-1", "lie", LIE, KINDS)
    write(data / "new", b"new", sync=True)
    sync_folder(data)
    write(data / "later", b"later")
    disks.calm("node-1", "lie")
    lost = lose(disks, folders=True)
    assert (lost.entries, lost.claimed_entries) == (1, ())
    assert sorted(os.listdir(data)) == ["formatted", "new"]
    assert (data / "new").read_bytes() == b"new"


@pytest.mark.parametrize("flags", [0, os.O_DSYNC])
def test_a_sync_that_failed_was_not_said_to_be_done(
    flags: int, disks: PowerDisks, data: Path
) -> None:
    disks.disturb("node-1", "lie", LIE, KINDS)
    disks.disturb("node-1", "fail", Disturbance("error", ("fsync",), errno="EIO"), KINDS)
    with pytest.raises(OSError, match="Input/output"):
        write(data / "a.log", b"lost", flags=flags, sync=True)
    lost = lose(disks)
    assert (lost.bytes, lost.claimed, lost.claimed_files) == (4, 0, ())


def test_a_sync_that_waits_until_the_disk_lies_no_more_is_done(
    disks: PowerDisks, data: Path
) -> None:
    disks.disturb("node-1", "lie", LIE, KINDS)
    disks.disturb("node-1", "late", Disturbance("delay", ("fsync",), delay_s=600), KINDS)
    with ThreadPoolExecutor(1) as pool:
        synced = pool.submit(write, data / "a.log", b"kept", sync=True)
        assert wait_until(lambda: bool(disks.disturbed("node-1", "late").met), 5, every_s=0.01)
        disks.calm("node-1", "lie")
        disks.calm("node-1", "late")
        synced.result(5)
    assert lose(disks) == Unsynced()
    assert (data / "a.log").read_bytes() == b"kept"


_WRITER = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), b"late")
"""


@contextmanager
def waiting_writer(disks: PowerDisks, data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose write waits for its disk."""
    disks.disturb("node-1", "late", Disturbance("delay", ("write",), delay_s=600), KINDS)
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(data / "a.log")]) as writer:
        try:
            assert wait_until(lambda: bool(disks.disturbed("node-1", "late").met), 5, every_s=0.01)
            yield writer
        finally:
            disks.calm("node-1", "late")
            writer.kill()


def test_a_process_that_is_killed_does_not_wait_for_a_late_disk(
    disks: PowerDisks, data: Path
) -> None:
    with waiting_writer(disks, data) as writer:
        writer.kill()
        assert writer.wait(5) == -signal.SIGKILL
    assert (data / "a.log").read_bytes() == b""


def test_other_signals_do_not_shorten_the_wait_for_a_late_disk(
    disks: PowerDisks, data: Path
) -> None:
    """No program expects EINTR of a disk."""
    with waiting_writer(disks, data) as writer:
        writer.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        assert writer.poll() is None
        assert disks.calm("node-1", "late").met == {"write": 1}
        assert writer.wait(5) == 0
    assert (data / "a.log").read_bytes() == b"late"


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
