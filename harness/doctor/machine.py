"""Checks of tools, memory, disk and addresses before a run; each with its remedy."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.clusters import spec_of
from harness.clusters.layout.addresses import BLOCKS, CHECK_BLOCK, address
from harness.clusters.layout.compose import ClusterLayout, Program
from harness.errors import EnvironmentNotReady
from harness.memory import SPARK_LEAST_MB, SPARK_MB, free_memory_mb
from harness.need import Need
from harness.toolchains.cache import cache_folder
from harness.toolchains.jars import is_complete, jars_folder
from harness.toolchains.java import INSTALL_HINT, find_java
from harness.toolchains.maven import find_maven

PYTHON = (3, 11)
OPEN_FILES = 4096


def checks(
    *clusters: tuple[str, str, str],
    clients_mb: int = 0,
    disk_mb: int = 0,
    folder: Path | None = None,
    spark: bool = True,
    runtime: str = "process",
) -> list[Need]:
    """Every check that a run on these clusters, one after the other, needs.

    Args:
        clusters: system, version and topology; empty = the default.
        clients_mb: memory of the clients.
        disk_mb: what is written below ``folder``.
        folder: where run directories go; its disk is checked.
        spark: whether the run is judged, which needs a JVM besides the brokers.
        runtime: "process", or "docker", whose brokers bring their own Java and jars; empty where
            brokers run elsewhere.

    Raises:
        UsageError: no such system, version or topology.
    """
    specs = [spec_of(*cluster) for cluster in clusters] if runtime else []
    spark_java = 17 if spark else 0
    java = {"Spark": spark_java} if spark else {}
    if runtime == "process":
        java |= {
            f"{spec.system} {spec.version}": max(spec.java, spark_java)
            for spec in specs
            if spec.java
        }
    software = {spec.version: software_check(spec.system, spec.version) for spec in specs}
    brokers_mb = (
        max(sum(service.memory_mb for service in spec.nodes) for spec in specs) if specs else 0
    )
    return [
        python_check(),
        *([java_check(max(java.values()), max(java, key=lambda what: java[what]))] if java else []),
        *(software.values() if runtime == "process" else ()),
        memory_check(brokers_mb + clients_mb, *((SPARK_MB, SPARK_LEAST_MB) if spark else ())),
        disk_check(folder or Path.cwd(), needed_mb=disk_mb),
        disk_check(
            cache_folder(), name="disk of the cache", needed_mb=500, chosen_by="BROKERSTORM_CACHE"
        ),
        *([_loopback_of(specs)] if specs else []),
        files_check(),
    ]


def _loopback_of(specs: Sequence[ClusterLayout]) -> Need:
    ports = {port for spec in specs for port in spec.ports.values()}
    return loopback_check(
        max(service.number for spec in specs for service in spec.nodes), sorted(ports)
    )


def require(results: Iterable[Need]) -> None:
    """Refuse to continue when a check failed.

    Raises:
        EnvironmentNotReady: names every failed check and the remedies.
    """
    failed = [check for check in results if check.needed and not check.ok]
    if failed:
        raise EnvironmentNotReady(
            "; ".join(f"{check.name}: {check.text}" for check in failed),
            hint="; ".join(dict.fromkeys(check.remedy for check in failed if check.remedy)),
        )


def python_check() -> Need:
    """Return whether the running Python is new enough."""
    found = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info[:2] >= PYTHON
    return Need(
        "python", ok, f"{found} ({sys.executable})", "" if ok else "use Python 3.11 or newer"
    )


def java_check(minimum: int, what: str) -> Need:
    """Java for the brokers and for Spark."""
    try:
        java = find_java(minimum)
    except EnvironmentNotReady as error:
        return Need("java", False, f"{error} (needed by {what})", error.hint or INSTALL_HINT)
    return Need("java", True, f"{java.major} ({java.path}), {what} needs {minimum}")


def software_check(system: str, version: str = "") -> Need:
    """Broker jars, or the program that a broker is, in the cache, or a way to fetch them."""
    spec = spec_of(system, version)
    if spec.program:
        return _program_check(spec, spec.program)
    folder = jars_folder(spec.artifacts)
    if is_complete(folder):
        return Need("broker jars", True, f"{system} {spec.version} in {folder}")
    if spec.own:
        return Need("broker jars", True, f"{system} {spec.own.label}, to be copied on first use")
    try:
        resolver = find_maven()
    except EnvironmentNotReady as error:
        return Need("broker jars", False, str(error), error.hint)
    return Need(
        "broker jars", True, f"{system} {spec.version} not fetched yet; {resolver.name} will"
    )


def _program_check(spec: ClusterLayout, program: Program) -> Need:
    try:
        built = program.place.exists()
        if not built:
            program.require_tools()
    except EnvironmentNotReady as error:
        return Need("broker program", False, str(error), error.hint)
    label = spec.own.label if spec.own else spec.version
    where = f"in {program.place.parent}" if built else program.first_use
    return Need("broker program", True, f"{spec.system} {label} {where}")


def memory_check(needed_mb: int, spark_mb: int = 0, spark_least_mb: int = 0) -> Need:
    """Whether brokers and clients fit, and Spark with them: with less than it would like, it makes
    do."""
    free_mb = free_memory_mb()
    ok = free_mb >= needed_mb + spark_least_mb
    text = f"{free_mb} MB free, {needed_mb + spark_mb} MB needed (brokers, clients, Spark)"
    if ok and free_mb < needed_mb + spark_mb:
        text += f"; with so little Spark gets {spark_least_mb} MB, which long runs may outgrow"
    remedy = "" if ok else "close programs or use a machine with more memory"
    return Need("memory", ok, text, remedy, passing=True)


def disk_check(
    folder: Path, *, needed_mb: int, name: str = "disk", chosen_by: str = "--run-dir"
) -> Need:
    """Space below a folder that may not exist yet."""
    existing = next(
        path for path in [folder.absolute(), *folder.absolute().parents] if path.exists()
    )
    free_mb = shutil.disk_usage(existing).free // 2**20
    another = f"choose another folder with {chosen_by}"
    if not os.access(existing, os.W_OK):
        return Need(name, False, f"{existing} is not writable", another)
    ok = free_mb >= needed_mb
    text = f"{free_mb} MB free at {existing}, {needed_mb} MB needed"
    return Need(name, ok, text, "" if ok else f"free some space or {another}", passing=True)


def loopback_check(nodes: int, ports: Sequence[int]) -> Need:
    """Whether every node can have a loopback address of its own."""
    for number in range(1, nodes + 1):
        for port in ports:
            host = address(CHECK_BLOCK, number)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError as error:
                    return Need(
                        "loopback addresses",
                        False,
                        f"{host}:{port} cannot be bound: {error.strerror}",
                        f"end what listens on port {port} (`ss -ltnp`); other systems than Linux need "
                        f"aliases for {host}",
                        passing=True,
                    )
    return Need(
        "loopback addresses",
        True,
        f"127.0.1-{BLOCKS}.1-{nodes}, ports {', '.join(map(str, ports))}",
    )


def files_check() -> Need:
    """Open files a process may have; the JVM raises its soft limit to the hard one itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ok = hard == resource.RLIM_INFINITY or hard >= OPEN_FILES
    text = f"limit {'none' if hard == resource.RLIM_INFINITY else hard}, {OPEN_FILES} needed"
    return Need("open files", ok, text, "" if ok else "raise the hard limit: `ulimit -Hn 65536`")
