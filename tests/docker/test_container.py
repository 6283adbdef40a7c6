"""The image that has it all, built from the Dockerfile and used as a user would."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clusters.images import base_image
from harness.errors import Exit
from harness.toolchains.cache import cache_folder
from harness.waiting import wait_until
from tests.docker.conftest import BUILDS

pytestmark = [pytest.mark.docker, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
CALLER = 1234
BUILD_S, RUN_S = 1500, 300
#: What is behind the package index of this machine may have a certificate of its own.
BASE = """\
FROM {base}
COPY certificates.crt /etc/ssl/ours.crt
ENV PIP_CERT=/etc/ssl/ours.crt
"""
SCENARIO = """
name: contained
topics:
  orders: {partitions: 3}
load:
  rate: 500
  duration: 10s
  warm_up: 1s
  producers:
    shop: {options: {acks: all, enable.idempotence: true}}
  consumers:
    billing: {group: billing}
faults:
  - {fault: kill, target: random, at: 2s, for: 2s}
require:
  rate_ratio: 0
"""


def docker(*arguments: str, timeout_s: float = RUN_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


@pytest.fixture(scope="module")
def image(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its name; built on a minimal system of this machine's distribution, so that no registry is
    asked."""
    folder = tmp_path_factory.mktemp("base")
    with BUILDS:
        base = base_image.provide(engine, 17, lambda *_: None)
    shutil.copy(
        ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt", folder / "c"
    )
    (folder / "c").rename(folder / "certificates.crt")
    (folder / "Dockerfile").write_text(BASE.format(base=base))
    made = docker("build", "-t", "brokerstorm-test-base", str(folder))
    assert made.returncode == 0, made.stdout + made.stderr
    arguments = {"BASE": "brokerstorm-test-base", "JAVA": base_image.java_package(17)}
    given = [
        word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")
    ]
    made = docker(
        "build", "--network", "host", *given, "-t", "brokerstorm-test", str(ROOT), timeout_s=BUILD_S
    )
    assert made.returncode == 0, (made.stdout + made.stderr)[-3000:]
    yield "brokerstorm-test"
    docker("image", "rm", "brokerstorm-test", "brokerstorm-test-base")


@pytest.fixture
def mounts(tmp_path: Path) -> list[str]:
    """`docker run` arguments: a scenario, jars that are fetched already, runs of a caller, no
    network."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "contained.yaml").write_text(SCENARIO)
    (tmp_path / "runs").mkdir()
    os.chown(tmp_path / "runs", CALLER, CALLER)
    shutil.copytree(cache_folder() / "jars", tmp_path / "cache" / "jars", symlinks=True)
    where = {"work": "/work", "runs": "/runs", "cache": "/cache"}
    given = [
        word for host, inside in where.items() for word in ("-v", f"{tmp_path / host}:{inside}")
    ]
    return ["--network", "none", *given]


def test_a_run_in_a_container_belongs_to_its_caller(
    image: str, mounts: list[str], tmp_path: Path
) -> None:
    done = docker("run", "--rm", *mounts, image, "--json", "run", "contained.yaml")
    assert done.returncode == Exit.PASS, done.stderr[-3000:]
    assert json.loads(done.stdout)["verdict"] == "pass"
    written = [path for path in (tmp_path / "runs").rglob("*") if not path.is_symlink()]
    assert (tmp_path / "runs" / "latest" / "report.html").exists()
    assert {path.stat().st_uid for path in written} == {CALLER}


def test_a_container_that_is_stopped_heals_and_seals_first(
    image: str, mounts: list[str], tmp_path: Path
) -> None:
    name = f"brokerstorm-test-{os.getpid()}"
    docker("run", "--detach", "--name", name, *mounts, image, "run", "contained.yaml")
    try:
        assert wait_until(lambda: "took effect" in docker("logs", name).stderr, RUN_S), docker(
            "logs", name
        )
        assert docker("stop", "--time", "120", name).returncode == 0
        state = json.loads(docker("inspect", name).stdout)[0]["State"]
        assert state["ExitCode"] == Exit.UNKNOWN, docker("logs", name).stderr[-3000:]
        assert (tmp_path / "runs" / "latest" / "report.html").exists()
    finally:
        docker("rm", "--force", "--volumes", name)


def test_a_user_without_a_name_is_told_before_anything_starts(image: str) -> None:
    done = docker("run", "--rm", "--user", f"{CALLER}:{CALLER}", image, "list", "faults")
    assert (done.returncode, done.stdout) == (Exit.ENVIRONMENT, "")
    assert "user 1234 has no name in this container" in done.stderr
