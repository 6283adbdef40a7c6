"""Rust workers: the worker's sources, built by the installed cargo against the asked version of the
client.

The program is kept in the cache by its content: sources of worker and kit, version of the client,
Rust. Packages come through the user's own cargo. What they are compiled to is kept, too: a client
that brings its library in C takes minutes once, and seconds when only the worker has changed.

``[rust]`` of a ``worker.toml``: ``default`` (version), ``crate`` (the client's package), ``from``
(the first version that the sources are for), ``features`` and ``along``. The sources are built from
a copy in which ``Cargo.toml`` asks for that version and no other; of all else it takes what the
worker's ``Cargo.lock`` has, as far as the client lets it. The copy of ``rust_kit`` lies next to it:
the folder of a worker may be anywhere.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness.errors import UsageError, WorkerError
from harness.toolchains.cache import cache_folder
from harness.toolchains.own_builds import (
    UNKNOWN,
    AskedBuild,
    OwnBuild,
    failed_build,
    own_build,
    pinned_source,
)
from harness.toolchains.rust import (
    BUILD_TIMEOUT_S,
    Rust,
    find_rust,
    first_error,
    listed_versions,
    run_cargo,
)
from harness.toolchains.versions import numbers, others_hint
from harness.workers.compiled import (
    VERSION,
    CompiledWorkers,
    WorkerProgram,
    cached_program,
    numbered,
)
from harness.workers.spec import PROGRAMS, RustBuild, WorkerSpec

KIT = PROGRAMS / "rust_kit"
_MANIFEST = "Cargo.toml"


@dataclass(frozen=True, slots=True)
class Client:
    """A version of the client. ``own``: the user's build that it is, None = a released one."""

    version: str
    own: OwnBuild | None = None

    @property
    def label(self) -> str:
        """For people."""
        return self.own.label if self.own else self.version

    @property
    def name(self) -> str:
        """In the cache."""
        return f"{self.version}-own-{self.own.key}" if self.own else self.version


def _program(worker: WorkerSpec, version: str) -> WorkerProgram:
    client, rust = client_of(worker, version), find_rust()
    return WorkerProgram(
        client.label,
        binary_path(worker, client, rust),
        bool(client.own),
        lambda _, part: _build(worker, client, rust, part),
    )


_WORKERS = CompiledWorkers("with Rust, once; it takes minutes", _program, BUILD_TIMEOUT_S)
launch, readiness = _WORKERS.launch, _WORKERS.readiness


def client_of(worker: WorkerSpec, version: str) -> Client:
    """Return the client that ``client_version`` asks for ("" is the default).

    Raises:
        UsageError: not a version, or older than the first that this worker is for.
    """
    build = _build_of(worker)
    if own := own_build(version):
        return Client(own.number, own)
    return Client(numbered(worker, version, build.default, build.from_))


def pinned(worker: WorkerSpec, asked: AskedBuild) -> OwnBuild:
    """A folder or git checkout that holds the client's package.

    Raises:
        UsageError: no package, or another one than the client.
        EnvironmentNotReady: git cannot be asked.
    """
    own = pinned_source(asked)
    if not own.path.is_dir():
        raise UsageError(
            f"{own.path} is a file", hint=f"name the folder that has the client's {_MANIFEST}"
        )
    text = own.text(_MANIFEST)
    if text is None:
        raise UsageError(f"{own.path} has no {_MANIFEST}", hint="name the folder that has it")
    package = _parsed(text, own.path).get("package", {})
    crate = _build_of(worker).crate
    if package.get("name") != crate:
        raise UsageError(
            f"{own.path} is the package {package.get('name', 'of no name')}, not {crate}"
        )
    # A tag names the last release; what the package says of itself is nearer.
    number = package.get("version", own.number)
    return (
        own
        if asked.number or not isinstance(number, str)
        else OwnBuild(own.path, own.commit, own.digest, number)
    )


