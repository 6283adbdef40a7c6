"""The box that goes to every task: the harness, what it needs of Python packages, and the workers'
programs.

    code/      the harness itself
    site/      packages that it needs there besides NumPy and PyArrow
    files/N/   what a worker's command names here: folder, kit, jars, classes, binary, packages

Executors start with empty folders and no PYTHONPATH. Their own Python and Java run what comes with
the box.
"""

from __future__ import annotations

import re
import sys
import tarfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from harness.errors import UsageError
from harness.toolchains.cache import cache_folder
from harness.workers import KIT
from harness.workers.spec import WorkerSpec

_ROOT: Final = Path(__file__).resolve().parents[2]
#: Sealing checks documents and locks its folder; a worker's words for what clusters ask are a
#: package.
_NEEDED: Final = ("pydantic", "filelock", "pyyaml", "platformdirs")
#: Executors have these, for judging.
_THERE: Final = frozenset({"numpy", "pyarrow"})
_PATHS: Final = re.compile(r"([:=,])")


class Box:
    """Collects what goes into it; `write` makes the archive."""

    def __init__(self) -> None:
        self._files: dict[Path, str] = {}
        self._packages: dict[str, Path] = {}
        for name in _NEEDED:
            self._packages |= _packages_of(name)

    def relocated(
        self, worker: WorkerSpec, argv: Sequence[str], env: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """The command of a worker, and its environment, as they are in the box: ``{box}``,
        ``{python}`` and ``{java}`` are replaced by what only the task knows. What they name here is
        put into it.

        Raises:
            UsageError: it names a program that no other machine has.
        """
        words = [self._word(worker, word) for word in argv]
        changes = {key: self._word(worker, value) for key, value in env.items()}
        if worker.language == "python":
            words[0] = "{python}"
            sites = self._site(worker, Path(argv[0]))
            changes["PYTHONPATH"] = ":".join([changes["PYTHONPATH"], *sites])
        elif worker.language == "java":
            words[0] = "{java}"
        elif not words[0].startswith("{box}"):
            raise UsageError(
                f"{worker.library}: {argv[0]} is a program of this machine, which no executor has",
                hint="a worker that another machine starts is Python, Java, or a file that its build makes",
            )
        return words, changes

    def _word(self, worker: WorkerSpec, word: str) -> str:
        return "".join(self._place(worker, text) for text in _PATHS.split(word))

    def _place(self, worker: WorkerSpec, text: str) -> str:
        """Where a path of ours is in the box; any other text as it is."""
        if not text.startswith("/"):
            return text
        path, rest = Path(text), ""
        if path.name == "*":  # of a class path
            path, rest = path.parent, "/*"
        for root in (worker.folder, KIT):
            if path.is_relative_to(root):
                return f"{self._add(root)}/{path.relative_to(root)}".removesuffix("/.") + rest
        if path.exists() and path.is_relative_to(cache_folder()):
            return self._add(path) + rest
        return text

    def _add(self, path: Path) -> str:
        return "{box}/" + self._files.setdefault(path, f"files/{len(self._files)}")

    def _site(self, worker: WorkerSpec, python: Path) -> list[str]:
        """Folders of the packages that a Python client consists of."""
        if python != Path(sys.executable):  # an environment of its own
            own = sorted(python.parent.parent.glob("lib/python*/site-packages"))
            return [self._add(path) for path in own]
        for package in worker.python.packages or [worker.library]:
            name = re.split(r"[=<>!~\[ ]", package, maxsplit=1)[0]
            self._packages |= _packages_of(name)
        return ["{box}/site"]

    def write(self, path: Path) -> None:
        """The archive, without compression: most of it is compressed or small."""
        with tarfile.open(path, "w") as out:
            for source in sorted((_ROOT / "harness").rglob("*.py")):
                out.add(source, f"code/{source.relative_to(_ROOT)}")
            for name, source in self._packages.items():
                out.add(source, f"site/{name}")
            for source, name in self._files.items():
                out.add(source, name, filter=_without_caches)


def _without_caches(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if info.name.endswith("__pycache__") else info


def _packages_of(name: str, seen: set[str] | None = None) -> dict[str, Path]:
    """The files of an installed distribution and of those that it needs, by their names in
    ``site``."""
    seen = set() if seen is None else seen
    seen.add(name)
    found: dict[str, Path] = {}
    distribution = metadata.distribution(name)
    for file in distribution.files or ():
        path = Path(str(file.locate()))
        if ".." not in file.parts and path.is_file() and "__pycache__" not in file.parts:
            found[file.as_posix()] = path
    for text in distribution.requires or ():
        needed = Requirement(text)
        applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
        if applies and needed.name.lower() not in seen | _THERE:
            found |= _packages_of(needed.name.lower(), seen)
    return found
