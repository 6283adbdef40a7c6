"""The session's parts that need no JVM."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from analysis.spark import session
from analysis.spark.session import WarmSession, default_master, is_local, module_files, spark_reason
from harness.errors import EnvironmentNotReady
from harness.toolchains.java import ClassArchive, Java


def test_the_class_archive_is_written_once_for_a_java_and_a_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    java = Java(str(tmp_path / "java"), 17, "17.0.15+6")
    archive = ClassArchive(java, "spark-4.3.0", "-XX:+UseSerialGC")
    assert archive.use() == []
    part = Path(archive.record()[0].removeprefix("-XX:ArchiveClassesAtExit="))
    part.write_bytes(b"as far as it came")
    archive.drop()  # its JVM was killed
    assert not archive.keep()
    part.write_bytes(b"all of it")
    assert archive.keep()
    again = ClassArchive(java, "spark-4.3.0", "-XX:+UseSerialGC")
    assert again.use()[0] == f"-XX:SharedArchiveFile={archive.path}"
    other = ClassArchive(Java(java.path, 21, "21.0.2"), "spark-4.3.0", "-XX:+UseSerialGC")
    assert other.use() == []


def test_an_archive_that_nothing_used_for_a_month_goes_when_another_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    java = Java(str(tmp_path / "java"), 17, "17.0.15+6")
    unused, used, new = (ClassArchive(java, name) for name in ("unused", "used", "new"))
    for archive in (unused, used, new):
        Path(archive.record()[0].removeprefix("-XX:ArchiveClassesAtExit=")).touch()
        archive.keep()
    for archive in (unused, used):
        os.utime(archive.path, (0, 0))
    used.use()
    new.keep()
    assert [archive.exists for archive in (unused, used, new)] == [False, True, True]


def test_each_installation_of_spark_has_its_own_class_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java ignores an archive that names jars elsewhere, and says nothing."""
    java = Java(str(tmp_path / "java"), 17, "17.0.15+6")
    here = session._archive(java).path
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    assert session._archive(java).path != here


def test_no_thread_runs_when_workers_are_forked() -> None:
    """A thread of NumPy's or PyArrow's libraries would be missing in every worker."""
    count = "import os; print(len(os.listdir('/proc/self/task')))"
    code = f"import analysis.spark.daemon as d; d.import_for_judging(); {count}"
    answer = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, **session._WORKER_MEMORY, **session._FORKED},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert answer.stdout == "1\n"


class _TextInTheJvm(Exception):
    def __str__(self) -> str:
        raise ConnectionRefusedError("the JVM is gone")


def test_a_failure_can_be_told_when_spark_has_gone() -> None:
    assert spark_reason(_TextInTheJvm()) == "_TextInTheJvm, and Spark has gone"
    assert (
        spark_reason(ValueError("first\nPythonException: the reason"))
        == "PythonException: the reason"
    )


def test_masters() -> None:
    assert is_local(None)
    assert is_local("local[2]")
    assert not is_local("spark://127.0.0.1:7077")
    assert is_local(default_master())


@pytest.mark.long
def test_executors_need_only_numpy_and_pyarrow(tmp_path: Path) -> None:
    """What is shipped imports from a zip alone, with every other library of ours out of reach."""
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file, name in module_files():
            out.write(file, name)
    script = f"""
import sys
sys.path.insert(0, {str(archive)!r})
ALLOWED = {{"numpy", "pyarrow", "analysis", "harness"}} | sys.stdlib_module_names

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ALLOWED:
            raise ImportError(f"an executor has no {{name}}")

sys.meta_path.insert(0, Wall())
import analysis.spark.probe
import analysis.spark.task
assert analysis.spark.task.__file__.startswith({str(archive)!r}), analysis.spark.task.__file__
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_failed_opening_is_raised_where_the_session_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("analysis.spark.session.active", lambda: None)  # that of tests before
    warm = WarmSession()
    warm.start()  # on its thread, nothing is raised here
    with pytest.raises(EnvironmentNotReady, match="Java not found"):
        warm.get()
    warm.close()
