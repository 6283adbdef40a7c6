"""Finds and checks the Java that Spark runs on, and makes it start faster from the second time on.

Loading Spark's classes is most of what starting it costs. A Java class-data archive (JEP 350) keeps them
in parsed form: a session opens in about half the time. Writing one costs some ten seconds when a JVM exits,
so it is done on request (`analysis.spark.session.record_classes`, part of setting up) and used when it is
there. It depends on nothing but the Java and Spark versions and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from harness.errors import EnvironmentNotReady

MIN_JAVA = 17  # class files of Spark 4 are Java 17
_CHECK_TIMEOUT_S = 20.0
#: What an archive begins with until it is whole: the header is written last.
_UNWRITTEN = b"\0\0\0\0"


@dataclass(frozen=True, slots=True)
class Java:
    """``version``: feature version, e.g. 17. ``build``: everything ``java -version`` says."""

    path: Path
    version: int
    build: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The java that Spark would start: JAVA_HOME's, else the one on PATH.

    Raises:
        EnvironmentNotReady: none found, it does not run, or it is too old.
    """
    home = environment.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    hint = f"install a Java {MIN_JAVA}+ runtime, or point JAVA_HOME at one"
    if not found:
        raise EnvironmentNotReady("Java not found: no java on PATH and JAVA_HOME is not set", hint=hint)
    where = f"{found} (JAVA_HOME={home})" if home else found
    try:
        out = subprocess.run(
            [found, "-version"], capture_output=True, text=True, timeout=_CHECK_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentNotReady(f"Java does not run: {where}: {error}", hint=hint) from error
    build = out.stderr + out.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', build)
    version = int(match[1]) if match else 0
    if version < MIN_JAVA:
        raise EnvironmentNotReady(f"Java {version} is too old for Spark: {where}", hint=hint)
    return Java(Path(found), version, build)


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive of one Java, Spark and set of JVM flags is, or would be."""

    path: Path

    @classmethod
    def locate(cls, java: Java, spark_version: str, flags: Sequence[str]) -> ClassArchive | None:
        """None where the cache cannot be written. What a killed JVM left half written is removed."""
        key = "\n".join([java.build, str(java.path.resolve()), spark_version, *flags])
        name = f"spark-{spark_version}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"
        folder = _cache_folder() / "classes"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            if path.exists() and _is_broken(path):
                path.unlink()
        except OSError:
            return None
        if not os.access(folder, os.W_OK):
            return None
        return cls(path)

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def options(self, *, record: bool) -> list[str]:
        """JVM options that use the archive; with ``record``, that write it if there is none."""
        if self.exists:
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto"]
        return [f"-XX:ArchiveClassesAtExit={self.path}"] if record else []


def _is_broken(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_UNWRITTEN)) in (b"", _UNWRITTEN)


def _cache_folder() -> Path:
    override = os.environ.get("BROKERSTORM_CACHE")
    return Path(override).expanduser() if override else platformdirs.user_cache_path("brokerstorm")
