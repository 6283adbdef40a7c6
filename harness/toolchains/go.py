"""The installed Go, and building a program with it once: for Go workers and for the network
proxy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from harness.errors import EnvironmentNotReady, WorkerError
from harness.toolchains.versions import numbers

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

    @property
    def number(self) -> tuple[int, ...]:
        """``(1, 26, 8)``; empty for a development build, which has no number."""
        found = re.search(r"go(\d+(?:\.\d+)+)", self.text)
        return tuple(map(int, found[1].split("."))) if found else ()


def go_for(what: str, *modules: Path) -> Go:
    """The installed Go, if it is new enough for these modules.

    Go is run with ``GOTOOLCHAIN=local``: it builds nothing whose ``go.mod`` names a newer Go in its
    ``go`` line. A ``toolchain`` line only suggests a version and is not looked at.

    Args:
        what: what is built, for messages.
        modules: folders with a ``go.mod``.

    Raises:
        EnvironmentNotReady: no Go is installed, or it is too old.
    """
    go = find_go()
    lines = [
        found[1]
        for module in modules
        if (
            found := re.search(
                r"^go\s+(\d+(?:\.\d+)+)", (module / "go.mod").read_text(), re.MULTILINE
            )
        )
    ]
    least = max(lines, key=numbers, default="")
    if go.number and least and go.number < numbers(least):
        raise EnvironmentNotReady(
            f"{go.text!r} is too old for {what}, which needs Go {least}",
            hint=f"install Go {least} or newer and have `go` on PATH",
        )
    return go


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
    go = Go(path, text)
    if go.number and go.number[:2] < OLDEST_GO:
        raise EnvironmentNotReady(f"{text!r} is too old", hint=GO_HINT)
    return go


def build_once(
    what: str, binary: Path, build: Callable[[Path, Path], None], timeout_s: float = BUILD_TIMEOUT_S
) -> None:
    """Build, unless it is there or another process just did. The binary appears complete, by one
    rename.

    Args:
        what: name of the program, for messages.
        build: called with an empty folder and the path to write the binary to.
        timeout_s: another process that builds it is waited for as long.

    Raises:
        WorkerError: another process takes too long, or the cache cannot be written; what ``build``
            raises.
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
    lines = [
        line
        for line in output.splitlines()
        if line.strip() and not line.startswith(("go: downl", "#"))
    ]
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


def is_released(go: Go, module: str, version: str) -> bool:
    """Whether the module proxy has this version; lists leave out retracted ones and may lag.

    Raises:
        EnvironmentNotReady: the proxy does not answer.
    """
    try:
        done = run_go([go.path, "list", "-m", f"{module}@v{version}"], Path("/"), LIST_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentNotReady(f"the Go module proxy does not answer about {module}") from error
    if done.returncode == 0:
        return True
    if re.search(r"unknown revision|invalid version|not found", done.stderr):
        return False
    raise EnvironmentNotReady(
        f"the Go module proxy does not answer about {module}: {first_error(done.stderr)}"
    )


def listed_versions(go: Go, *modules: str) -> list[str]:
    """Versions that the module proxy has of modules, in no order; none when it does not tell.

    Raises:
        subprocess.TimeoutExpired: not in time.
    """
    listed = run_go([go.path, "list", "-m", "-versions", *modules], Path("/"), LIST_TIMEOUT_S)
    return [text.removeprefix("v") for text in listed.stdout.split() if re.match(r"v\d", text)]
