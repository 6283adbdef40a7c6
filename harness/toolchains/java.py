"""Finds the installed Java: JAVA_HOME first, then the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.errors import EnvironmentNotReady

_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
INSTALL_HINT = "install a JDK or JRE 17 (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME"
NEWER_HINT = "set JAVA_HOME to a JDK or JRE {minimum} or newer, or take an older version of the brokers"


@dataclass(frozen=True, slots=True)
class Java:
    path: str
    major: int
    text: str


def find_java(minimum: int = 0) -> Java:
    """The Java that broker processes get.

    Raises:
        EnvironmentNotReady: none found, one that does not start, or one older than ``minimum``.
    """
    home = os.environ.get("JAVA_HOME", "")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if path is None or not Path(path).exists():
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java on the PATH"
        raise EnvironmentNotReady(f"Java not found: {where}", hint=INSTALL_HINT)
    java = _probe(path)
    if java.major < minimum:
        raise EnvironmentNotReady(
            f"Java {java.major} ({path}) is too old: this version needs Java {minimum} or newer",
            hint=INSTALL_HINT if minimum <= 17 else NEWER_HINT.format(minimum=minimum),
        )
    return java


@lru_cache(maxsize=8)
def _probe(path: str) -> Java:
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReady(f"{path} does not start: {error}", hint=INSTALL_HINT) from error
    output = done.stderr + done.stdout
    match = _VERSION.search(output)
    if done.returncode != 0 or match is None:
        first = (output.strip().splitlines() or ["no output"])[0]
        raise EnvironmentNotReady(f"{path} -version failed: {first}", hint=INSTALL_HINT)
    return Java(path, int(match[1]), match.string[: match.end()].strip().splitlines()[-1])
