"""Volumes of nodes: refused, filled, slowed, and gone afterwards; most of it needs root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clusters.limits import groups, node_limits, volumes
from harness.clusters.limits.throttles import GroupThrottle, RootThrottle, throttle
from harness.clusters.limits.volumes import Volume, volumes_below, why_no_volume, why_not_slow


@pytest.mark.parametrize(
    ("mounted", "group", "found"),
    [
        ("/", "/", "/sys/fs/cgroup/blkio"),
        ("/", "/docker/0123", "/sys/fs/cgroup/blkio/docker/0123"),
        ("/docker/0123", "/docker/0123/inner", "/sys/fs/cgroup/blkio/inner"),
        ("/docker/0123", "/user.slice", None),
    ],
)
def test_the_group_whose_rules_hold_for_a_process(
    mounted: str, group: str, found: str | None
) -> None:
    mounts = f"32 25 0:28 {mounted} /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
    groups = f"8:pids:/elsewhere\n7:blkio:{group}\n0::/\n"
    root = throttle(mounts)
    assert isinstance(root, RootThrottle)
    assert root.group(groups) == (Path(found) if found else None)
    assert root.group("8:pids:/\n") is None
    assert throttle("") is None


def test_without_blkio_a_node_is_slowed_by_its_own_group_of_v2(tmp_path: Path) -> None:
    own = throttle(f"33 25 0:29 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert isinstance(own, GroupThrottle)
    assert own.group("8:pids:/elsewhere\n0::/brokerstorm.run-1.kafka-1\n") == (
        tmp_path / "brokerstorm.run-1.kafka-1"
    )
    for group, rules in {
        "a": "7:0 rbps=5 wbps=5 riops=max wiops=max\n",
        "b": "7:1 rbps=max wbps=max\n",
    }.items():
        (tmp_path / group).mkdir()
        (tmp_path / group / "io.max").write_text(rules)
    assert (own.rate("7:0"), own.rate("7:1"), own.rate("7:2")) == (5, None, None)
    own.limit("7:0", None, None)
    assert (tmp_path / "a" / "io.max").read_text() == "7:0 rbps=max wbps=max"


def test_a_system_without_groups_says_that_nothing_can_be_slowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(volumes, "why_no_volume", lambda: "")
    monkeypatch.setattr(volumes, "throttle", lambda: None)
    assert why_not_slow() == "this system has no control groups that can slow a device"


def test_a_user_gets_no_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert node_limits.why_not("data-volume") == "mounting a volume needs root"
    assert node_limits.why_not("slow-volume") == "mounting a volume needs root"


needs_root = pytest.mark.skipif(bool(why_no_volume()), reason=f"no volume here: {why_no_volume()}")


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    data = tmp_path / "cluster" / "kafka-1" / "data"
    (data / "orders-0").mkdir(parents=True)
    (data / "orders-0" / "log").write_text("kept")
    made = Volume(data)
    made.mount()
    yield made
    made.unmount()


@needs_root
def test_a_volume_is_filled_to_the_last_block_and_freed(volume: Volume, tmp_path: Path) -> None:
    assert sorted(path.name for path in volume.data.iterdir()) == ["orders-0"]
    assert (volume.data / "orders-0" / "log").read_text() == "kept"
    assert volume.try_write(65536)[0] == ""
    volume.fill()
    assert volume.is_filled()
    assert volume.try_write(65536)[0] == "ENOSPC"
    assert volume.image.stat().st_blocks * 512 < 200_000_000, "a ballast is reserved, not written"
    volume.free()
    volume.free()
    assert not volume.is_filled()
    assert volume.try_write(65536)[0] == ""


@pytest.fixture
def own_group() -> Iterator[Path]:
    """A group below the root in which a rule can stand, as a container has one."""
    made = (
        groups.group_of(groups.hierarchies()["io"], f"test-{os.getpid()}", "n") if is_v2() else None
    )
    path = made.path if made else throttle_here().root / f"brokerstorm-test-{os.getpid()}"
    made.make() if made else path.mkdir()
    yield path
    path.rmdir()


def throttle_here() -> RootThrottle | GroupThrottle:
    found = throttle()
    assert isinstance(found, RootThrottle | GroupThrottle)
    return found


def is_v2() -> bool:
    return isinstance(throttle(), GroupThrottle)


#: Writes and syncs 128 KiB each time it is asked to, and says how long it took.
WRITER = """
import os, sys, time
for line in sys.stdin:
    start = time.monotonic()
    handle = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
    os.write(handle, bytes(131072)); os.fsync(handle); os.close(handle)
    print(time.monotonic() - start, flush=True)
"""


@needs_root
@pytest.mark.skipif(bool(why_not_slow()), reason=why_not_slow())
def test_a_node_in_a_group_of_its_own_is_slowed_also_a_new_one(
    volume: Volume, own_group: Path
) -> None:
    """Throttles of cgroups v1 are not inherited, those of v2 are a group's own; a container has
    one."""
    node = node_limits.Limits(
        "run-1", {"kafka-1": volume.data}, frozenset({"slow-volume"}), contained=True
    )
    disk = node.volume("kafka-1")
    command = [sys.executable, "-c", WRITER, str(volume.data / "log")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        (own_group / "cgroup.procs").write_text(str(writer.pid))

        def write_s() -> float:
            print("now", file=writer.stdin, flush=True)
            return float(writer.stdout.readline())  # type: ignore[union-attr]

        def probe_s() -> float:
            return disk.try_write(131_072, writer.pid)[1]

        assert max(write_s(), probe_s()) < 0.25
        disk.slow(400_000, writer.pid)
        assert disk.is_slowed()
        assert min(write_s(), probe_s()) > 0.25
        disk.slow(None)
        assert not disk.is_slowed()
        assert max(write_s(), probe_s()) < 0.25
        disk.asked_bytes_per_s = 400_000
        node.enter("kafka-1", writer.pid)  # it was started while the disk was slow
        assert min(write_s(), probe_s()) > 0.25
        device = disk._device()
        writer.stdin.close()
        writer.wait()
        disk.unmount()
        assert device is not None
        assert throttle_here().with_rules(device) == set(), (
            "the next user of the device would be slow"
        )


@needs_root
def test_what_a_killed_harness_left_is_cleared(volume: Volume, tmp_path: Path) -> None:
    run_id = f"test-{os.getpid()}"
    sleeping = subprocess.Popen(["sleep", "60"])
    made = node_limits.Limits(
        run_id, {"kafka-1": volume.data}, frozenset({"cpu-quota", "memory-group"})
    )
    try:
        made.prepare("kafka-1")
        made.enter("kafka-1", sleeping.pid)
        assert all(group.holds(sleeping.pid) for group in made._groups.values())
    finally:
        sleeping.kill()
        sleeping.wait()
    assert {found for found, _ in groups.groups_left(run_id)} == {run_id}
    with pytest.MonkeyPatch.context() as other:
        other.setenv("BROKERSTORM_STATE", str(tmp_path / "other"))
        assert list(groups.groups_left(run_id)) == [], (
            "a run of another state folder can have the same id"
        )
    node_limits.clear(run_id, [tmp_path / "cluster"])
    assert list(groups.groups_left(run_id)) == []
    assert volumes_below(tmp_path) == []
    assert not volume.image.exists()
    node_limits.clear(run_id, [tmp_path / "cluster"])
