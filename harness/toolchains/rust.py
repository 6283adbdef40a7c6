"""The installed Rust: finding cargo, running it, and what its package registry has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from harness.errors import EnvironmentNotReady

#: A first build of a client in C compiles it, and OpenSSL: minutes on two cores, more on a busy
#: machine.
BUILD_TIMEOUT_S: Final = 1800.0
LIST_TIMEOUT_S: Final = 60.0
#: Packages of today ask for it.
OLDEST_RUST: Final = (1, 85)
RUST_HINT: Final = (
    "install Rust 1.85 or newer (rustup, or Debian's cargo-web) and have `cargo` on PATH"
)
#: Not the user's: other flags would give another program, another target another place.
_ENVIRONMENT: Final = {
    "CARGO_ENCODED_RUSTFLAGS": "",
    "CARGO_INCREMENTAL": "0",
    "CARGO_TERM_COLOR": "never",
    "CARGO_TERM_PROGRESS_WHEN": "never",
}
_NOT_INHERITED: Final = ("CARGO_BUILD_TARGET", "CARGO_TARGET_DIR", "MAKEFLAGS", "RUST_BACKTRACE")


@dataclass(frozen=True, slots=True)
class Rust:
    """A Rust toolchain; ``text`` is what ``cargo --version`` says."""

    cargo: str
    text: str


def cargo_home() -> Path:
    """Where cargo keeps what it downloads."""
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")


@cache
def find_rust() -> Rust:
    """The installed Rust.

    Raises:
        EnvironmentNotReady: there is none, or it is too old.
    """
    usual = cargo_home() / "bin" / "cargo"
    path = shutil.which("cargo") or (str(usual) if usual.exists() else None)
    if path is None:
        raise EnvironmentNotReady("Rust is needed and cargo is not installed", hint=RUST_HINT)
    text = run_cargo([path, "--version"], Path.cwd(), LIST_TIMEOUT_S).stdout.strip()
    number = re.search(r"cargo (\d+)\.(\d+)", text)
    if number is None:
        raise EnvironmentNotReady(f"{path} does not say which Rust it is", hint=RUST_HINT)
    if (int(number[1]), int(number[2])) < OLDEST_RUST:
        raise EnvironmentNotReady(f"{text!r} is too old", hint=RUST_HINT)
    return Rust(path, text)


def run_cargo(
    command: list[str], folder: Path, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a ``cargo`` command in a folder."""
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return subprocess.run(
        command,
        cwd=folder,
        env={**inherited, **_ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def first_error(output: str) -> str:
    """Cargo's first complaint, with the reason that it gives."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    found = next((number for number, line in enumerate(lines) if line.startswith("error")), None)
    if found is None:
        return lines[-1][:300] if lines else "no output"
    because = [line for before, line in pairwise(lines) if before == "Caused by:"]
    return ": ".join([lines[found].removeprefix("error: "), *because[-1:]])[:300]


def listed_versions(rust: Rust, crate: str, folder: Path) -> list[str]:
    """Versions that the registry has of a package, without those that were taken back; in no order.

    No command of cargo tells them. It keeps what the registry told of a package, a line of JSON for
    each version, once it has looked for the newest one. None when it does not tell.

    Args:
        folder: an empty one, for a package that asks for it.

    Raises:
        subprocess.TimeoutExpired: not in time.
    """
    (folder / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "asks"\nversion = "0.0.0"\nedition = "2021"\n\n[lib]\npath = "lib.rs"\n\n'
        f'[dependencies]\n{crate} = "*"\n\n[workspace]\n'
    )
    run_cargo([rust.cargo, "generate-lockfile"], folder, LIST_TIMEOUT_S)
    kept = (cargo_home() / "registry" / "index").glob(f"*/.cache/*/*/{crate}")
    parts = [
        part for path in kept for part in path.read_bytes().split(b"\0") if part.startswith(b"{")
    ]
    try:
        rows = [json.loads(part) for part in parts]
        return list(dict.fromkeys(row["vers"] for row in rows if not row.get("yanked")))
    except (ValueError, LookupError):
        return []
