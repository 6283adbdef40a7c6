"""The Go tests of workers, where there is Go and the modules of their clients are here."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from harness.workers.spec import PROGRAMS


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("go"), reason="there is no Go")
@pytest.mark.parametrize(
    "worker", sorted({path.parent.name for path in PROGRAMS.glob("*/*_test.go")})
)
def test_a_worker_in_go_passes_its_own_tests(worker: str) -> None:
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    ran = subprocess.run(
        ["go", "test", "./..."],
        cwd=PROGRAMS / worker,
        env=environment,
        capture_output=True,
        text=True,
    )
    if "GOPROXY=off" in ran.stderr:
        pytest.skip("the modules are not here: build the worker once")
    assert ran.returncode == 0, ran.stdout + ran.stderr
