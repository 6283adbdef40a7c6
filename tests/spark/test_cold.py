"""`analyze` in a process of its own: silent, tidy, and undisturbed by what lies around."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted.tiny import History

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
#: Processor seconds of a whole cold start with a trivial run: about 10 measured. Wall time depends
#: on what else the machine does.
MAX_CPU_S = 45.0
TIMEOUT_S = 240.0

ANALYZE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from analysis.spark.judge import analyze
from harness.rundir import RunDir
print(analyze(RunDir(Path(sys.argv[1]))).verdict)
"""


def capture(root: Path) -> Path:
    history = History()
    history.plan = history.plan.model_copy(update={"rate_per_s": 0.0})
    history.sent(5).log(*range(5)).deliver(*range(5)).commit(5)
    return history.write(root).root


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_a_cold_start_is_silent_tidy_and_quick(tmp_path: Path) -> None:
    """Where the user stands lies a folder `analysis` of theirs, and a foreign Spark is
    configured."""
    run, here = capture(tmp_path / "run"), tmp_path / "here"
    (here / "analysis").mkdir(parents=True)
    (here / "analysis" / "__init__.py").write_text("raise ImportError('not this one')\n")
    foreign = {
        "SPARK_HOME": "/nonexistent",
        "SPARK_CONF_DIR": str(here),
        "PYSPARK_PYTHON": "/nonexistent/python",
        "PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell",
    }
    environment = {
        k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PYTHONPATH")
    } | foreign
    before = children_cpu_s()
    done = subprocess.run(
        [sys.executable, "-c", ANALYZE, str(run), str(ROOT)],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("pass\n", "", 0)
    assert children_cpu_s() - before < MAX_CPU_S
    assert sorted(p.name for p in here.rglob("*")) == ["__init__.py", "analysis"]
    assert (run / "result.json").exists()


def test_an_unusable_java_ends_with_one_line(tmp_path: Path) -> None:
    script = ANALYZE.replace(
        "print(analyze", "import harness.errors\ntry:\n  print(analyze"
    ).rstrip()
    script += "\nexcept harness.errors.EnvironmentNotReady as error:\n  print(error)\n"
    done = subprocess.run(
        [sys.executable, "-c", script, str(capture(tmp_path / "run")), str(ROOT)],
        env=os.environ | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.stdout == f"Java not found: JAVA_HOME={tmp_path} has no bin/java\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_recorded_classes_are_used_by_the_next_session(tmp_path: Path) -> None:
    """The JVM that records writes the archive when it exits, before `record_classes` returns."""
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from analysis.spark.session import record_classes
print(record_classes(), record_classes())
"""
    environment = os.environ | {"BROKERSTORM_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True False\n", "")
    (archive,) = (tmp_path / "cache" / "classes").glob("spark-*.jsa")
    done = subprocess.run(
        [sys.executable, "-c", ANALYZE, str(capture(tmp_path / "run")), str(ROOT)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("pass\n", "")
    assert archive.exists()
