"""Apache Maven, which turns coordinates into jars, and what its failures mean."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Final

from filelock import FileLock

from harness.errors import EnvironmentNotReady, UsageError
from harness.toolchains.cache import cache_folder
from harness.toolchains.coordinates import Artifacts
from harness.toolchains.java import find_java
from harness.toolchains.versions import others_hint

TIMEOUT_S = 900.0
_VERSIONS_TIMEOUT_S = 60.0
#: Our own Maven where none is installed.
_VERSION = "3.9.9"
_SHA256 = "7a9cdf674fc1703d6382f5f330b3d110ea1b512b51f1652846d9e4e8a588d766"
#: One for every Maven, so that all resolve alike; Maven 3.8's (2.8) cannot copy what no pom asks
#: for.
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
#: No questions, versions as they are now, and a file whose checksum is wrong is an error, not a
#: warning.
_OPTIONS: Final = ("-B", "-U", "-C")
Report = Callable[[str], None]
_NO_NETWORK = re.compile(
    r"Unknown host|UnknownHost|Network is unreachable|Connection refused|Connect.* timed out"
    r"|Temporary failure in name resolution|No route to host|PKIX|Server access error",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"Could not find artifact \S+|Failure to find \S+|\S+:\S+ was not found in|:: \S+: not found"
)
_NO_POM = re.compile(r"The POM for (\S+) is (?:missing|invalid)")
_CUT = re.compile(r"Could not find artifact |Failure to find |:: |: not found| was not found in")


def find_maven() -> Maven:
    """The ``mvn`` on the PATH, else one that the Ivy in pyspark's jars can fetch.

    Raises:
        EnvironmentNotReady: neither.
    """
    if mvn := shutil.which("mvn"):
        return Maven(mvn)
    if ivy_jar():
        return Maven()
    raise EnvironmentNotReady(
        "nothing here resolves Maven coordinates: no mvn on the PATH, no Ivy in pyspark's jars",
        hint="install Maven (Debian: apt install maven) or reinstall pyspark",
    )


def ivy_jar() -> Path | None:
    """The Ivy jar that pyspark ships for its own packages, None when there is none."""
    spec = find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(location, "jars").glob("ivy-2.*.jar"), reverse=True):
            return jar
    return None


class Maven:
    """Apache Maven, with a generated pom. ``name``: for people.

    The one that is installed, so that a user's mirrors and settings count, else one of our own:
    whatever resolves, the jars are the same. The plugin is pinned for that, too.
    """

    def __init__(self, command: str = "") -> None:
        self._command = command
        self.name = "mvn" if command else f"Maven {_VERSION}, fetched on first use"

    def fetch(self, wanted: Artifacts, target: Path, report: Report) -> None:
        """Copy the jars of the coordinates, and all that they need at run time, into ``target``.

        Raises:
            EnvironmentNotReady: no network, or Maven's own words.
            UsageError: the repository lacks something.
        """
        goal = ["copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        self._with_pom(wanted, goal, report, r"^(?:\[INFO\] )?Downloaded .*/(\S+\.jar)\b")

    def check(self, wanted: Artifacts) -> None:
        """Ask for every pom, and for no jar or archive.

        Raises:
            EnvironmentNotReady, UsageError: as `fetch`.
        """
        if wanted.archive:
            with tempfile.TemporaryDirectory() as target:
                self.copy_pom(wanted.title, Path(target), TIMEOUT_S)
        else:
            with tempfile.TemporaryDirectory() as target:
                goal = ["tree", "-Dscope=runtime", f"-DoutputFile={target}/tree.txt"]
                said = self._with_pom(wanted, goal, lambda text: None, r"$^")
                chosen = Path(target, "tree.txt").read_text()
            # A tree is drawn without what the repository lacks: Maven only warns of it, and also of
            # versions that it did not choose in the end.
            for lacking in _NO_POM.findall(said):
                if f"{lacking}:" in chosen:
                    raise failure(f"Could not find artifact {lacking}", wanted.title)

    def _with_pom(
        self, wanted: Artifacts, goal: Sequence[str], report: Report, downloaded: str
    ) -> str:
        """Run a goal of the plugin on a project that depends on the coordinates; what it said."""
        exclusions = "".join(
            "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(
                *one.split(":")
            )
            for one in wanted.exclude
        )
        dependencies = "".join(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
            "<exclusions>{}</exclusions></dependency>".format(*one.split(":"), exclusions)
            for one in wanted.coordinates
        )
        with tempfile.TemporaryDirectory() as work:
            Path(work, "pom.xml").write_text(
                '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
                "<groupId>brokerstorm</groupId><artifactId>resolve</artifactId><version>1</version>"
                f"<packaging>pom</packaging>{_management(wanted.managed)}"
                f"<dependencies>{dependencies}</dependencies></project>"
            )
            name, *options = goal
            if wanted.own:
                repository = Path(work, "repository")
                wanted.own_modules().copy(repository, wanted.own.digest)
                options.append(f"-Dmaven.repo.local={repository}")
            command = [self._mvn(report), *_OPTIONS, f"{_DEPENDENCY_PLUGIN}:{name}", *options]
            return _run(command, Path(work), wanted.title, report, downloaded)

    def fetch_archive(self, wanted: Artifacts, target: Path, report: Report) -> Path:
        """Copy the archive, one file, into ``target``.

        Raises:
            EnvironmentNotReady, UsageError: as `fetch`.
        """
        self._copy(wanted.archive, wanted.title, target, report)
        return _only_file(target, wanted.title)

    def copy_pom(self, title: str, target: Path, timeout_s: float) -> None:
        """Copy the pom of an artifact into ``target``.

        Raises:
            EnvironmentNotReady, UsageError: as `fetch`.
        """
        self._copy(f"{title}:pom", title, target, lambda text: None, timeout_s)

    def _copy(
        self,
        artifact: str,
        title: str,
        target: Path,
        report: Report,
        timeout_s: float | None = None,
    ) -> None:
        with tempfile.TemporaryDirectory() as work:
            command = [
                self._mvn(report), *_OPTIONS, f"{_DEPENDENCY_PLUGIN}:copy", f"-Dartifact={artifact}",
                f"-DoutputDirectory={target}",
            ]  # fmt: skip
            pattern = r"^(?:\[INFO\] )?Downloaded .*/(\S+\.gz)\b"
            _run(command, Path(work), title, report, pattern, timeout_s)

    def _mvn(self, report: Report) -> str:
        if self._command:
            return self._command
        home = cache_folder() / "tools" / f"apache-maven-{_VERSION}"
        if not (home / "bin" / "mvn").exists():
            home.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{home}.lock"), tempfile.TemporaryDirectory(dir=home.parent) as work:
                if not home.exists():
                    _install(Path(work), home, report)
        return str(home / "bin" / "mvn")


def _management(managed: str) -> str:
    if not managed:
        return ""
    group, name, version = managed.split(":")
    return (
        f"<dependencyManagement><dependencies><dependency><groupId>{group}</groupId><artifactId>{name}"
        f"</artifactId><version>{version}</version><type>pom</type><scope>import</scope></dependency>"
        "</dependencies></dependencyManagement>"
    )


def _install(work: Path, home: Path, report: Report) -> None:
    """Put a Maven into the cache, by one rename. Ivy's built-in settings know Maven Central.

    Ivy fetches this one file only: what it would resolve itself differs from what Maven does (it
    takes the newest version asked for, and cannot import those that a project was built with).
    """
    ivy = work / "ivy.xml"
    ivy.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="brokerstorm" module="maven"/>'
        '<configurations><conf name="default"/></configurations>'
        f'<dependencies><dependency org="org.apache.maven" name="apache-maven" rev="{_VERSION}"'
        ' transitive="false" conf="default->default">'
        '<artifact name="apache-maven" type="tar.gz" ext="tar.gz" m:classifier="bin"/>'
        "</dependency></dependencies></ivy-module>"
    )
    command = [
        find_java().path, "-jar", str(ivy_jar()), "-cache", str(work / "cache"), "-ivy", str(ivy),
        "-confs", "default", "-types", "tar.gz", "-retrieve", f"{work}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    _run(
        command,
        work,
        f"org.apache.maven:apache-maven:{_VERSION}",
        report,
        r"\[SUCCESSFUL \] \S+!(\S+)",
    )
    archive = work / f"apache-maven-{_VERSION}.tar.gz"
    if not archive.exists() or hashlib.sha256(archive.read_bytes()).hexdigest() != _SHA256:
        raise EnvironmentNotReady(
            f"Apache Maven {_VERSION} came damaged or not at all",
            hint="install Maven (apt install maven)",
        )
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    os.replace(work / f"apache-maven-{_VERSION}", home)


def _only_file(folder: Path, title: str) -> Path:
    for path in folder.iterdir():
        return path
    raise EnvironmentNotReady(f"the resolver copied nothing for {title}")


def _run(
    command: Sequence[str],
    folder: Path,
    title: str,
    report: Report,
    downloaded: str,
    timeout_s: float | None = None,
) -> str:
    """Run a resolver, report each jar, and turn its failure into an error a person can act on.

    Returns:
        The last lines that it wrote.
    """
    limit_s = TIMEOUT_S if timeout_s is None else timeout_s
    pattern = re.compile(downloaded)
    deadline = time.monotonic() + limit_s
    tail: deque[str] = deque(maxlen=400)
    fetched = 0
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", env={**os.environ, "JAVA_HOME": str(find_java().home)},
    ) as process:  # fmt: skip
        timer = Timer(limit_s, process.kill)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail.append(line.rstrip())
                if match := pattern.search(line.strip()):
                    fetched += 1
                    report(f"{title}: {fetched} jars, {match[1]}")
            code = process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
    if code != 0 and time.monotonic() >= deadline:
        # What it said until then may name hosts that it can do without.
        raise EnvironmentNotReady(
            f"{title} was not resolved within {limit_s / 60:.0f} minutes",
            hint="try again: what was downloaded is not downloaded twice; or ask for another version",
        )
    if code != 0:
        raise failure("\n".join(tail), title)
    return "\n".join(tail)


def failure(output: str, title: str) -> EnvironmentNotReady | UsageError:
    """A resolver's failed output as an error that says what to do.

    Args:
        title: the coordinate that was asked for, ``group:artifact:version``.
    """
    missing = [_CUT.sub("", match[0]).strip() for match in _MISSING.finditer(output)]
    if missing:
        lacking = missing[0].replace("#", ":").replace(";", ":")
        group, name, version = title.split(":")
        if lacking.startswith(f"{group}:{name}:") and version in lacking:
            return UsageError(
                f"there is no {name} {version} in the Maven repository", hint=_versions(title)
            )
        return UsageError(
            f"{name} {version} cannot be used: the Maven repository lacks {lacking}, which it needs",
            hint="ask for another version",
        )
    if _NO_NETWORK.search(output):
        return EnvironmentNotReady(
            f"cannot reach the Maven repository to fetch {title}",
            hint="check the network or proxy (Maven: ~/.m2/settings.xml); with a filled cache use --offline",
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = (
        [line for line in lines if "ERROR" in line or "Exception" in line] or lines or ["no output"]
    )
    return EnvironmentNotReady(f"{title} could not be resolved: {telling[0][:300]}")


def _versions(title: str) -> str:
    """Versions that there are, as a hint; best effort within a bounded time."""
    group, name, version = title.split(":")
    try:
        return others_hint(version, released(group, name))
    except EnvironmentNotReady:
        return "ask for another version"


def is_released(title: str) -> bool:
    """Whether the repository has the pom of an artifact, ``group:artifact:version``; lists may
    leave it out.

    Raises:
        EnvironmentNotReady: no Maven, no network, or no answer in time.
    """
    try:
        with tempfile.TemporaryDirectory() as target:
            find_maven().copy_pom(title, Path(target), _VERSIONS_TIMEOUT_S)
    except UsageError:
        return False
    return True


def released(group: str, name: str) -> list[str]:
    """Every version of an artifact that the repository has, in no order.

    Raises:
        EnvironmentNotReady: no Ivy or no Java, no answer in time, or no such artifact.
    """
    found = listed_versions(_listing(group, name))
    if not found:
        raise EnvironmentNotReady(
            f"the Maven repository names no version of {group}:{name}",
            hint="check the network or proxy",
        )
    return found


@cache  # takes seconds, and a failed download asks again for the hint of its error
def _listing(group: str, name: str) -> str:
    """Return Ivy's answer to the question about any version of an artifact.

    Raises:
        EnvironmentNotReady: no Ivy or no Java, or no answer in time.
    """
    jar = ivy_jar()
    if jar is None:
        raise EnvironmentNotReady("no Ivy in pyspark's jars", hint="reinstall pyspark")
    with tempfile.TemporaryDirectory() as work:
        command = [
            find_java().path, "-jar", str(jar), "-debug", "-cache", work, "-dependency", group, name, "[0,)",
            "-confs", "master",
            "-types", "none",  # the list is asked for, not tens of megabytes of the newest version
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_VERSIONS_TIMEOUT_S,
                check=False,
                cwd=work,
            )
        except subprocess.TimeoutExpired as error:
            raise EnvironmentNotReady(
                f"no list of the versions of {group}:{name} within {error.timeout:g} s",
                hint="check the network or proxy; on a busy machine, try again",
            ) from error
        except OSError as error:
            raise EnvironmentNotReady(
                f"no list of the versions of {group}:{name}: {error}"
            ) from error
    return done.stdout


def listed_versions(output: str) -> list[str]:
    """The versions in Ivy's debug output."""
    return (
        ", ".join(re.findall(r"found revs: \[(.*?)\]", output)).split(", ")
        if "found revs" in output
        else []
    )
