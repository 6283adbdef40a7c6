"""Control groups, as files and as root: what a node may take, and that nothing of it stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from harness.clusters.limits import groups, node_limits
from harness.clusters.limits.groups import CpuGroup, Hierarchy, MemoryGroup, hierarchies
from harness.clusters.process_runtime import GIVES
from harness.errors import EnvironmentNotReady
from harness.owners import short_owner_mark
from harness.protocols.limits import (
    CpuQuota,
    FillsDisk,
    LiftsLimits,
    LimitsCpu,
    LimitsMemory,
    MemoryUse,
    SlowsDisk,
)
from harness.waiting import wait_until

V1 = """\
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
34 25 0:30 / / rw - ext4 /dev/vda rw
"""


def test_where_groups_are_made_v1() -> None:
    found = hierarchies(V1)
    assert found["cpu"] == Hierarchy("cpu", Path("/sys/fs/cgroup/cpu,cpuacct"), 1)
    assert found["memory"].group("run-1", "kafka-2") == Path(
        f"/sys/fs/cgroup/memory/brokerstorm.run-1.{short_owner_mark()}.kafka-2"
    )


def test_where_groups_are_made_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    found = hierarchies(f"33 25 0:29 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert found == {name: Hierarchy(name, tmp_path, 2) for name in ("cpu", "io", "memory")}


@pytest.mark.parametrize(
    "before", ["", V1.splitlines(keepends=True)[0]], ids=["alone", "after a v1 row"]
)
def test_a_v2_root_whose_controllers_cannot_be_read_offers_none(
    tmp_path: Path, before: str
) -> None:
    unreadable = f"33 25 0:29 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    assert hierarchies(before + unreadable) == hierarchies(before)


def test_a_user_makes_groups_of_v2_below_what_was_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "user.slice" / "app.slice" / "terminal.scope"
    own.mkdir(parents=True)
    (tmp_path / "self").write_text("1:name=systemd:/\n0::/user.slice/app.slice/terminal.scope\n")
    monkeypatch.setattr(groups, "_OWN", tmp_path / "self")
    for group in (tmp_path, own.parent.parent, own.parent, own):
        for name in ("cgroup.controllers", "cgroup.subtree_control", "cgroup.procs"):
            (group / name).write_text("cpu memory")
    may_change = own.parent
    monkeypatch.setattr(
        groups.os, "access", lambda path, mode: Path(path).is_relative_to(may_change)
    )
    mounts = f"33 25 0:29 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    assert hierarchies(mounts)["memory"].root == may_change
    may_change = tmp_path / "elsewhere"
    assert hierarchies(mounts)["memory"].root == tmp_path, "which says why it refuses"


def test_a_system_without_groups_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "hierarchies", dict)
    assert node_limits.why_not("cpu-quota") == "this system has no cgroup controller 'cpu'"


def test_a_folder_that_cannot_be_written_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    proc = Hierarchy("cpu", Path("/proc"), 1)
    monkeypatch.setattr(groups, "hierarchies", lambda: {"cpu": proc})
    assert "no control group can be made in /proc" in node_limits.why_not("cpu-quota")


def made(kind: type[CpuGroup] | type[MemoryGroup], root: Path, version: int, **files: str) -> Path:
    """A group's folder with its files, as the kernel would make them."""
    name = "cpu" if kind is CpuGroup else "memory"
    (root / "cgroup.subtree_control").write_text("")
    group = kind(Hierarchy(name, root, version), "run-1", "kafka-1")
    for file, text in files.items():
        group.path.mkdir(exist_ok=True)
        (group.path / file.replace("__", ".")).write_text(text)
    group.make()
    return group.path


def test_cpu_v1(tmp_path: Path) -> None:
    path = made(
        CpuGroup,
        tmp_path,
        1,
        cpu__cfs_quota_us="-1",
        cpu__cfs_period_us="100000",
        cpu__stat="nr_periods 40\nnr_throttled 38\nthrottled_time 3500000000\n",
    )
    group = CpuGroup(Hierarchy("cpu", tmp_path, 1), "run-1", "kafka-1")
    assert group.works()
    group.limit(0.05)
    assert (path / "cpu.cfs_quota_us").read_text() == "5000"
    assert group.use() == CpuQuota(40, 38, 3.5, 0.05)
    group.limit(None)
    assert group.use().cores is None


