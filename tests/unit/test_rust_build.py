"""Rust workers: what a version means, what is built when, and clear words when it cannot be."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.toolchains import rust
from harness.toolchains.own_builds import asked_build
from harness.workers import rust_build
from harness.workers.spec import WorkerSpec

BUILD: dict[str, Any] = {
    "default": "0.39.0", "crate": "client", "from": "0.29.0", "features": {"is_newer": "0.37.0"},
}  # fmt: skip
MANIFEST = """
[package]
name = "hello"
version = "0.0.0"
edition = "2021"

[features]
is_newer = []

[dependencies]
client = { version = "0.39.0", default-features = false }

[workspace]
"""
needs_rust = pytest.mark.skipif(
    shutil.which("cargo") is None and not (rust.cargo_home() / "bin" / "cargo").exists(),
    reason="needs Rust",
)


@pytest.fixture(autouse=True)
def _fresh_look_for_rust() -> Iterator[None]:
    rust.find_rust.cache_clear()
    yield
    rust.find_rust.cache_clear()


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerSpec:
    """A worker that says which client it was built with, and needs nothing from a registry."""
    monkeypatch.setenv("BROKERSTORM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "worker"
    write(folder / "Cargo.toml", MANIFEST)
    write(
        folder / "src" / "main.rs",
        'fn main() { println!("{} {}", client::NAME, cfg!(feature = "is_newer")); }\n',
    )
    return WorkerSpec.read(folder, {
        "library": "hello", "system": "kafka", "about": "", "language": "rust", "roles": ["producer"],
        "entry": "src/main.rs", "versions": "all", "rust": BUILD,
    })  # fmt: skip


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def own(folder: Path, version: str, name: str = "client") -> Path:
    """The package of a client."""
    write(
        folder / "Cargo.toml",
        f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2021"\n',
    )
    write(folder / "src" / "lib.rs", f'pub const NAME: &str = "{version}";\n')
    return folder


def silent(text: str, share: float | None) -> None:
    """Hears nothing."""


@pytest.mark.parametrize(
    ("version", "taken"),
    [("", "0.39.0"), ("0.29.0", "0.29.0"), ("v0.36.2", "0.36.2"), ("0.40.0-rc.1", "0.40.0-rc.1")],
)
def test_a_version_is_that_of_the_package(worker: WorkerSpec, version: str, taken: str) -> None:
    assert rust_build.client_of(worker, version).version == taken


@pytest.mark.parametrize("version", ["newest", "1.2", "0.28.0", "; rm -rf /"])
def test_what_is_no_version_is_refused(worker: WorkerSpec, version: str) -> None:
    with pytest.raises(UsageError, match="hello"):
        rust_build.client_of(worker, version)
    with pytest.raises(UsageError):
        rust_build.readiness(worker, version)


def test_sources_ask_for_the_version_and_for_the_kit_beside_them(worker: WorkerSpec) -> None:
    text = (
        'brokerstorm-kit = { path = "../../elsewhere/rust_kit" }\n'
        'client = { default-features = false, version = "0.39.0" }\n'
    )
    asking = rust_build._asking(text, "client", 'version = "=0.36.2"', worker.folder)
    assert asking.splitlines() == [
        'brokerstorm-kit = { path = "../rust_kit" }',
        'client = { default-features = false, version = "=0.36.2" }',
    ]
    with pytest.raises(UsageError, match=r"Cargo.toml does not ask for the client"):
        rust_build._asking('clients = { version = "1" }\n', "client", "", worker.folder)


def test_only_the_package_of_the_client_is_taken(worker: WorkerSpec, tmp_path: Path) -> None:
    taken = rust_build.pinned(worker, asked_build(f"dir:{own(tmp_path / 'a', '0.38.1')}"))
    assert taken.number == "0.38.1"
    with pytest.raises(UsageError, match="is the package other, not client"):
        rust_build.pinned(worker, asked_build(f"dir:{own(tmp_path / 'b', '1.0.0', 'other')}"))
    (tmp_path / "c").mkdir()
    with pytest.raises(UsageError, match=r"has no Cargo\.toml"):
        rust_build.pinned(worker, asked_build(f"dir:{tmp_path / 'c'}"))


@pytest.mark.long
@needs_rust
def test_built_once_and_anew_when_something_changes(worker: WorkerSpec, tmp_path: Path) -> None:
    said: list[str] = []

    def launched(folder: Path, *, offline: bool = False) -> list[str]:
        pinned = str(rust_build.pinned(worker, asked_build(f"dir:{folder}")))
        argv, env = rust_build.launch(
            worker, pinned, offline, lambda text, share: said.append(text)
        )
        assert env == {}
        return argv

    newer, older = own(tmp_path / "newer", "0.38.1"), own(tmp_path / "older", "0.36.9")
    argv = launched(newer)
    assert (
        subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "0.38.1 true\n"
    )
    assert len(said) == 2
    assert launched(newer, offline=True) == argv
    assert len(said) == 2, "built twice"
    told = subprocess.run(launched(older), capture_output=True, text=True, check=True).stdout
    assert told == "0.36.9 false\n", "what only newer versions have"
    write(worker.folder / "src" / "main.rs", "fn main() {}\n")
    with pytest.raises(WorkerError, match="not in the cache"):
        launched(newer, offline=True)


@pytest.mark.long
@needs_rust
def test_what_does_not_build_is_one_line(worker: WorkerSpec, tmp_path: Path) -> None:
    write(worker.folder / "src" / "main.rs", "fn main() { nothing() }\n")
    pinned = str(rust_build.pinned(worker, asked_build(f"dir:{own(tmp_path / 'own', '0.38.1')}")))
    with pytest.raises(
        WorkerError, match=r"does not build: .*cannot find function `nothing`"
    ) as caught:
        rust_build.launch(worker, pinned, False, silent)
    assert "\n" not in str(caught.value)
    assert "src/main.rs:1" in Path(caught.value.hint.split()[-1]).read_text()


@needs_rust
def test_a_change_of_the_kit_is_another_program(
    worker: WorkerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, toolchain = rust_build.client_of(worker, ""), rust.find_rust()
    before = rust_build.binary_path(worker, client, toolchain)
    changed = tmp_path / "rust_kit"
    shutil.copytree(rust_build.KIT, changed, ignore=shutil.ignore_patterns("target"))
    monkeypatch.setattr(rust_build, "KIT", changed)
    assert rust_build.binary_path(worker, client, toolchain) == before
    write(changed / "src" / "clock.rs", "\n")
    assert rust_build.binary_path(worker, client, toolchain) != before


def test_a_version_that_is_not_there_names_those_near_it(
    worker: WorkerSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As cargo says it, and as it keeps what the registry told."""
    kept = tmp_path / "home" / "registry" / "index" / "any" / ".cache" / "cl" / "ie" / "client"
    kept.parent.mkdir(parents=True)
    rows = [
        f'{{"name":"client","vers":"{each}","yanked":{taken_back}}}'
        for each, taken_back in (
            ("0.36.1", "false"),
            ("0.36.2", "false"),
            ("0.36.3", "true"),
            ("0.37.0", "false"),
        )
    ]
    kept.write_bytes(b"\x03\x02\0\0\0etag: x\0" + b"".join(f"0\0{row}\0".encode() for row in rows))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "home"))
    toolchain = rust.Rust("cargo", "cargo 1.95.0")
    monkeypatch.setattr(rust_build, "find_rust", lambda: toolchain)
    answer = subprocess.CompletedProcess(
        [], 101, "", 'error: failed to select a version for the requirement `client = "=0.36.3"`\n'
    )
    for module in (rust, rust_build):
        monkeypatch.setattr(module, "run_cargo", lambda *asked: answer)
    with pytest.raises(UsageError, match=r"hello has no version 0\.36\.3") as caught:
        rust_build.launch(worker, "0.36.3", False, silent)
    assert caught.value.hint == "the closest ones are 0.36.1, 0.36.2, 0.37.0"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (
            "   Compiling a v1\nwarning: unused\nerror[E0432]: unresolved import\n --> src",
            "error[E0432]: unresolved import",
        ),
        (
            "error: failed to run build\n\nCaused by:\n  process did not exit\n",
            "failed to run build: process did not exit",
        ),
        ("killed\n", "killed"),
        ("", "no output"),
    ],
)
def test_cargos_first_complaint_is_told(output: str, said: str) -> None:
    assert rust.first_error(output) == said


def test_no_cargo_says_what_to_install(
    worker: WorkerSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path))
    with pytest.raises(EnvironmentNotReady, match="cargo is not installed") as caught:
        rust_build.launch(worker, "", False, silent)
    assert "install Rust" in caught.value.hint
    assert caught.value.exit_code == 4
    assert rust_build.readiness(worker, "").remedy == caught.value.hint
