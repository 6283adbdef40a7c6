"""Claims on address blocks, and what is found after a harness died."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.clusters import leftovers
from harness.clusters.layout import addresses
from harness.clusters.nodes.processes import ProcessId, identify
from harness.errors import EnvironmentNotReady
from harness.owners import RUN_ID

PORTS = [28471, 28472]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROKERSTORM_STATE", str(tmp_path / "state"))
    return tmp_path / "state" / "addresses"


@pytest.fixture
def run_id() -> str:
    return f"unit-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def orphan(run_id: str) -> Iterator[ProcessId]:
    """A process of the run whose parent is gone, as after `kill -9` of the harness."""
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, RUN_ID: run_id},
        stdout=subprocess.PIPE,
        check=True,
    )
    identity = identify(int(done.stdout))
    assert identity is not None
    yield identity
    if identity.is_alive():
        os.kill(identity.pid, 9)


def die(block: int) -> None:
    """Let the claim look as if its harness had died."""
    claim = next(claim for claim in addresses.claims() if claim.block == block)
    addresses._write(
        replace(claim, owner=ProcessId(claim.owner.pid, claim.owner.started_s - 3600.0))
    )


def test_two_runs_get_two_blocks(tmp_path: Path) -> None:
    first, second = addresses.claim("a", tmp_path, PORTS), addresses.claim("a", tmp_path, PORTS)
    assert first != second
    assert {first, second} <= set(range(1, addresses.BLOCKS + 1))
    assert addresses.address(first, 3) == f"127.0.{first}.3"
    addresses.release("a")
    assert addresses.claims() == []
    addresses.release("a")


def test_processes_that_claim_at_once_never_share(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from harness.clusters.layout import addresses as a; "
        f"print(a.claim('same', pathlib.Path('.'), {PORTS}), flush=True); sys.stdin.read()"
    )
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    blocks = [process.stdout.readline().strip() for process in crowd if process.stdout]
    for process in crowd:
        process.communicate("")
    assert all(blocks)
    assert len(set(blocks)) == 4


def test_a_claim_of_a_dead_harness_is_free_again(tmp_path: Path, run_id: str) -> None:
    block = addresses.claim(run_id, tmp_path, PORTS)
    assert addresses.claim(run_id, tmp_path, PORTS) != block
    die(block)
    assert addresses.claim(run_id, tmp_path, PORTS) == block


def test_a_claim_is_held_while_a_process_of_the_run_lives(
    tmp_path: Path, run_id: str, orphan: ProcessId
) -> None:
    block = addresses.claim(run_id, tmp_path, PORTS)
    die(block)
    assert addresses.claim(run_id, tmp_path, PORTS) != block


def test_a_torn_claim_is_no_claim(state: Path, tmp_path: Path, run_id: str) -> None:
    block = addresses.claim(run_id, tmp_path, PORTS)
    (state / f"127.0.{block}.json").write_text('{"block": ')
    assert addresses.claims() == []
    assert addresses.claim(run_id, tmp_path, PORTS) == block


def test_a_block_with_a_foreign_listener_is_left_alone(tmp_path: Path, run_id: str) -> None:
    block = addresses.claim(run_id, tmp_path, PORTS)
    addresses.release(run_id)
    with socket.create_server((addresses.address(block, 2), PORTS[1])):
        assert addresses.claim(run_id, tmp_path, PORTS) != block


def test_a_listener_on_every_address_is_an_error_that_says_so(tmp_path: Path, run_id: str) -> None:
    with (
        socket.create_server(("0.0.0.0", PORTS[0])),
        pytest.raises(EnvironmentNotReady, match=str(PORTS[0])) as caught,
    ):
        addresses.claim(run_id, tmp_path, PORTS)
    assert "ss -ltnp" in caught.value.hint


def ids(found: list[leftovers.Leftover]) -> set[str]:
    return {one.run_id for one in found}


def test_what_a_dead_harness_left_is_found_and_removed(
    tmp_path: Path, run_id: str, orphan: ProcessId
) -> None:
    block = addresses.claim(run_id, tmp_path, PORTS)
    pid_file = tmp_path / "kafka-1" / "pid.json"
    pid_file.parent.mkdir()
    pid_file.write_text(f'{{"run_id": "{run_id}", "pid": 1}}')
    foreign = tmp_path / "kafka-2" / "pid.json"
    foreign.parent.mkdir()
    foreign.write_text('{"run_id": "another", "pid": 1}')
    die(block)

    found = [one for one in leftovers.find() if one.run_id == run_id]
    assert [one.processes for one in found] == [(orphan,)]
    assert f"sleep {orphan.pid}" in found[0].describe()
    assert f"127.0.{block}.0" in found[0].describe()
    started = time.monotonic()
    leftovers.remove(found)
    assert time.monotonic() - started < 60.0
    assert not orphan.is_alive()
    assert addresses.claims() == []
    assert not pid_file.exists()
    assert foreign.exists()
    assert leftovers.find(run_id) == []


def test_the_runs_of_a_living_harness_are_no_leftovers(
    tmp_path: Path, run_id: str, orphan: ProcessId
) -> None:
    addresses.claim(run_id, tmp_path, PORTS)
    assert run_id not in ids(leftovers.find())
    assert [one.processes for one in leftovers.find(run_id)] == [(orphan,)]


def test_a_worker_whose_harness_lives_is_no_leftover_under_any_run_id(run_id: str) -> None:
    worker = subprocess.Popen(["sleep", "600"], env={**os.environ, RUN_ID: f"{run_id}-round"})
    try:
        assert f"{run_id}-round" not in ids(leftovers.find())
        assert f"{run_id}-round" in ids(leftovers.find(f"{run_id}-round"))
    finally:
        worker.kill()
        worker.wait()


def test_a_kept_cluster_is_a_leftover_only_by_name(
    tmp_path: Path, run_id: str, orphan: ProcessId
) -> None:
    block = addresses.claim(run_id, tmp_path, PORTS)
    addresses.keep(block, run_id)
    die(block)
    assert run_id not in ids(leftovers.find())
    assert [one.kept for one in leftovers.find(run_id)] == [True]
    addresses.take_over(block, run_id)
    assert [claim.kept for claim in addresses.claims()] == [True]
    assert addresses.claims()[0].owner.is_alive()


def test_a_second_process_does_not_take_a_cluster_from_the_one_that_uses_it(
    tmp_path: Path, run_id: str, orphan: ProcessId
) -> None:
    """The second one may be killed: `clean` took the cluster of the first then."""
    block = addresses.claim(run_id, tmp_path, PORTS)
    code = f"from harness.clusters.layout import addresses as a; a.take_over({block}, {run_id!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert addresses.claims()[0].owner.pid == os.getpid()
    assert run_id not in ids(leftovers.find())