def test_cpu_v2(tmp_path: Path) -> None:
    stat = "usage_usec 9\nnr_periods 40\nnr_throttled 38\nthrottled_usec 3500000\n"
    path = made(CpuGroup, tmp_path, 2, cpu__max="max 100000", cpu__stat=stat)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    group = CpuGroup(Hierarchy("cpu", tmp_path, 2), "run-1", "kafka-1")
    group.limit(1.5)
    assert (path / "cpu.max").read_text() == "150000 100000"
    assert group.use() == CpuQuota(40, 38, 3.5, 1.5)
    group.limit(None)
    assert (path / "cpu.max").read_text() == "max 100000"
    assert group.use().cores is None


def test_memory_v2(tmp_path: Path) -> None:
    files = {
        "memory__max": "max",
        "memory__swap__max": "max",
        "memory__current": "500",
        "memory__stat": "anon 300\nfile 200\n",
        "memory__events": "low 0\nmax 12\noom_kill 1\n",
    }
    path = made(MemoryGroup, tmp_path, 2, **files)
    assert (path / "memory.swap.max").read_text() == "0"
    group = MemoryGroup(Hierarchy("memory", tmp_path, 2), "run-1", "kafka-1")
    assert group.use() == MemoryUse(500, 300, None, 12, 1)
    assert group.limit(400) == 400
    assert group.use().limit == 400
    assert group.limit(None) is None
    assert (path / "memory.max").read_text() == "max"


def test_memory_v1_takes_the_lowest_limit_that_the_kernel_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "memory__limit_in_bytes": str(2**63 - 4096),
        "memory__usage_in_bytes": "3000000",
        "memory__failcnt": "7",
        "memory__stat": "cache 0\nrss 2900000\n",
        "memory__oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    }
    made(MemoryGroup, tmp_path, 1, **files)
    group = MemoryGroup(Hierarchy("memory", tmp_path, 1), "run-1", "kafka-1")
    assert group.use() == MemoryUse(3_000_000, 2_900_000, None, 7, 2)
    write = Path.write_text

    def busy(path: Path, text: str) -> int:
        if path.name == "memory.limit_in_bytes" and 0 <= int(text) < 3_000_000:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", busy)
    holds = group.limit(1_000_000)
    assert holds is not None
    assert 3_000_000 <= holds < 3_200_000
    assert group.use().limit == holds


def test_a_refusal_names_file_and_value(tmp_path: Path) -> None:
    group = CpuGroup(Hierarchy("cpu", tmp_path, 2), "run-1", "kafka-1")
    with pytest.raises(EnvironmentNotReady, match=r"cannot write 10000 100000 to .*cpu\.max"):
        group.limit(0.1)


class Node(node_limits.LimitedNodes):
    """A runtime of processes, as far as limits go."""

    at: int | None = None

    def pid(self, node: str) -> int | None:
        return self.at


def test_what_a_node_writes_counts_before_the_kernel_passes_it_on() -> None:
    """A slow disk is slow to a node that writes, and a broker leaves its writes to the page
    cache."""
    node = Node()
    assert node.written("kafka-1") == 0
    node.at = os.getpid()
    before = node.written("kafka-1")
    with TemporaryFile(dir="/var/tmp") as log:  # on a disk: what goes to memory is not counted
        log.write(bytes(300_000))
        log.flush()
    assert 300_000 <= node.written("kafka-1") - before < 600_000


def test_the_process_runtime_has_every_ability_and_need() -> None:
    for ability in (LimitsCpu, LimitsMemory, FillsDisk, SlowsDisk, LiftsLimits):
        assert isinstance(Node(), ability)
    assert node_limits.GIVES <= GIVES


