"""Builds class archives by booting a minimal cluster once per version, so that every later start is quick.

A broker's JVM spends most of its start loading some ten thousand classes. When the minimal
cluster ends, Java writes them to an archive (class data sharing), one per main class, that later nodes map
instead: measured for
Kafka 4.6 instead of 7.9 CPU seconds a start, which on two cores is five seconds for three nodes, and a
restart during a run takes that much less from the clients under test. Java ignores an archive that does not
fit.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from harness.clusters.assembly import assembly_of
from harness.clusters.nodes.node_process import NodeFolder
from harness.clusters.process_runtime import Launch, ProcessRuntime
from harness.errors import BrokerstormError
from harness.toolchains.jars import Progress, cache_folder
from harness.toolchains.java import Java

log = logging.getLogger(__name__)
_DYNAMIC_ARCHIVES_SINCE = 13  # JEP 350
_STOP_S = 60.0


def archive_file(java: Java, jars: Path, main: str) -> Path:
    """Where the class archive for a Java, a set of jars and a main class is, or would be."""
    try:
        installed = Path(java.path).resolve().stat().st_mtime_ns
    except OSError:
        installed = 0
    digest = hashlib.sha256(f"{java.path} {java.text} {installed}".encode()).hexdigest()[:8]
    name = f"{jars.name}-{main.rpartition('.')[2]}-java{java.major}-{digest}.jsa"
    return cache_folder() / "classes" / name


def with_archives(launch: Launch, run_id: str, block: int, report: Progress) -> Launch:
    """``launch`` with a class archive for each main class, made now when there are none.

    Never fails: without an archive nodes start as usual. Uses addresses of the run's ``block``, where
    nothing may run yet.
    """
    mains = {service.main for service in launch.spec.services}
    archives = {main: archive_file(launch.java, launch.jars, main) for main in mains}
    if launch.java.major >= _DYNAMIC_ARCHIVES_SINCE and not _exist(archives.values()):
        lock = archive_file(launch.java, launch.jars, "all").with_suffix(".lock")
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(lock, timeout=0):
                if not _exist(archives.values()):
                    report(f"preparing {launch.spec.system} {launch.spec.version} for quick starts", None)
                    _record(launch, run_id, block)
        except Timeout:
            pass  # another process makes them; this start is a slow one
        except (BrokerstormError, OSError) as error:
            log.warning("no class archive for %s: %s", launch.jars.name, error)
    return replace(launch, archives={main: path for main, path in archives.items() if path.exists()})


def _exist(paths: Iterable[Path]) -> bool:
    return all(path.exists() for path in paths)


def _record(launch: Launch, run_id: str, block: int) -> None:
    assembly = assembly_of(launch.spec.system)
    spec, settings = assembly.minimal(launch.spec)
    folder_of_all = archive_file(launch.java, launch.jars, "all").parent
    with tempfile.TemporaryDirectory(dir=folder_of_all, prefix=f"{launch.jars.name}.part-") as name:
        folder = Path(name)
        # -Xshare messages are about classes that cannot be archived: of no use to anybody.
        flags = (f"-XX:ArchiveClassesAtExit={folder}/{{main}}.jsa", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
        minimal = replace(launch, spec=spec, jvm=(*launch.jvm, *flags), settings=settings)
        runtime = ProcessRuntime(run_id, folder, block, minimal, assembly.prepare(run_id, minimal))
        admin = assembly.admin(runtime, runtime.is_running)
        admin.watch = runtime.check
        try:
            runtime.up()
            assembly.exercise(admin)
            admin.close()
            for service in reversed(spec.services):
                runtime.stop(service.name, timeout_s=_STOP_S)
                made = folder / f"{service.main}.jsa"
                if made.exists():
                    os.replace(made, archive_file(launch.java, launch.jars, service.main))
        finally:
            admin.close()
            for node in runtime.nodes:
                runtime.kill(node.name)
                shutil.rmtree(NodeFolder(node.folder).data, ignore_errors=True)
