"""A program that is published as a Go package: built at any version, or from sources, on first
use."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.toolchains.cache import cache_folder
from harness.toolchains.go import (
    BUILD_TIMEOUT_S,
    Go,
    build_once,
    find_go,
    first_error,
    is_released,
    listed_versions,
    run_go,
)
from harness.toolchains.own_builds import OwnBuild, failed_build
from harness.toolchains.versions import others_hint

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class GoProgram:
    """One version of a program; its modules come through the Go module proxy.

    Attributes:
        package: path of the package, which is also its module's:
            ``github.com/nats-io/nats-server/v2``.
        version: without a ``v``.
        own: the user's sources that it is built from; None = a released version.
    """

    package: str
    version: str
    own: OwnBuild | None = None
    #: A server in Go is given the addresses of the others, and reads no hosts file of ours.
    reads_hosts_file: ClassVar[bool] = False
    clock_refusal: ClassVar[str] = "programs in Go ask the kernel, not a library"
    first_use: ClassVar[str] = "to be built with Go on first use"

    @property
    def name(self) -> str:
        """Return the program's name, without the major version in its path."""
        return next(
            part for part in reversed(self.package.split("/")) if not re.fullmatch(r"v\d+", part)
        )

    @property
    def place(self) -> Path:
        """Where the binary is, or would be; changes with all that it is made of."""
        made_of = f"{find_go().text}\n{self.package}\n{self.own.key if self.own else ''}"
        digest = hashlib.sha256(made_of.encode()).hexdigest()[:12]
        return cache_folder() / "programs" / f"{self.name}-{self.version}-{digest}" / self.name

    def parts(self) -> dict[str, Path]:
        """Return the files of the program in an image, by their names there; `fetch` makes them."""
        return {self.name: self.place}

    def require_tools(self) -> None:
        """Raise unless this machine has what builds it.

        Raises:
            EnvironmentNotReady: no Go, or it is too old.
        """
        find_go()

    def fetch(self, *, offline: bool = False, on_progress: Progress | None = None) -> Path:
        """The binary.

        Raises:
            EnvironmentNotReady: no Go, not in the cache and offline, or it does not build.
            UsageError: the version does not exist.
        """
        go, binary = find_go(), self.place
        if binary.exists():
            return binary
        what = self.own.label if self.own else self.version
        if offline:
            raise EnvironmentNotReady(
                f"{self.name} {what} is not in the cache and --offline forbids fetching it",
                hint="run once without --offline, or `brokerstorm fetch` the scenario",
            )
        report = on_progress or (lambda text, share: None)
        report(f"building {self.name} {what} with Go, once", None)
        try:
            build_once(self.name, binary, lambda folder, part: self._build(go, folder, part))
        except WorkerError as error:
            raise EnvironmentNotReady(str(error), hint=error.hint) from error
        report(f"{self.name} {what} built", 1.0)
        return binary

    def released(self) -> list[str]:
        """Versions that the module proxy has, in no order.

        Raises:
            EnvironmentNotReady: Go is not installed or too old, or the proxy does not answer.
        """
        try:
            known = listed_versions(find_go(), self.package)
        except subprocess.TimeoutExpired as error:
            raise EnvironmentNotReady(
                f"go does not list the versions of {self.name} in time"
            ) from error
        if not known:
            raise EnvironmentNotReady(
                f"go lists no version of {self.name}",
                hint=f"`go list -m -versions {self.package}` shows why; GOPROXY names the module proxy",
            )
        return known

    def is_released(self) -> bool:
        """Whether the module proxy has this version.

        Raises:
            EnvironmentNotReady: Go is not installed or too old, or the proxy does not answer.
        """
        return is_released(find_go(), self.package, self.version)

    def _build(self, go: Go, folder: Path, part: Path) -> None:
        built = folder / "bin" / self.name
        source = self.own.copy(folder / "source") if self.own else folder
        what = (
            ["build", "-o", str(built), "."]
            if self.own
            else ["install", f"{self.package}@v{self.version}"]
        )
        command = [go.path, what[0], "-trimpath", "-buildvcs=false", *what[1:]]
        try:
            done = run_go(command, source, BUILD_TIMEOUT_S, GOBIN=str(built.parent))
        except subprocess.TimeoutExpired:
            raise EnvironmentNotReady(
                f"go build of {self.name} took over {BUILD_TIMEOUT_S:.0f} s"
            ) from None
        if done.returncode:
            raise self._failure(go, done.stderr)
        # Not a rename: the cache may be on another file system.
        part.write_bytes(built.read_bytes())
        part.chmod(0o755)

    def _failure(self, go: Go, output: str) -> Exception:
        said = first_error(output)
        if self.own:
            return failed_build(
                f"{self.name} {self.own.label}", f"{self.name}-{self.own.key}", said, output
            )
        known = listed_versions(go, self.package)
        if known and self.version not in known:
            hint = others_hint(self.version, known)
            return UsageError(f"{self.name} has no version {self.version}", hint=hint)
        newer = re.search(r"requires go >= ([0-9.]+)", output)
        hint = f"install Go {newer[1]} or newer" if newer else "the Go module proxy is needed"
        return EnvironmentNotReady(
            f"{self.name} {self.version} does not build with {go.text}: {said}", hint=hint
        )
