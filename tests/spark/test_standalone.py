"""A standalone master and worker on this machine, whose executors start with nothing of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.errors import Exit
from tests.installed import build, install
from tests.planted.streams import STREAMS
from tests.planted.tiny import History
from tests.standalone import HOST, bare_environment, free_port, standalone

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
ANALYZE_S = 240.0

#: What the command does, without the command: a process of its own, because a process has one Spark
#: master.
ANALYZE = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from analysis.spark.judge import analyze
from harness.errors import BrokerstormError
from harness.toolchains.java import find_java
from harness.rundir import RunDir
try:
    print(analyze(RunDir(Path(sys.argv[1])), sys.argv[2]).verdict)
except BrokerstormError as error:
    print(f"{{type(error).__name__}}: {{error}} | {{error.hint}}")
"""


class Cluster:
    """The one of these tests, started again where one of them has ended it."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders, self._running, self._url = folders, ExitStack(), ""

    def url(self) -> str:
        if not self._url:
            self._url = self._running.enter_context(standalone(self._folders.mktemp("standalone")))
        return self._url

    def end(self) -> None:
        self._running.close()
        self._url = ""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory)
    yield made
    made.end()


@pytest.fixture
def master(cluster: Cluster) -> str:
    return cluster.url()


def analyze(
    run: Path, master: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    cwd.mkdir()
    return subprocess.run(
        [sys.executable, "-c", ANALYZE.format(root=str(ROOT)), str(run), master],
        cwd=cwd,
        env=bare_environment() | {"PYSPARK_PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
        timeout=ANALYZE_S,
        check=False,
    )


def planted(root: Path) -> Path:
    """The loss of two messages at the tail, in a capture of three buckets."""
    stream = next(s for s in STREAMS if s.name == "acked-loss-last-two")
    history = History(partitions=3, buckets=3)
    for partition in range(3):
        history.sent(10, partition=partition)
        history.log(*stream.log, partition=partition).deliver(*stream.log, partition=partition)
    return history.write(root).root


def test_executors_without_our_modules_judge(master: str, tmp_path: Path) -> None:
    """Nor does anything import the `analysis` and `harness` that lie where the user stands."""
    installed = install(build("wheel", tmp_path / "wheel"), tmp_path)
    before = sorted(installed.hostile.rglob("*"))
    run = planted(tmp_path / "run")
    words = [str(installed.command), "--json", "--quiet", "analyze", str(run), "--master", master]
    done = installed.call(*words, PYSPARK_PYTHON=str(installed.python))
    assert (done.returncode, done.stderr) == (Exit.FAIL, ""), done.stdout + done.stderr
    document = json.loads(done.stdout)
    violations = {
        f["class"]: f["count"] for f in document["findings"] if f["status"] == "violation"
    }
    assert violations == {"acked-lost": 6}
    assert document["rows"]["sends"] == 30
    assert sorted(installed.hostile.rglob("*")) == before


@pytest.mark.extended
def test_executors_without_numpy_are_named(master: str, tmp_path: Path) -> None:
    """A Python that has PySpark's needs, but neither NumPy nor PyArrow: the interpreter without
    packages."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    done = analyze(planted(tmp_path / "run"), master, tmp_path / "empty", PYSPARK_PYTHON=str(bare))
    assert done.stdout.startswith(
        "EnvironmentNotReady: executors cannot judge: No module named 'numpy'"
    ), done.stdout + done.stderr
    assert "PYSPARK_PYTHON" in done.stdout


def test_a_master_that_is_not_there_is_an_environment_error(tmp_path: Path) -> None:
    url = f"spark://{HOST}:{free_port()}"
    done = analyze(planted(tmp_path / "run"), url, tmp_path / "empty")
    assert done.stdout.startswith(f"EnvironmentNotReady: no Spark master at {url} ("), (
        done.stdout + done.stderr
    )
    assert "Traceback" not in done.stderr


#: A session that loses its cluster before it judges; it goes on with a line on its stdin.
LOSES = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from analysis.spark import lost
from analysis.spark.judge import judge
from analysis.spark.session import WarmSession
from harness.rundir import RunDir
lost.LOST_S = 3.0
warm = WarmSession(sys.argv[2])
session = warm.get()
print("ready", flush=True)
sys.stdin.readline()
result = judge(RunDir(Path(sys.argv[1])), session)
print(result.verdict, *result.reasons)
warm.close()
"""


@pytest.mark.extended
def test_a_cluster_that_goes_away_is_unknown_and_no_hang(cluster: Cluster, tmp_path: Path) -> None:
    run, url = planted(tmp_path / "run"), cluster.url()
    judging = subprocess.Popen(
        [sys.executable, "-c", LOSES.format(root=str(ROOT)), str(run), url],
        env=bare_environment() | {"PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert judging.stdout is not None
    assert judging.stdout.readline() == "ready\n"
    cluster.end()
    said, _ = judging.communicate("go\n", timeout=ANALYZE_S)
    assert said.startswith("unknown"), said
    assert f"no executor of {url} has been there for 3 s: start its master and workers" in said
