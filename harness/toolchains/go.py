"""The installed Go, and building a program with it once: for Go workers and for the network proxy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from harness.errors import EnvironmentNotReady, WorkerError

#: A first build downloads some 20 modules and compiles the standard library: 10 to 50 s.
BUILD_TIMEOUT_S = 300.0
LIST_TIMEOUT_S = 30.0
OLDEST_GO = (1, 19)
GO_HINT = "install Go 1.19 or newer (Debian: apt install golang-go) and have `go` on PATH"
USUAL_PLACE = Path("/usr/local/go/bin/go")
#: Not the user's: a vendor folder, a workspace or another toolchain would give another binary.
_ENVIRONMENT = {
    "GOWORK": "off",
    "GOFLAGS": "",
    "GO111MODULE": "on",
    "GOTOOLCHAIN": "local",
    "CGO_ENABLED": "0",
}


@dataclass(frozen=True, slots=True)
class Go:
    """A Go toolchain; ``text`` is what ``go version`` says."""

    path: str
    text: str


@cache
def find_go() -> Go:
    """The installed Go.

    Raises:
        EnvironmentNotReady: there is none, or it is too old.
    """
    path = shutil.which("go") or (str(USUAL_PLACE) if USUAL_PLACE.exists() else None)
    if path is None:
        raise EnvironmentNotReady("Go is needed and is not installed", hint=GO_HINT)
    text = run_go([path, "version"], Path.cwd(), LIST_TIMEOUT_S).stdout.strip()
    number = re.search(r"go(\d+)\.(\d+)", text)
    if number is not None and (int(number[1]), int(number[2])) < OLDEST_GO:
        raise EnvironmentNotReady(f"{text!r} is too old", hint=GO_HINT)
    return Go(path, text)


def build_once(
    what: str, binary: Path, build: Callable[[Path, Path], None], timeout_s: float = BUILD_TIMEOUT_S
) -> None:
    """Build, unless it is there or another process just did. The binary appears complete, by one rename.

    Args:
        what: name of the program, for messages.
        build: called with an empty folder and the path to write the binary to.
        timeout_s: another process that builds it is waited for as long.

    Raises:
        WorkerError: another process takes too long, or the cache cannot be written; what ``build`` raises.
    """
    try:
        binary.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{binary.parent}.lock", timeout=timeout_s):
            if binary.exists():
                return
            with tempfile.TemporaryDirectory(prefix="brokerstorm-go-") as name:
                part = binary.with_name(f"{binary.name}.part")
                build(Path(name), part)
                os.replace(part, binary)
    except Timeout as error:
        raise WorkerError(f"{what}: another process is still building it") from error
    except OSError as error:
        raise WorkerError(
            f"cannot write to the cache {binary.parent.parent}: {error.strerror or error}"
        ) from error


def first_error(output: str) -> str:
    """Go's first complaint; what it downloads it says there too."""
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(("go: downl", "#"))]
    return lines[0].removeprefix("go: ").strip()[:300] if lines else "no output"


def run_go(
    command: list[str], folder: Path, timeout_s: float, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a ``go`` command in a folder; ``variables`` go into its environment."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **_ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def listed_versions(go: Go, *modules: str) -> list[str]:
    """Versions that the module proxy has of modules, in no order; none when it does not tell.

    Raises:
        subprocess.TimeoutExpired: not in time.
    """
    listed = run_go([go.path, "list", "-m", "-versions", *modules], Path("/"), LIST_TIMEOUT_S)
    return [text.removeprefix("v") for text in listed.stdout.split() if re.match(r"v\d", text)]


def numbers(version: str) -> list[int]:
    """The numbers in a version, for comparing."""
    return [int(part) for part in re.findall(r"\d+", version)]


def nearest(version: str, known: Sequence[str], count: int = 4) -> list[str]:
    """The known versions around one that is not known, in their order."""
    ordered = sorted(known, key=numbers)
    place = sum(numbers(each) < numbers(version) for each in ordered)
    first = max(0, min(place - count // 2, len(ordered) - count))
    return ordered[first : first + count]
