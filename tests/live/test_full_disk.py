"""A disk that fills in the middle of a load, of the driver and of an executor: what was captured is
kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.errors import Exit
from harness.rundir import read_json
from harness.waiting import wait_until
from tests.driver_rig.external import connection_file
from tests.live.cluster_rig import ClusterPool
from tests.live.run_rig import BROKERSTORM, RUN_TIMEOUT_S
from tests.standalone import standalone

pytestmark = [pytest.mark.live, pytest.mark.spark, pytest.mark.slow]

LARGE = "size=4g"
SCENARIO = """
name: filling
topics: {orders: {partitions: 6}}
load:
  rate: 12000
  duration: 25s
  warm_up: 1s
  producers: {shop: {options: {acks: all, enable.idempotence: true, linger.ms: 20}}}
  consumers: {billing: {}}  # it dies without leaving its group, which can be deleted 45 s later
require: {rate_ratio: 0.1}
"""


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """One of its own."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", LARGE, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Nothing more fits into it."""
    seen = os.statvfs(folder)
    resize(folder, f"size={(seen.f_blocks - seen.f_bfree) * seen.f_frsize}")


@pytest.fixture
def staging(pool: ClusterPool, tmp_path: Path) -> Path:
    """Brokers with a disk of their own."""
    return connection_file(pool.get("kafka"), tmp_path, {})


def begun(runs: Path, file: Path, *words: str) -> subprocess.Popen[str]:
    scenario = file.with_name("filling.yaml")
    scenario.write_text(SCENARIO)
    command = [
        *BROKERSTORM,
        "--json",
        "--run-dir",
        str(runs),
        "run",
        str(scenario),
        "--cluster",
        str(file),
    ]
    return subprocess.Popen(
        [*command, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        start_new_session=True,
    )


def fill_in_load(process: subprocess.Popen[str], runs: Path, folder: Path) -> Any:
    """Fill a folder once the load is on; what the command says in the end."""

    def is_loading() -> bool:
        paths = list(runs.glob("*-filling/manifest.json"))
        return bool(paths) and "load" in [each["name"] for each in read_json(paths[0])["phases"]]

    try:
        assert wait_until(lambda: is_loading() or process.poll() is not None, RUN_TIMEOUT_S)
        fill(folder)
        out, err = process.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        process.kill()
    assert "Traceback" not in err
    return json.loads(out)


def test_the_disk_of_the_driver_is_full(staging: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "disk") as full:
        runs = full / "runs"
        process = begun(runs, staging)
        document = fill_in_load(process, runs, full)
        assert process.returncode == Exit.ENVIRONMENT, document
        assert "no space left on the disk" in document["error"]["message"]
        assert "brokerstorm analyze" in document["error"]["hint"]
        resize(full, LARGE)
        (run,) = runs.glob("*-filling")
        command = [*BROKERSTORM, "--json", "analyze", str(run)]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        judged = json.loads(said.stdout)
        assert (said.returncode, judged["verdict"]) == (Exit.UNKNOWN, "unknown"), judged["reasons"]
        assert judged["sends"]["attempted"] > 10_000
        assert not [each for each in judged["findings"] if each["status"] == "violation"]


def test_the_disk_of_an_executor_is_full(staging: Path, tmp_path: Path) -> None:
    spark = tmp_path / "spark"
    spark.mkdir()
    with disk(spark / "worker-0") as full, standalone(spark, ("127.0.0.11",)) as master:
        runs = tmp_path / "runs"
        process = begun(runs, staging, "--load-master", master)
        document = fill_in_load(process, runs, full)
        assert (process.returncode, document.get("verdict")) == (Exit.UNKNOWN, "unknown"), document
        (run,) = [path for path in runs.iterdir() if not path.is_symlink()]
        (left,) = [each["left"] for each in read_json(run / "manifest.json")["executors"]]
        kept = Path(left.partition(": ")[0])
        assert "no space left" in left
        assert list(kept.glob("*/raw/producer-shop/sends-*.seg"))
        assert any("captured and not in the run" in reason for reason in document["reasons"])
        subprocess.run(["rm", "-r", str(kept)], check=True)
