"""The two programs that turn Maven coordinates into jars, and what their failures mean."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Protocol
from xml.sax.saxutils import quoteattr

from harness.errors import EnvironmentNotReady, UsageError
from harness.toolchains.coordinates import EVERYTHING, Artifacts
from harness.toolchains.java import find_java

TIMEOUT_S = 900.0
_VERSIONS_TIMEOUT_S = 20.0
#: The plugin of Maven 3.8 (2.8) cannot copy a file that no pom asks for.
_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
Report = Callable[[str], None]
_NO_NETWORK = re.compile(
    r"Unknown host|UnknownHost|Network is unreachable|Connection refused|Connect.* timed out"
    r"|Temporary failure in name resolution|No route to host|PKIX|Server access error",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"Could not find artifact \S+|Failure to find \S+|\S+:\S+ was not found in|:: \S+: not found"
)
_CUT = re.compile(r"Could not find artifact |Failure to find |:: |: not found| was not found in")


class Resolver(Protocol):
    name: str

    def fetch(self, wanted: Artifacts, target: Path, report: Report) -> None:
        """Copy the jars of the coordinates, and all that they need at run time, into ``target``.

        Raises:
            EnvironmentNotReady: no network, or the resolver's own words.
            UsageError: the repository lacks something.
        """

    def fetch_archive(self, wanted: Artifacts, target: Path, report: Report) -> Path:
        """Copy the archive, one file, into ``target``.

        Raises:
            EnvironmentNotReady, UsageError: as `fetch`.
        """


def find_resolver() -> Resolver:
    """``mvn`` from the PATH, else the Ivy in pyspark's jars.

    Raises:
        EnvironmentNotReady: neither.
    """
    mvn = shutil.which("mvn")
    if mvn:
        return Maven(mvn)
    ivy = ivy_jar()
    if ivy:
        return Ivy(find_java().path, ivy)
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
    """``mvn dependency:copy-dependencies`` on a generated pom."""

    name = "mvn"

    def __init__(self, mvn: str) -> None:
        self._mvn = mvn

    def fetch(self, wanted: Artifacts, target: Path, report: Report) -> None:
        exclusions = "".join(
            "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>".format(*one.split(":"))
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
            command = [
                self._mvn, "-B", "-U", "dependency:copy-dependencies", "-DincludeScope=runtime",
                f"-DoutputDirectory={target}",
            ]  # fmt: skip
            _run(command, Path(work), wanted.title, report, r"^(?:\[INFO\] )?Downloaded .*/(\S+\.jar)\b")

    def fetch_archive(self, wanted: Artifacts, target: Path, report: Report) -> Path:
        with tempfile.TemporaryDirectory() as work:
            command = [
                self._mvn, "-B", "-U", f"{_DEPENDENCY_PLUGIN}:copy", f"-Dartifact={wanted.archive}",
                f"-DoutputDirectory={target}",
            ]  # fmt: skip
            _run(command, Path(work), wanted.title, report, r"^(?:\[INFO\] )?Downloaded .*/(\S+\.gz)\b")
        return _only_file(target, wanted.title)


def _management(managed: str) -> str:
    if not managed:
        return ""
    group, name, version = managed.split(":")
    return (
        f"<dependencyManagement><dependencies><dependency><groupId>{group}</groupId><artifactId>{name}"
        f"</artifactId><version>{version}</version><type>pom</type><scope>import</scope></dependency>"
        "</dependencies></dependencyManagement>"
    )


class Ivy:
    """Ivy as a program on a generated ivy.xml; its built-in settings know Maven Central.

    It cannot import a pom's versions: ``managed`` is left to its own choice, the newest asked for.
    """

    name = "ivy"

    def __init__(self, java: str, jar: Path) -> None:
        self._command = [java, "-jar", str(jar)]

    def fetch(self, wanted: Artifacts, target: Path, report: Report) -> None:
        is_transitive = EVERYTHING not in wanted.exclude
        dependencies = "".join(
            f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)}"
            f' conf="default->default" transitive="{str(is_transitive).lower()}"/>'
            for group, name, version in (one.split(":") for one in wanted.coordinates)
        )
        exclusions = "".join(
            f"<exclude org={quoteattr(group)} module={quoteattr(name)}/>"
            for group, name in (one.split(":") for one in wanted.exclude if one != EVERYTHING)
        )
        # Types are separated by spaces: a comma finds nothing and says nothing.
        self._retrieve(dependencies + exclusions, ("jar", "bundle"), wanted.title, target, report)

    def fetch_archive(self, wanted: Artifacts, target: Path, report: Report) -> Path:
        group, name, version, kind, classifier = wanted.archive.split(":")
        dependency = (
            f"<dependency org={quoteattr(group)} name={quoteattr(name)} rev={quoteattr(version)}"
            ' transitive="false" conf="default->default">'
            f"<artifact name={quoteattr(name)} type={quoteattr(kind)} ext={quoteattr(kind)}"
            f" m:classifier={quoteattr(classifier)}/></dependency>"
        )
        self._retrieve(dependency, (kind,), wanted.title, target, report)
        return _only_file(target, wanted.title)

    def _retrieve(
        self, dependencies: str, types: Sequence[str], title: str, target: Path, report: Report
    ) -> None:
        """Copy files of these types of what an ivy.xml with these dependencies asks for."""
        with tempfile.TemporaryDirectory() as work:
            ivy = Path(work, "ivy.xml")
            ivy.write_text(
                '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
                '<info organisation="brokerstorm" module="resolve"/>'
                '<configurations><conf name="default"/></configurations>'
                f"<dependencies>{dependencies}</dependencies></ivy-module>"
            )
            command = [
                *self._command, "-cache", str(Path(work, "cache")), "-ivy", str(ivy),
                "-confs", "default", "-types", *types,
                "-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]",
            ]  # fmt: skip
            _run(command, Path(work), title, report, r"\[SUCCESSFUL \] \S+!(\S+)")


def _only_file(folder: Path, title: str) -> Path:
    for path in folder.iterdir():
        return path
    raise EnvironmentNotReady(f"the resolver copied nothing for {title}")


def _run(command: Sequence[str], folder: Path, title: str, report: Report, downloaded: str) -> None:
    """Run a resolver, report each jar, and turn its failure into an error a person can act on."""
    pattern = re.compile(downloaded)
    deadline = time.monotonic() + TIMEOUT_S
    tail: deque[str] = deque(maxlen=400)
    fetched = 0
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        timer = Timer(TIMEOUT_S, process.kill)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail.append(line.rstrip())
                if match := pattern.search(line.strip()):
                    fetched += 1
                    report(f"{fetched} jars, {match[1]}")
            code = process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
    if code != 0 and time.monotonic() >= deadline:
        # What it said until then may name hosts that it can do without.
        raise EnvironmentNotReady(
            f"{title} was not resolved within {TIMEOUT_S / 60:.0f} minutes",
            hint="try again: what was downloaded is not downloaded twice; or ask for another version",
        )
    if code != 0:
        raise failure("\n".join(tail), title)


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
            return UsageError(f"there is no {name} {version} in the Maven repository", hint=_versions(title))
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
    telling = [line for line in lines if "ERROR" in line or "Exception" in line] or lines or ["no output"]
    return EnvironmentNotReady(f"{title} could not be resolved: {telling[0][:300]}")


def _versions(title: str) -> str:
    """Versions that there are, as a hint; best effort within a bounded time."""
    group, name, version = title.split(":")
    jar = ivy_jar()
    if jar is None:
        return "ask for another version"
    with tempfile.TemporaryDirectory() as work:
        command = [
            find_java().path, "-jar", str(jar), "-debug", "-cache", work, "-dependency", group, name, "[0,)",
            "-confs", "master",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_VERSIONS_TIMEOUT_S, check=False, cwd=work
            )
        except (OSError, subprocess.TimeoutExpired):
            return "ask for another version"
    return versions_hint(done.stdout, version)


def versions_hint(output: str, wanted: str) -> str:
    """The released versions in Ivy's debug output, those of the wanted major number first."""
    listed = ", ".join(re.findall(r"found revs: \[(.*?)\]", output))
    found = {text for text in listed.split(", ") if re.fullmatch(r"\d+\.\d+\.\d+", text)}
    ordered = sorted(found, key=lambda text: [int(part) for part in text.split(".")], reverse=True)
    near = [text for text in ordered if text.split(".")[0] == wanted.split(".")[0]]
    shown = (near or ordered)[:8]
    return f"there are: {', '.join(shown)}" if shown else "ask for another version"
