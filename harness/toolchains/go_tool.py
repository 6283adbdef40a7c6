"""A program of ours in Go that a cluster needs: built on first use from its module, kept in the
cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import EnvironmentNotReady, WorkerError
from harness.toolchains.cache import cache_folder
from harness.toolchains.go import (
    BUILD_TIMEOUT_S,
    GO_HINT,
    Go,
    build_once,
    first_error,
    go_for,
    run_go,
)

#: The oldest Go that builds them.
_GO: Final = "1.24"
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A text in a source file of an imported module that is replaced before the build.

    Attributes:
        file: below the folder ``vendor`` of the module.
        old: occurs there once.
        new: the text to have instead.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class GoTool:
    """One such program.

    Attributes:
        name: with the version that it is of.
        what: what it is, for messages.
        needed_by: what needs it, for messages.
        module: folder of its sources.
        changes: in what it imports.
    """

    name: str
    what: str
    needed_by: str
    module: Path
    changes: Sequence[SourceChange] = ()

    def path(self, go: Go) -> Path:
        """Where the program is, or would be."""
        release = go.text.split()[2] if len(go.text.split()) > 2 else "go"
        sources = b"".join(path.read_bytes() for path in sorted(self.module.iterdir()))
        sources += "".join(one.file + one.old + one.new for one in self.changes).encode()
        key = f"{self.name.replace(' ', '-')}-{release}-{hashlib.sha256(sources).hexdigest()[:8]}"
        return cache_folder() / "tools" / key / self.name.split()[0]

    def fetch(self, *, offline: bool = False, on_progress: Progress | None = None) -> Path:
        """The program; downloads what it imports and builds it on first use.

        Raises:
            EnvironmentNotReady: no Go, not in the cache and offline, or it does not build.
        """
        try:
            go = go_for(self.name, self.module)
        except EnvironmentNotReady as error:
            raise EnvironmentNotReady(
                f"{self.needed_by} need the {self.what} {self.name}, which is built with Go: {error}",
                hint=GO_HINT.replace("1.19", _GO),
            ) from None
        binary = self.path(go)
        if binary.exists():
            return binary
        if offline:
            raise EnvironmentNotReady(
                f"{self.name}, for {self.needed_by}, is not in the cache and --offline forbids fetching it",
                hint="run once without --offline, or `brokerstorm fetch` the scenario",
            )
        report = on_progress or (lambda text, share: None)
        report(f"building {self.name} with Go, once", None)
        try:
            build_once(self.name, binary, lambda folder, part: self._build(go, folder, part))
        except WorkerError as error:
            raise EnvironmentNotReady(str(error), hint=error.hint) from error
        report(f"{self.name} built", 1.0)
        return binary

    def readiness(self) -> tuple[bool, str, str]:
        """Whether it is available: yes or no, what was found, what to do."""
        try:
            go = go_for(self.name, self.module)
        except EnvironmentNotReady as error:
            text = f"{self.name}, which {self.needed_by} need, is built with Go: {error}"
            return False, text, error.hint
        built = self.path(go).exists()
        return True, self.name if built else f"{self.name}, to be built on first use", ""

    def _build(self, go: Go, folder: Path, part: Path) -> None:
        sources, built = folder / "sources", folder / "program"
        shutil.copytree(self.module, sources)
        if self.changes:
            self._run(go, ["mod", "vendor"], sources)
            for change in self.changes:
                self._apply(change, sources / "vendor")
        self._run(go, ["build", "-trimpath", "-buildvcs=false", "-o", str(built), "."], sources)
        # Not a rename: the cache may be on another file system.
        part.write_bytes(built.read_bytes())
        part.chmod(0o755)

    def _apply(self, change: SourceChange, vendor: Path) -> None:
        file = vendor / change.file
        text = file.read_text()
        if text.count(change.old) != 1:
            raise EnvironmentNotReady(f"{self.name}: {change.file} is not the source that it was")
        file.write_text(text.replace(change.old, change.new))

    def _run(self, go: Go, arguments: list[str], folder: Path) -> None:
        try:
            done = run_go([go.path, *arguments], folder, BUILD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise EnvironmentNotReady(
                f"go {arguments[0]} of {self.name} took over {BUILD_TIMEOUT_S:.0f} s"
            ) from None
        if done.returncode:
            raise EnvironmentNotReady(
                f"{self.name} does not build with {go.text}: {first_error(done.stderr)}",
                hint=f"Go {_GO} or newer and the Go module proxy are needed",
            )