def test_a_cluster_without_the_need_says_how_to_get_it(tmp_path: Path) -> None:
    node = Node()
    node.limits = node_limits.Limits("run-1", {"kafka-1": tmp_path / "data"}, frozenset())
    with pytest.raises(EnvironmentNotReady, match="started without cpu-quota"):
        node.limit_cpu("kafka-1", 0.1)
    with pytest.raises(EnvironmentNotReady, match="started without data-volume"):
        node.fill_disk("kafka-1")


def test_a_node_that_stores_nothing_is_told_from_a_cluster_without_volumes(tmp_path: Path) -> None:
    node = Node()
    node.limits = node_limits.Limits(
        "run-1", {"bookie-1": tmp_path / "data"}, frozenset({"data-volume"})
    )
    with pytest.raises(EnvironmentNotReady, match="broker-1 keeps no data of its own") as caught:
        node.fill_disk("broker-1")
    assert caught.value.hint == "these do: bookie-1"


needs_groups = pytest.mark.skipif(
    bool(node_limits.why_not("cpu-quota") or node_limits.why_not("memory-group")),
    reason=f"no groups here: {node_limits.why_not('cpu-quota')}{node_limits.why_not('memory-group')}",
)


@needs_groups
def test_what_an_engine_made_below_every_controller_is_cleared() -> None:
    run_id = f"test-engine-{os.getpid()}"
    roots = [root for root, _ in groups._roots()]
    assert len(roots) >= len(set(each.root for each in hierarchies().values()))
    made = [
        root / f"{groups.PREFIX}{run_id}.{short_owner_mark()}.containers" / "0123" for root in roots
    ]
    for group in made:
        group.mkdir(parents=True)
    assert {path for _, path in groups.groups_left(run_id)} == {group.parent for group in made}
    assert groups.remove_groups(run_id) == []
    assert not any(group.parent.exists() for group in made)


class Hog(Node):
    """A node that is a Python process: it waits for a line, then runs its program."""

    def __init__(self, folder: Path, program: str) -> None:
        self.run_id = f"test-hog-{os.getpid()}"
        needs = frozenset({"cpu-quota", "memory-group"})
        self.limits = node_limits.Limits(self.run_id, {"hog": folder}, needs)
        self.limits.prepare("hog")
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"input()\n{program}"], stdin=subprocess.PIPE, text=True
        )
        self.limits.enter("hog", self.process.pid)
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.limits.drop()
        assert list(groups.groups_left(self.run_id)) == []


@pytest.fixture
def hog(tmp_path: Path) -> Iterator[Callable[[str], Hog]]:
    made: list[Hog] = []

    def start(program: str) -> Hog:
        made.append(Hog(tmp_path, program))
        return made[-1]

    yield start
    for each in made:
        each.end()


@needs_groups
def test_the_kernel_holds_a_process_to_its_quota(hog: Callable[[str], Hog]) -> None:
    node = hog("while True: pass")
    node.limit_cpu("hog", 0.1)
    assert wait_until(lambda: node.cpu_use("hog").throttled_s > 0.1, 20, every_s=0.02)
    assert node.cpu_use("hog").throttled >= 1
    node.limit_cpu("hog", None)
    assert node.cpu_use("hog").cores is None


@needs_groups
def test_the_kernel_kills_who_wants_more_than_its_limit(hog: Callable[[str], Hog]) -> None:
    node = hog("x = []\nwhile True:\n x.append(b'x' * 1000000)\n import time; time.sleep(0.001)")
    assert wait_until(lambda: node.memory_use("hog").fixed > 20_000_000, 20, every_s=0.02)
    before = node.memory_use("hog")
    holds = node.limit_memory("hog", before.fixed + 16_000_000)
    assert holds is not None
    assert wait_until(lambda: node.process.poll() is not None, 20, every_s=0.02)
    after = node.memory_use("hog")
    assert after.met > before.met
    assert after.killed == before.killed + 1
    assert node.process.returncode == -9
    node.lift_limits("hog")
    assert node.memory_use("hog").limit is None
