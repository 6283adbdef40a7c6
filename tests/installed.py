"""brokerstorm installed into an environment of its own, and a folder of modules that could get in
its way."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Names of our modules at the top of the tree.
NAMES = ("analysis", "cli", "commands", "experiments", "faults", "harness", "workers")
TIMEOUT_S = 300.0


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **options
    )


def build(target: str, folder: Path, *, tree: Path = ROOT) -> Path:
    """The ``wheel`` or ``sdist`` of a tree."""
    folder.mkdir(exist_ok=True)
    done = run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)], cwd=tree
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.iterdir()
    return made


@dataclass(frozen=True)
class Installed:
    """An environment with brokerstorm, and a folder of hostile modules that is on PYTHONPATH."""

    environment: Path
    hostile: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.environment / "bin" / "brokerstorm"

    @property
    def surroundings(self) -> dict[str, str]:
        """The environment of this process, with the hostile folder on PYTHONPATH."""
        return {**os.environ, "PYTHONPATH": str(self.hostile)}

    def call(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command that is started in the hostile folder."""
        return run([*command], cwd=self.hostile, env=self.surroundings | variables)


def hostile_folder(folder: Path) -> Path:
    """Modules of a user's own that are named like ours and cannot be imported in their place."""
    for name in NAMES:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            f"raise RuntimeError('the {name}/ of somebody else')\n"
        )
        (folder / f"{name}.py").write_text(
            f"raise RuntimeError('the {name}.py of somebody else')\n"
        )
    return folder


def install(distribution: Path, folder: Path) -> Installed:
    """Install a wheel or sdist, or a checkout as editable, into an empty environment.

    What it depends on is seen where it is for these tests.
    """
    editable = ["--editable"] if distribution.is_dir() else []
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{dependencies()}\n")
    done = run(
        [
            sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"),
            "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--no-compile",
            "--force-reinstall", *editable, str(distribution),
        ],
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return Installed(environment, hostile_folder(folder / "hostile"))


def dependencies() -> Path:
    """The folder of the libraries that these tests run with."""
    return Path(str(importlib.metadata.distribution("click").locate_file("")))
