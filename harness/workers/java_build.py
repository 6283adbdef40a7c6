"""Java workers: the client's jars, the worker compiled against them, and how to start it.

A worker in Java is source: what the JVM workers share (``java_kit``) and the worker's own, compiled
on first use against the very version that is asked for. So a client is tested at the version that a
user runs, from one source. What was compiled is kept in the cache by its content: sources, jars and
JDK.

``entry`` of a ``worker.toml`` is the main class; ``[java]`` has ``default`` (version), ``jvm``
(flags), and ``clients``, a list of tables: ``name``, ``from`` (first version the table is for,
optional), ``java`` (oldest JDK that will do), ``coordinates`` with ``{version}``, ``exclude``,
``renames`` (packages), ``without`` (sources of the worker that need a newer client). A version is
asked for as ``2.8.1`` (of the first client), as ``andes 3.0.2`` (of a client by its name), or as
``dir:PATH``: a folder of jars (also ``jars:PATH``), or a local Maven repository that the client was
installed into.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from harness.errors import EnvironmentNotReady, UsageError, WorkerError
from harness.toolchains import maven
from harness.toolchains.cache import cache_folder
from harness.toolchains.coordinates import Artifacts
from harness.toolchains.jars import is_complete, jars_folder, pinned_jars, resolve
from harness.toolchains.java import Java, find_java
from harness.toolchains.local_repository import LocalModules, poms_of
from harness.toolchains.own_builds import (
    PREFIX,
    UNKNOWN,
    AskedBuild,
    OwnBuild,
    asked_build,
    own_build,
)
from harness.toolchains.versions import numbers
from harness.workers.spec import PROGRAMS, JavaBuild, JavaClient, Readiness, WorkerSpec

KIT = PROGRAMS / "java_kit"
COMPILE_TIMEOUT_S = 180.0
#: Small, and steady on a machine that is shared with brokers.
JVM = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    # 20 s of 50,000 msg/s to Pulsar: 8.9 us of CPU a message, with all tiers 13.1
    "-XX:TieredStopAtLevel=1",
    # a worker that lost a thread must not look like a client that hangs
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
)
#: In a command that compiles, for the oldest Java that is to run it.
_LEVEL: Final = "{level}"
#: For a Java without a compiler. The last that itself runs on Java 11.
_ECJ = Artifacts(("org.eclipse.jdt:ecj:3.33.0",))
_VERSION = re.compile(r"^[0-9][0-9A-Za-z._-]{0,40}$")
_MARKER = "complete"
#: The older way to write ``dir:`` of a folder of jars.
JARS: Final = "jars:"
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class ClientLibrary:
    """One version of a client library.

    Attributes:
        java: oldest JDK that will do; the worker is compiled for it.
        renames: packages that have another name in this version than in the worker's source.
        without: sources of the worker, by file name, that need a newer one.
    """

    text: str
    artifacts: Artifacts
    java: int
    renames: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()


def launch(
    worker: WorkerSpec, version: str, offline: bool, on_progress: Progress
) -> tuple[list[str], dict[str, str]]:
    """The command of a Java worker; fetches jars and compiles on first use.

    Raises:
        UsageError: not a version, or one that the repository does not have.
        WorkerError: no compiler, the worker does not compile, a folder of jars that cannot be used.
        EnvironmentNotReady: no Java, no network, offline and not in the cache.
    """
    client = client_of(worker, version)
    java = find_java(client.java)
    jars = resolve(client.artifacts, offline=offline, on_progress=on_progress)
    classes = classes_folder(worker, client, java, jars)
    if not (classes / _MARKER).exists():
        on_progress(f"compiling {worker.library} against {client.text}", None)
        compiler = javac_of(java) or _ecj(java, offline, on_progress)
        _compile_once(worker, client, java, compiler, jars, classes)
        on_progress(f"{worker.library} compiled", 1.0)
    argv = [java.path, *JVM, *_build_of(worker).jvm, "-cp", f"{classes}:{jars}/*", worker.entry]
    return argv, {}


def readiness(worker: WorkerSpec, version: str) -> Readiness:
    """Whether Java, the compiler and the jars are there, or what will fetch them."""
    client = client_of(worker, version)
    try:
        java = find_java(client.java)
        jars = jars_folder(client.artifacts)
        built = (classes_folder(worker, client, java, jars) / _MARKER).exists()
    except (UsageError, WorkerError, EnvironmentNotReady) as error:
        return Readiness(False, str(error), error.hint)
    if client.artifacts.own is None and not is_complete(jars):
        return Readiness(True, f"{client.text} not fetched yet; Maven will", fetched=False)
    return Readiness(True, client.text if built else f"{client.text}, to be compiled on first use")


def client_of(worker: WorkerSpec, version: str) -> ClientLibrary:
    """Return the client library that ``client_version`` asks for.

    Raises:
        UsageError: not a version, no client of that name, a folder without jars.
    """
    build = _build_of(worker)
    text, clients = version.strip() or build.default, build.clients
    if text.startswith(JARS):
        text = str(pinned(worker, asked_build(f"{PREFIX}{text.removeprefix(JARS)}")))
    if own := own_build(text):
        return _own_client(worker, own)
    name, _, number = text.rpartition(" ")
    name = name or clients[0].name
    if not _VERSION.match(number):
        raise UsageError(
            f"{worker.library}: client_version {version!r} is not a version",
            hint=f"write e.g. {build.default}",
        )
    table = _newest([each for each in clients if each.name == name], number)
    if table is None:
        known = ", ".join(dict.fromkeys(f"{each.name} from {each.from_}" for each in clients))
        raise UsageError(
            f"{worker.library}: client_version {version!r} cannot be used",
            hint=f"there are: {known}",
        )
    return _client(f"{name} {number}", table, _artifacts(table, number))


def _client(text: str, table: JavaClient, artifacts: Artifacts) -> ClientLibrary:
    return ClientLibrary(text, artifacts, table.java, table.renames, table.without)


def pinned(worker: WorkerSpec, asked: AskedBuild) -> OwnBuild:
    """A folder of jars, or the pom of the client in a local Maven repository.

    Raises:
        UsageError: neither is there, or the repository holds several versions and none was named.
    """
    if asked.revision:
        raise UsageError(f"{worker.library} is taken from jars, not from a commit", hint=_OWN_HINT)
    if any(asked.path.glob("*.jar")):
        names = [jar.name for jar in asked.path.glob("*.jar")]
        return pinned_jars(asked.path, asked.path, asked.number or _number_in(worker, names))
    modules = dict.fromkeys(
        tuple(each.coordinates[0].split(":")[:2]) for each in _build_of(worker).clients
    )
    if asked.path.suffix == ".pom":
        poms = [
            (asked.path, group)
            for group, artifact in modules
            if asked.path.parents[1].name == artifact
        ]
    else:
        poms = [
            (pom, group)
            for group, artifact in modules
            for pom in poms_of(asked.path, group, artifact)
        ]
    fits = [one for one in poms if asked.number in ("", one[0].parent.name)]
    if not fits:
        known = ", ".join(":".join(one) for one in modules)
        held = f" of version {asked.number}" if poms else ""
        raise UsageError(
            f"{worker.library}: no jars in {asked.path}, and as a Maven repository it lacks {known}{held}",
            hint=_OWN_HINT,
        )
    if len(fits) > 1:
        listed = ", ".join(pom.parent.name for pom, _ in fits)
        raise UsageError(
            f"{asked.path} holds several versions of {worker.library}: {listed}",
            hint=f"name one: {PREFIX}{asked.path} {fits[-1][0].parent.name}",
        )
    pom, group = fits[0]
    return OwnBuild(pom, "", LocalModules.of_pom(pom, group).digest(), pom.parent.name)


_OWN_HINT: Final = (
    "name a folder with the client's jar and all that it needs, or the repository that `mvn "
    "install` or `gradlew publishToMavenLocal` wrote to"
)


def _number_in(worker: WorkerSpec, names: Sequence[str]) -> str:
    """The version of the client in the names of jars."""
    for table in _build_of(worker).clients:
        artifact = table.coordinates[0].split(":")[1]
        for name in names:
            if found := re.fullmatch(rf"{re.escape(artifact)}-(\d[\w.-]*?)\.jar", name):
                return found[1]
    return UNKNOWN


def _own_client(worker: WorkerSpec, own: OwnBuild) -> ClientLibrary:
    clients = _build_of(worker).clients
    if own.path.suffix != ".pom":
        # A folder of jars has packages under the names of today.
        same = [each for each in clients if each.name == clients[0].name]
        table = _newest(same, own.number) or clients[0]
        artifacts = Artifacts((), own=own, jars=own.path)
        return ClientLibrary(own.label, artifacts, clients[0].java, without=table.without)
    artifact = own.path.parents[1].name
    found = _newest(
        [each for each in clients if each.coordinates[0].split(":")[1] == artifact], own.number
    )
    assert found is not None  # `pinned` has looked
    return _client(own.label, found, replace(_artifacts(found, own.number), own=own))


def _newest(clients: Sequence[JavaClient], number: str) -> JavaClient | None:
    """Return the last of these tables for which a version is not too old."""
    fitting = [each for each in clients if numbers(each.from_) <= numbers(number)]
    return fitting[-1] if fitting else None


def released(worker: WorkerSpec, version: str = "") -> list[str]:
    """Versions that the Maven repository has of the client that ``version`` names, in no order;
    where a worker has several, with the name before it (``qpid-client 6.4.0``).

    Raises:
        EnvironmentNotReady: the repository does not tell.
    """
    name = client_of(worker, version).text.rpartition(" ")[0]
    clients = _build_of(worker).clients
    newest = [each for each in clients if each.name == name][-1]
    group, artifact, _ = newest.coordinates[0].split(":")
    prefix = f"{name} " if len({each.name for each in clients}) > 1 else ""
    return [f"{prefix}{version}" for version in maven.released(group, artifact)]


def is_released(worker: WorkerSpec, version: str) -> bool:
    """Whether the Maven repository has this version, which its list may leave out.

    Raises:
        EnvironmentNotReady: no Maven, or the repository does not answer.
    """
    return maven.is_released(client_of(worker, version).artifacts.coordinates[0])


def _build_of(worker: WorkerSpec) -> JavaBuild:
    assert worker.java is not None  # `WorkerSpec` sees to it
    return worker.java


def _artifacts(table: JavaClient, version: str) -> Artifacts:
    coordinates = tuple(text.format(version=version) for text in table.coordinates)
    return Artifacts(coordinates, tuple(table.exclude))


def javac_of(java: Java) -> list[str]:
    """The compiler next to a ``java``, or on the PATH; nothing where there are only run-time
    environments."""
    neighbour = Path(os.path.realpath(java.path)).with_name("javac")
    found = str(neighbour) if neighbour.exists() else shutil.which("javac")
    return [found, "-XDignore.symbol.file", "--release", _LEVEL] if found else []


def _ecj(java: Java, offline: bool, on_progress: Progress) -> list[str]:
    """Eclipse's compiler, which needs no JDK: it compiles against the classes of the Java that runs
    it.

    Raises:
        EnvironmentNotReady: as `harness.toolchains.jars.resolve`.
    """
    folder = resolve(_ECJ, offline=offline, on_progress=on_progress)
    main = "org.eclipse.jdt.internal.compiler.batch.Main"
    return [java.path, "-cp", f"{folder}/*", main, "-Xemacs", "-source", _LEVEL, "-target", _LEVEL]


def sources(*folders: Path, without: Collection[str] = ()) -> Iterator[Path]:
    """Java sources below these folders, in a fixed order, but for some by name."""
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*.java") if path.name not in without)


def classes_folder(worker: WorkerSpec, client: ClientLibrary, java: Java, jars: Path) -> Path:
    """Where the compiled worker is, or would be: changes with every source, jar and JDK it depends
    on."""
    digest = hashlib.sha256(f"{java.text}\n{client.java}\n{jars}\n".encode())
    for path in sources(KIT, worker.folder, without=client.without):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    own = client.artifacts.own
    title = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{own.number}-own" if own else client.text)[-60:]
    return cache_folder() / "workers" / f"{worker.library}-{title}-{digest.hexdigest()[:12]}"


def _compile_once(
    worker: WorkerSpec,
    client: ClientLibrary,
    java: Java,
    compiler: list[str],
    jars: Path,
    folder: Path,
) -> None:
    """Compile, unless another process just did. The folder appears complete, by one rename."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{folder}.lock", timeout=COMPILE_TIMEOUT_S):
            if (folder / _MARKER).exists():
                return
            part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}.part-"))
            try:
                _compile(worker, client, compiler, jars, part)
                (part / _MARKER).write_text(f"{client.text}\n{java.text}\n")
                part.chmod(0o755)
                os.replace(part, folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except Timeout as error:
        raise WorkerError(f"{worker.library}: another process is still compiling it") from error
    except OSError as error:
        raise WorkerError(
            f"cannot write to the cache {folder.parent}: {error.strerror or error}"
        ) from error


def _compile(
    worker: WorkerSpec, client: ClientLibrary, compiler: list[str], jars: Path, target: Path
) -> None:
    written = list(sources(KIT, worker.folder, without=client.without))
    if client.renames:
        written = _renamed(written, client.renames, target / "sources")
    compile_for = [str(client.java) if word == _LEVEL else word for word in compiler]
    command = [
        *compile_for, "-encoding", "UTF-8", "-nowarn", "-proc:none", "-d", str(target),
        "-cp", os.pathsep.join(map(str, sorted(jars.glob("*.jar")))), *map(str, written),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise WorkerError(
            f"javac took over {COMPILE_TIMEOUT_S:.0f} s for {worker.library}"
        ) from error
    if done.returncode:
        own = client.artifacts.jars
        lacking = f"{own} must hold the client and every jar that it needs itself; " if own else ""
        raise WorkerError(
            f"{worker.library} does not compile against {client.text}: {first_error(done.stderr)}",
            hint=f"{lacking}this worker is for {worker.versions}",
        )


def _renamed(written: list[Path], renames: Mapping[str, str], folder: Path) -> list[Path]:
    """Copies of sources, with packages under their other names."""
    folder.mkdir()
    made = []
    for number, path in enumerate(written):
        text = path.read_text()
        for old, new in renames.items():
            text = re.sub(rf"\b{re.escape(old)}\b", new, text)
        # a file may have the name of one in another package
        copy = folder / str(number) / path.name
        copy.parent.mkdir()
        copy.write_text(text)
        made.append(copy)
    return made


def first_error(output: str) -> str:
    """javac's first complaint, without the folder it is about."""
    line = next(
        (line for line in output.splitlines() if ": error:" in line or line.startswith("error:")),
        "",
    )
    return re.sub(r"^.*/(\w+\.java:\d+)", r"\1", line) or output.strip()[:300] or "no output"