def _parsed(text: str, folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{folder / _MANIFEST}: not valid TOML: {error}") from error


def _build_of(worker: WorkerSpec) -> RustBuild:
    assert worker.rust is not None  # `WorkerSpec` sees to it
    return worker.rust


def sources(folder: Path) -> Iterator[Path]:
    """Files that a package of ours is built from, in a fixed order."""
    yield from sorted((folder / "src").rglob("*.rs"))
    yield from (path for path in (folder / _MANIFEST, folder / "Cargo.lock") if path.exists())


def binary_path(worker: WorkerSpec, client: Client, rust: Rust) -> Path:
    """Path of the program, built or not."""
    made_with = f"{rust.text}\n{client.name}\n{_features(worker, client)}\n"
    return cached_program(worker, client.name, made_with, (worker.folder, KIT), sources)


def _features(worker: WorkerSpec, client: Client) -> list[str]:
    """Features of the worker that hold; a build whose version is not known is taken for the
    newest."""
    features = _build_of(worker).features.items()
    return [
        name
        for name, first in features
        if client.version == UNKNOWN or numbers(first) <= numbers(client.version.partition("-")[0])
    ]


def _build(worker: WorkerSpec, client: Client, rust: Rust, part: Path) -> None:
    """In a place that stays: cargo tells by the path of a package what it has compiled already."""
    place = cache_folder() / "cargo"
    folder = place / worker.library
    try:
        with FileLock(f"{folder}.lock", timeout=BUILD_TIMEOUT_S):
            shutil.rmtree(folder, ignore_errors=True)
            copy = _copied(worker, client, folder)

            def cargo(*words: str) -> str:
                done = run_cargo([rust.cargo, *words], copy, BUILD_TIMEOUT_S)
                if done.returncode:
                    raise _failure(worker, client, rust, part, f"{done.stdout}\n{done.stderr}")
                return done.stdout

            for name, number in _along(worker, cargo("metadata", "--format-version=1")):
                cargo("update", "-p", name, "--precise", number)
            features = ",".join(_features(worker, client))
            cargo(
                "build",
                "--release",
                "--target-dir",
                str(place / "target"),
                f"--features={features}",
            )
            package = _parsed((copy / _MANIFEST).read_text(), worker.folder)["package"]
            shutil.copy(place / "target" / "release" / package["name"], part)
    except subprocess.TimeoutExpired as error:
        raise WorkerError(
            f"cargo build took over {BUILD_TIMEOUT_S:.0f} s for {worker.library}"
        ) from error
    except Timeout as error:
        raise WorkerError(f"{worker.library}: another process is still building it") from error


def _along(worker: WorkerSpec, metadata: str) -> Iterator[tuple[str, str]]:
    """Packages that are not at the version which the client names, and that version."""
    build = _build_of(worker)
    packages = {each["name"]: each for each in json.loads(metadata)["packages"]}
    for asked in packages[build.crate]["dependencies"]:
        name, number = asked["name"], asked["req"].removeprefix("^")
        # A build of the user's brings them, at a path.
        is_named = name in build.along and asked["source"] and VERSION.match(number)
        if is_named and packages[name]["version"].partition("+")[0] != number:
            yield name, number


def _copied(worker: WorkerSpec, client: Client, folder: Path) -> Path:
    """The sources of worker and kit, side by side in ``folder``, and a build of the user's with
    them."""
    for source in (worker.folder, KIT):
        for path in sources(source):
            copy = folder / source.name / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    manifest = folder / worker.folder.name / _MANIFEST
    asks = f'version = "={client.version}"'
    if client.own:
        asks = f'path = "{client.own.copy(folder / "client")}"'
    manifest.write_text(_asking(manifest.read_text(), _build_of(worker).crate, asks, worker.folder))
    return manifest.parent


def _asking(text: str, crate: str, asks: str, folder: Path) -> str:
    """A Cargo.toml that asks for the kit next to it, and for the client in this way."""
    text = re.sub(r'path = "[^"]*rust_kit"', f'path = "../{KIT.name}"', text)
    text, count = re.subn(
        rf'^({crate} = {{[^}}\n]*)version = "[^"]*"', rf"\g<1>{asks}", text, flags=re.MULTILINE
    )
    if not count:
        what = f'{crate} = {{ version = "..." }}'
        raise UsageError(
            f"{folder / _MANIFEST} does not ask for the client: it needs a line {what}"
        )
    return text


def _failure(worker: WorkerSpec, client: Client, rust: Rust, part: Path, output: str) -> Exception:
    said = first_error(output)
    if client.own is None and "failed to select a version" in output:
        try:
            known = released(worker)
        except WorkerError:
            known = []
        if known and client.version not in known:
            hint = others_hint(client.version, known)
            return UsageError(f"{worker.library} has no version {client.version}", hint=hint)
    what = f"{worker.library} {client.label} with {rust.text}"
    return failed_build(what, part.parent.name, said, output)


def released(worker: WorkerSpec, version: str = "") -> list[str]:
    """Versions that the registry has, in no order.

    Raises:
        EnvironmentNotReady: no Rust, or it is too old.
        WorkerError: cargo does not tell.
    """
    rust = find_rust()
    try:
        with tempfile.TemporaryDirectory(prefix="brokerstorm-rust-") as folder:
            known = listed_versions(rust, _build_of(worker).crate, Path(folder))
    except subprocess.TimeoutExpired as error:
        raise WorkerError(
            f"cargo does not list the versions of {worker.library} in time"
        ) from error
    if not known:
        raise WorkerError(
            f"cargo lists no version of {worker.library}", hint="check the network or proxy"
        )
    return known
