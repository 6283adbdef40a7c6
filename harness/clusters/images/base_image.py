"""The image that stand-ins are built on: a minimal system of this machine's own distribution, with
a Java.

It is made with mmdebstrap from the package sources that apt is configured with here, so mirrors and
proxies count and nothing is asked of an image registry. All systems share it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.clusters.docker.engine import STANDIN_LABEL, asking
from harness.errors import EnvironmentNotReady
from harness.toolchains.jars import Progress
from harness.toolchains.package_index import LIST_SOURCES, sources_in

REPOSITORY = "brokerstorm/base"
#: What the official images have and our compose files use: bash is in every minimal system.
PACKAGES = ("netcat-openbsd", "procps")
JAVA_PACKAGES = {
    17: "openjdk-17-jre-headless",
    21: "openjdk-21-jre-headless",
    25: "openjdk-25-jre-headless",
}
TOOL_HINT = "install it (Debian, Ubuntu: apt install mmdebstrap)"
NEEDED_MB = 1500  # the tree, its archive and the imported image
_RECIPE = "1"  # raise it when what is made below changes
_ASK_S = 30.0
_MAKE_S = 900.0
_MB = 2**20
#: What mmdebstrap says -> what we say.
_STEPS = {
    "running apt-get update": "reading package lists",
    "downloading packages": "downloading packages",
    "installing remaining packages": "installing packages",
    "cleaning package lists": "packing",
}


def provide(client: Any, java: int, report: Progress) -> str:
    """The tag of the base image with at least this Java; it is made when the engine lacks it (half
    a minute).

    Raises:
        EnvironmentNotReady: no mmdebstrap, no apt, no network, no such Java, disk full.
    """
    codename, sources = package_sources()
    package = java_package(java)
    digest = hashlib.sha256(
        "\n".join([_RECIPE, codename, package, *PACKAGES, *sources]).encode()
    ).hexdigest()
    tag = f"{REPOSITORY}:{codename}-{digest[:12]}"
    with asking("cannot ask for the base image"):
        if client.images.list(name=tag):
            return tag
    with tempfile.TemporaryDirectory(prefix="brokerstorm-base-") as name:
        room(Path(name), NEEDED_MB)
        archive = Path(name, "base.tar")
        _make(codename, sources, package, archive, lambda text: report(f"base image: {text}", None))
        report(f"base image: importing {archive.stat().st_size // _MB} MB", None)
        with asking("cannot import the base image"):
            said = client.api.import_image(
                str(archive),
                repository=REPOSITORY,
                tag=tag.rpartition(":")[2],
                changes=["ENV LANG=C.UTF-8", f"LABEL {STANDIN_LABEL}=true"],
            )
    if "error" in said:
        raise EnvironmentNotReady(f"cannot import the base image: {said.strip()[-300:]}")
    return tag


def room(folder: Path, needed_mb: int) -> None:
    """Refuse to begin what will not fit.

    Raises:
        EnvironmentNotReady: less is free.
    """
    free_mb = shutil.disk_usage(folder).free // _MB
    if free_mb < needed_mb:
        raise EnvironmentNotReady(
            f"{free_mb} MB free at {folder}, {needed_mb} MB needed to build an image",
            hint="free some space, or set TMPDIR to another folder for temporary files",
        )


def package_sources() -> tuple[str, list[str]]:
    """This machine's distribution and its package sources, as apt is configured: codename, `deb`
    lines.

    Raises:
        EnvironmentNotReady: no apt here, or no source of the distribution itself.
    """
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    found: dict[tuple[str, str], list[str]] = {}
    for source in sources_in(_apt(*LIST_SOURCES)):
        if source.release == codename or source.release.startswith(f"{codename}-"):
            where = f"[signed-by={source.key}] {source.uri}" if source.key else source.uri
            found.setdefault((where, source.release), []).append(source.component)
    if not any(release == codename for _, release in found):
        raise EnvironmentNotReady(
            f"apt has no package source of {codename or 'this distribution'}",
            hint="add it below /etc/apt/sources.list.d, then run apt-get update",
        )
    lines = [
        f"deb {where} {release} {' '.join(dict.fromkeys(components))}"
        for (where, release), components in found.items()
        if not release.endswith("-backports")
    ]
    return codename, sorted(lines)


def java_package(minimum: int) -> str:
    """The oldest packaged Java that is new enough.

    Raises:
        EnvironmentNotReady: the package sources have none.
    """
    for major, package in JAVA_PACKAGES.items():
        candidate = re.search(r"Candidate: (\S+)", _apt("apt-cache", "policy", package))
        if major >= minimum and candidate and candidate[1] != "(none)":
            return package
    raise EnvironmentNotReady(
        f"the package sources of this machine have no Java {minimum}",
        hint="choose an older version of the system, or use --runtime process with JAVA_HOME",
    )


def _apt(*command: str) -> str:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        ).stdout
    except FileNotFoundError:
        raise EnvironmentNotReady(
            "stand-in images are built from Debian packages, and this machine has no apt",
            hint="pull the official images where a registry answers, or use --runtime process",
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentNotReady(
            f"{' '.join(command[:2])} failed: {error}", hint="try it by hand"
        ) from error


def _make(
    codename: str, sources: list[str], java: str, archive: Path, say: Callable[[str], None]
) -> None:
    if shutil.which("mmdebstrap") is None:
        raise EnvironmentNotReady(
            "mmdebstrap is missing, which builds the base of stand-in images", hint=TOOL_HINT
        )
    command = [
        "mmdebstrap",
        "--variant=minbase",
        '--aptopt=Apt::Install-Recommends "false"',
        f"--include={','.join([java, *PACKAGES])}",
        codename,
        str(archive),
        "-",
    ]
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    said: list[str] = []
    say("starting")
    with tempfile.TemporaryFile("w+") as given:
        given.write("\n".join(sources) + "\n")
        given.seek(0)
        with subprocess.Popen(
            ["timeout", f"{_MAKE_S:.0f}", *command],
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                said += [line.strip()] if line.strip() else []
                for key, text in _STEPS.items():
                    if key in line:
                        say(text)
    if process.returncode:
        raise EnvironmentNotReady(
            f"cannot make the base image: {_complaint(said)}", hint=_remedy(said)
        )


def _complaint(said: list[str]) -> str:
    """The first error: those after it are what follows from it."""
    errors = [line.removeprefix("E: ") for line in said if line.startswith("E:")]
    return (errors or said[-1:] or ["mmdebstrap said nothing"])[0][:300]


def _remedy(said: list[str]) -> str:
    text = "\n".join(said)
    if re.search(
        r"Could not resolve|Could not connect|Failed to fetch|Unable to connect|Temporary failure",
        text,
    ):
        return "the package sources of apt must be reachable: try `apt-get update`"
    if re.search(r"chroot mode|unshare|mknod|newuidmap|subuid|not permitted", text):
        return "making a system tree needs root here: run `sudo brokerstorm fetch --images` once"
    if "No space left" in text:
        return "free some space, or set TMPDIR to another folder for temporary files"
    return "try `brokerstorm -v fetch --images`"
