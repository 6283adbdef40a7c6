"""The session's parts that need no JVM."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from analysis.spark.jvm import (
    ClassArchive,
    Java,
    find_java,
)
from analysis.spark.session import (
    WarmSession,
    default_master,
    is_local,
    module_files,
)
from harness.errors import EnvironmentNotReady


def fake_java(folder: Path, version_line: str, *, code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\nexit {code}\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


def path_to(java: Path) -> dict[str, str]:
    return {"PATH": f"{java.parent}{os.pathsep}/bin"}


def test_java_is_found_on_path_without_java_home(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')
    found = find_java(path_to(java))
    assert (found.path, found.version) == (java, 21)


def test_java_home_comes_first(tmp_path: Path) -> None:
    other = fake_java(tmp_path / "a", 'openjdk version "11.0.2"')
    java = fake_java(tmp_path / "b", 'openjdk version "17.0.15"')
    found = find_java({**path_to(other), "JAVA_HOME": str(tmp_path / "b")})
    assert (found.path, found.version) == (java, 17)


@pytest.mark.parametrize(
    ("line", "found"), [('java version "1.8.0_392"', 8), ('openjdk version "11.0.2"', 11)]
)
def test_an_old_java_is_refused_by_number(tmp_path: Path, line: str, found: int) -> None:
    java = fake_java(tmp_path, line)
    with pytest.raises(EnvironmentNotReady, match=f"Java {found} is too old") as caught:
        find_java(path_to(java))
    assert "17" in caught.value.hint


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match="Java not found"):
        find_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match=f"JAVA_HOME={tmp_path}"):
        find_java({"PATH": "/bin", "JAVA_HOME": str(tmp_path)})


def test_a_java_that_fails_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotReady, match="does not run"):
        find_java(path_to(fake_java(tmp_path, "cannot allocate memory", code=1)))


def test_the_class_archive_is_written_once_for_a_java_and_a_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    java = Java(tmp_path / "java", 17, "17.0.15+6")
    first = ClassArchive.locate(java, "4.3.0", ["-XX:+UseSerialGC"])
    assert first is not None
    assert first.options(record=True) == [f"-XX:ArchiveClassesAtExit={first.path}"]
    assert first.options(record=False) == []
    first.path.write_bytes(b"\xf0\x0b\xab\xa8 and the rest")
    second = ClassArchive.locate(java, "4.3.0", ["-XX:+UseSerialGC"])
    assert second is not None
    assert f"-XX:SharedArchiveFile={first.path}" in second.options(record=True)
    other = ClassArchive.locate(Java(java.path, 21, "21.0.2"), "4.3.0", ["-XX:+UseSerialGC"])
    assert other is not None
    assert other.path != first.path


@pytest.mark.parametrize("content", [b"", b"\0" * 100])
def test_a_class_archive_cut_off_while_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path))
    java = Java(tmp_path / "java", 17, "17.0.15+6")
    first = ClassArchive.locate(java, "4.3.0", [])
    assert first is not None
    first.path.write_bytes(content)
    again = ClassArchive.locate(java, "4.3.0", [])
    assert again is not None
    assert not again.exists


def test_masters() -> None:
    assert is_local(None)
    assert is_local("local[2]")
    assert not is_local("spark://127.0.0.1:7077")
    assert is_local(default_master())


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
        [sys.executable, "-I", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_failed_opening_is_raised_where_the_session_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    warm = WarmSession()
    warm.start()  # on its thread, nothing is raised here
    with pytest.raises(EnvironmentNotReady, match="Java not found"):
        warm.get()
    warm.close()
