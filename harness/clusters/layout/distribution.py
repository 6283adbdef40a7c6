"""A distribution of the brokers that a user built or unpacked, as a version of the cluster:
``dir:PATH``."""

from __future__ import annotations

import re
from dataclasses import replace

from harness.clusters.layout.compose import compose_file, read_distribution
from harness.clusters.layout.compose_model import UnpackedFiles
from harness.errors import UsageError
from harness.systems import system_of
from harness.toolchains.jars import pinned_jars
from harness.toolchains.own_builds import (
    AskedBuild,
    OwnBuild,
    asked_build,
    is_own,
    own_build,
    pinned_source,
)

_PINNED: dict[tuple[str, str], str] = {}


def pinned(system: str, version: str) -> str:
    """A version of brokers that means the same to the end: ``dir:FOLDER`` as what is there now.

    Any other version is returned as it is. Asked twice, a process gets the same answer.

    Raises:
        UsageError: no such folder, or no distribution of this system.
    """
    if not is_own(version) or own_build(version):
        return version
    asked = (system, version)
    if asked not in _PINNED:
        _PINNED[asked] = _pinned(system, version)
    return _PINNED[asked]


def _pinned(system: str, version: str) -> str:
    asked, facts = asked_build(version), read_distribution(compose_file(system))
    if facts is None:
        raise UsageError(
            f"brokers of {system} cannot be started from a folder of your own",
            hint=f"leave out cluster.version, or name a release such as {system_of(system).version}",
        )
    if facts.version_file:
        return str(_sources(system, asked, facts))
    if asked.revision:
        raise UsageError(
            f"brokers run from a distribution, not from commit {asked.revision!r} of a checkout",
            hint=f"build it, unpack what the build made, and name that folder: the one with {facts.start}",
        )
    jars = asked.path / facts.jars
    if not (asked.path / facts.start).is_file():
        raise UsageError(
            f"{asked.path} is not a distribution of {system}: it has no {facts.start}",
            hint=_hint(facts.jars),
        )
    found = [
        match[1]
        for jar in jars.glob("*.jar")
        if (match := re.fullmatch(facts.version_in, jar.name))
    ]
    if not found:
        raise UsageError(
            f"{asked.path} is not a distribution of {system}: no jar in {facts.jars} fits {facts.version_in}",
            hint=_hint(facts.jars),
        )
    return str(pinned_jars(asked.path, jars, asked.number or found[0]))


def _sources(system: str, asked: AskedBuild, facts: UnpackedFiles) -> OwnBuild:
    """Sources that brokers are built from."""
    found = pinned_source(asked)
    if found.text(facts.start) is None:
        raise UsageError(f"{found.path} has no sources of {system}: it has no {facts.start}")
    said = re.search(facts.version_in, found.text(facts.version_file) or "")
    if not said:
        raise UsageError(
            f"{found.path} has no sources of {system}: no version in {facts.version_file}"
        )
    return replace(found, number=asked.number or said[1])


def _hint(jars: str) -> str:
    return f"sources are none: build them, unpack what the build made, and name the folder that has {jars}/"
