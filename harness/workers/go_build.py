"""Go workers: the worker's sources, built by the installed Go against the client version that is
asked for.

The binary is kept in the cache by its content: sources of worker and kit, module path and version
of the client, Go itself. Modules come through the Go module proxy and are checked against the
checksum database, as `go` is set up.

``[go]`` of a ``worker.toml``: ``default`` (version), ``source_path`` (the module path that the
sources import), and ``modules``, a list of tables ``path``, ``from`` (first version under that
path), in ascending order: a module that moved has two. The sources are built from a copy in which
the import path is the one of the asked version, so a stack dump names the very module that a user
has. The copy of ``go_kit``, which a worker imports as ``brokerstorm/kit``, lies next to it: the
folder of a worker may be anywhere.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.errors import UsageError, WorkerError
from harness.toolchains import go as toolchain
from harness.toolchains.go import (
    BUILD_TIMEOUT_S,
    LIST_TIMEOUT_S,
    Go,
    find_go,
    first_error,
    go_for,
    listed_versions,
    run_go,
)
from harness.toolchains.own_builds import (
    AskedBuild,
    OwnBuild,
    failed_build,
    own_build,
    pinned_source,
)
from harness.toolchains.versions import numbers, others_hint
from harness.workers.compiled import CompiledWorkers, WorkerProgram, cached_program, numbered
from harness.workers.spec import PROGRAMS, GoBuild, WorkerSpec

KIT = PROGRAMS / "go_kit"
KIT_MODULE = "brokerstorm/kit"


@dataclass(frozen=True, slots=True)
class Module:
    """A version of the client under the module path that it has at that version.

    ``own``: the user's build that it is, None = a released one; ``source``: its copy, whose go.mod
    says the path, once there is one.
    """

    path: str
    version: str
    own: OwnBuild | None = None
    source: Path | None = None

    def __str__(self) -> str:
        return f"{self.path} v{self.version}"


def _program(worker: WorkerSpec, version: str) -> WorkerProgram:
    module = module_of(worker, version)
    go = go_for(f"the worker of {worker.library}", worker.folder, KIT)
    label = module.own.label if module.own else module.version
    build = partial(_build_copy, worker, module, go)
    return WorkerProgram(label, binary_path(worker, module, go), bool(module.own), build)


_WORKERS = CompiledWorkers("with Go, once", _program, BUILD_TIMEOUT_S)
launch, readiness = _WORKERS.launch, _WORKERS.readiness


def module_of(worker: WorkerSpec, version: str) -> Module:
    """The module of a ``client_version`` ("" = the default): its path follows from the version.

    Raises:
        UsageError: not a version, or older than the first that this worker is for.
    """
    build = _build_of(worker)
    if own := own_build(version):
        number = re.match(r"\d+\.\d+\.\d+", own.number)
        return Module("", f"{number[0] if number else '0.0.0'}-own.{own.key}", own)
    wanted = numbered(worker, version, build.default, build.modules[0].from_)
    paths = [table.path for table in build.modules if numbers(table.from_) <= numbers(wanted)]
    return Module(paths[-1], wanted)


def pinned(worker: WorkerSpec, asked: AskedBuild) -> OwnBuild:
    """A folder or git checkout that holds the client's module.

    Raises:
        UsageError: no Go module, or another one than the client.
        EnvironmentNotReady: git cannot be asked.
    """
    build = pinned_source(asked)
    if not build.path.is_dir():
        raise UsageError(
            f"{build.path} is a file", hint="name the folder of the module, the one with go.mod"
        )
    _module_path(worker, build)
    return build


def _module_path(worker: WorkerSpec, own: OwnBuild) -> str:
    """The path that a module gives itself, if the worker can be built with it."""
    text = own.text("go.mod")
    if text is None:
        raise UsageError(
            f"{own.path} is not a Go module: no go.mod there", hint="name the folder that has it"
        )
    found = re.search(r'^module\s+"?([^\s"]+)', text, re.MULTILINE)
    known = [_build_of(worker).source_path, *(table.path for table in _build_of(worker).modules)]
    if found is None or found[1] not in known:
        raise UsageError(
            f"{own.path} is the module {found[1] if found else 'of no name'}, not {worker.library}",
            hint=f"its path must be {' or '.join(dict.fromkeys(known))}",
        )
    return found[1]


def _build_of(worker: WorkerSpec) -> GoBuild:
    assert worker.go is not None  # `WorkerSpec` sees to it
    return worker.go


def sources(folder: Path) -> Iterator[Path]:
    """Files that a Go module is built from, in a fixed order."""
    yield from sorted(path for path in folder.rglob("*.go") if not path.name.endswith("_test.go"))
    yield folder / "go.mod"


def binary_path(worker: WorkerSpec, module: Module, go: Go) -> Path:
    """Path of the binary, built or not."""
    made_with = f"{go.text}\n{module}\n"
    return cached_program(worker, module.version, made_with, (worker.folder, KIT), sources)


def _build_copy(worker: WorkerSpec, module: Module, go: Go, folder: Path, part: Path) -> None:
    copy, source = folder / "worker", folder / "client"
    built = _with_path(worker, module, module.own.copy(source)) if module.own else module
    _copy_module(KIT, folder / KIT.name, {})
    _copy_module(worker.folder, copy, {_build_of(worker).source_path: built.path})
    _require(worker, built, go, copy)
    _build(worker, built, go, copy, part)


def _with_path(worker: WorkerSpec, module: Module, source: Path) -> Module:
    """A module of one's own, copied to ``source``, as its sources name it: a path may ask for a
    major one."""
    path = _module_path(worker, OwnBuild(source))
    major = re.search(r"[/.]v(\d+)$", path)
    version = re.sub(r"^\d+", major[1], module.version) if major else module.version
    return Module(path, version, module.own, source)


def _copy_module(folder: Path, target: Path, imports: Mapping[str, str]) -> None:
    """Copy the sources, with the paths of imported modules replaced, also in their packages.

    Indirect requirements belong to the version that the sources name. They are left out: Go finds
    the files of the version that is built.
    """
    for path in sources(folder):
        text = path.read_text()
        if path.name == "go.mod":
            text = re.sub(r"^.*// indirect\n", "", text, flags=re.MULTILINE)
        for old, new in imports.items():
            text = re.sub(rf'"{re.escape(old)}(?=["/])', f'"{new}', text)
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)


def _require(worker: WorkerSpec, module: Module, go: Go, folder: Path) -> None:
    """Let ``go.mod`` of a copy ask for this module, and for the kit that lies next to it.

    Not for modules below the client's path: Go finds those that the client itself asks for.
    """
    source = re.escape(_build_of(worker).source_path)
    named = re.findall(
        rf"^\s*(?:require\s+)?({source}(?:/\S+)?)\s+v", (folder / "go.mod").read_text(), re.M
    )
    changes = [
        *(f"-droprequire={path}" for path in named),
        f"-require={module.path}@v{module.version}",
        f"-require={KIT_MODULE}@v0.0.0",
        f"-replace={KIT_MODULE}=../{KIT.name}",
    ]
    if module.source:
        changes.append(f"-replace={module.path}={module.source}")
    done = run_go([go.path, "mod", "edit", *changes], folder, LIST_TIMEOUT_S)
    if done.returncode:
        raise WorkerError(f"{worker.folder / 'go.mod'} cannot be used: {first_error(done.stderr)}")


def _tags(worker: WorkerSpec, module: Module) -> list[str]:
    """Build constraints that hold; a build whose version is not known is taken for the newest."""
    version = module.version.partition("-")[0]
    tags = _build_of(worker).tags
    return [
        tag
        for tag, first in tags.items()
        if version == "0.0.0" or numbers(first) <= numbers(version)
    ]


def _build(worker: WorkerSpec, module: Module, go: Go, folder: Path, part: Path) -> None:
    tags = f"-tags={','.join(_tags(worker, module))}"
    command = [
        go.path,
        "build",
        "-mod=mod",
        "-trimpath",
        "-buildvcs=false",
        tags,
        "-o",
        str(part),
        ".",
    ]
    try:
        done = run_go(command, folder, BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise WorkerError(
            f"go build took over {BUILD_TIMEOUT_S:.0f} s for {worker.library}"
        ) from error
    if done.returncode == 0:
        return
    said = first_error(done.stderr)
    if module.own:
        output = f"{done.stdout}\n{done.stderr}"
        raise failed_build(f"{worker.library} {module.own.label}", part.parent.name, said, output)
    _refuse_unknown(worker, module, go)
    newer = re.search(r"requires go >= ([0-9.]+)", done.stderr)
    hint = f"install Go {newer[1]} or newer" if newer else f"this worker is for {worker.versions}"
    raise WorkerError(
        f"{worker.library} {module.version} does not build with {go.text}: {said}", hint=hint
    )


def _refuse_unknown(worker: WorkerSpec, module: Module, go: Go) -> None:
    """Raise UsageError when the module has no such version; say nothing when the proxy does not
    tell."""
    try:
        known = _listed(worker, go)
    except subprocess.TimeoutExpired:
        return
    if known and module.version not in known:
        raise UsageError(
            f"{worker.library} has no version {module.version}",
            hint=others_hint(module.version, known),
        )


def released(worker: WorkerSpec, version: str = "") -> list[str]:
    """Versions that the module proxy has, under every path of the client, in no order.

    Raises:
        EnvironmentNotReady: no Go, or it is too old.
        WorkerError: the proxy does not tell.
    """
    try:
        known = _listed(worker, find_go())
    except subprocess.TimeoutExpired as error:
        raise WorkerError(f"go does not list the versions of {worker.library} in time") from error
    if not known:
        raise WorkerError(
            f"go lists no version of {worker.library}",
            hint="check the network and GOPROXY, which names the module proxy",
        )
    return known


def is_released(worker: WorkerSpec, version: str) -> bool:
    """Whether the module proxy has this version, which its list may leave out.

    Raises:
        EnvironmentNotReady: no Go, it is too old, or the proxy does not answer.
    """
    module = module_of(worker, version)
    return toolchain.is_released(find_go(), module.path, module.version)


def _listed(worker: WorkerSpec, go: Go) -> list[str]:
    return listed_versions(go, *(table.path for table in _build_of(worker).modules))
